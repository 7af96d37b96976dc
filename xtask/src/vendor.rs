//! `cargo xtask vendor`.

use anyhow::Result;

use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let pin = workspace.pin()?;
    let tree = workspace.sources(&pin)?;
    println!("ggml {} of {} lies in {}, as pinned", pin.ggml, pin.origin(), tree.display());
    Ok(())
}
