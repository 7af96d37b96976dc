//! `cargo xtask vendor`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::fetch;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?.to_owned();
    let vendor = root.join("vendor");
    let pin = fetch::pin::Pin::read(&vendor.join("ggml.toml")).map_err(anyhow::Error::msg)?;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let cargo = fetch::cargo::Cargo { program, directory: root, offline: false };
    let tree = fetch::ensure(&vendor, &vendor, &pin, &cargo).map_err(anyhow::Error::msg)?;
    println!("ggml {} of {} lies in {}, as pinned", pin.ggml, pin.origin(), tree.display());
    Ok(())
}
