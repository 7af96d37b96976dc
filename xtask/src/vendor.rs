//! `cargo xtask vendor`.

use anyhow::Result;

use crate::update;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Move the pin to another version of its package, and print what changed in ggml's public headers
    #[arg(long, value_name = "VERSION")]
    update: Option<String>,
    /// Print what would change, and move nothing
    #[arg(long, requires = "update")]
    dry_run: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let pin = workspace.pin()?;
    if let Some(version) = &arguments.update {
        return update::run(&workspace, &pin, version, arguments.dry_run);
    }
    let tree = workspace.sources(&pin)?;
    println!("ggml {} of {} lies in {}, as pinned", pin.ggml, pin.origin(), tree.display());
    Ok(())
}
