//! `cargo xtask vendor`.

use anyhow::Result;

use crate::update;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct VendorArguments {
    /// Make another version of the package the default, pin it if it is not, and print what changed in ggml
    #[arg(long, value_name = "VERSION")]
    update: Option<String>,
    /// The package on crates.io, if it is not that of the present default
    #[arg(long, value_name = "NAME", requires = "update")]
    package: Option<String>,
    /// Print what would change, and move nothing
    #[arg(long, requires = "update")]
    dry_run: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &VendorArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if let Some(version) = &arguments.update {
        return update::run(&workspace, arguments.package.as_deref(), version, arguments.dry_run);
    }
    for pin in workspace.pins()?.all {
        let tree = workspace.sources(&pin)?;
        println!("ggml {} of {} lies in {}, as pinned", pin.ggml, pin.origin(), tree.display());
    }
    Ok(())
}
