//! The project's chores: `cargo xtask --help`.

mod asan;
mod coverage;
#[path = "../../ggml-sys/build/fetch/mod.rs"]
mod fetch;
mod fuzz;
mod headers;
mod helgrind;
mod model;
mod package;
mod update;
mod valgrind;
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
    /// Read GGUF files that were changed at random
    FuzzGguf(fuzz::Arguments),
    /// Send an RPC server requests that were changed at random, and count what ends it
    FuzzRpc(fuzz::Arguments),
    /// Fetch a model of sentences, all-MiniLM-L6-v2, and turn it into GGUF files: target/model
    Model(model::Arguments),
    /// Package the crates, and build a program with them elsewhere, offline
    Package,
    /// Run the tests and random programs with ggml's C under GCC's address sanitizer
    ///
    /// Stable Rust will do: only C and C++ are instrumented, and all memory is watched. Takes some 20 minutes.
    Asan(asan::Arguments),
    /// Run random programs under valgrind's memcheck
    Valgrind(valgrind::Arguments),
    /// Run the tests of threads under helgrind
    Helgrind,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Vendor(arguments) => vendor::run(&arguments),
        Chore::Coverage(arguments) => coverage::run(&arguments),
        Chore::FuzzGguf(arguments) => fuzz::run(fuzz::GGUF, &arguments),
        Chore::FuzzRpc(arguments) => fuzz::run(fuzz::RPC, &arguments),
        Chore::Model(arguments) => model::run(&arguments),
        Chore::Package => package::run(),
        Chore::Asan(arguments) => asan::run(&arguments),
        Chore::Valgrind(arguments) => valgrind::run(&arguments),
        Chore::Helgrind => helgrind::run(),
    }
}
