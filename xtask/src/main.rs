//! The project's chores: `cargo xtask --help`.

mod coverage;
#[path = "../../ggml-sys/build/fetch/mod.rs"]
mod fetch;
mod headers;
mod helgrind;
mod package;
mod update;
mod vendor;
mod workspace;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "The project's chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Fetch ggml's pinned sources into vendor/ggml/, or move the pin
    Vendor(vendor::Arguments),
    /// Say where each of ggml's functions is in the safe layer: docs/coverage.md
    Coverage(coverage::Arguments),
    /// Package the crates, and build a program with them elsewhere, offline
    Package,
    /// Run the tests of threads under helgrind
    Helgrind,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Vendor(arguments) => vendor::run(&arguments),
        Chore::Coverage(arguments) => coverage::run(&arguments),
        Chore::Package => package::run(),
        Chore::Helgrind => helgrind::run(),
    }
}
