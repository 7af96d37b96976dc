//! `cargo xtask locks`: the lock file of each workspace, against the manifests.

use anyhow::Result;

use crate::workspace::{Workspace, check};

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    for file in workspace.files("*Cargo.lock")? {
        let manifest = workspace.root.join(file).with_file_name("Cargo.toml");
        let mut update = workspace.cargo(&workspace.root);
        update.args(["update", "--workspace", "--locked", "--quiet", "--manifest-path"]);
        check(update.arg(manifest))?;
    }
    Ok(())
}
