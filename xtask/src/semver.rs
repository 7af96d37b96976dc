//! `cargo xtask semver`: compares the public API with that of the last tag, by cargo-semver-checks.

use std::process::Command;

use anyhow::Result;

use crate::workspace::{Workspace, check};

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let output = Command::new("git")
        .args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"])
        .current_dir(&workspace.root)
        .output()?;
    let tag = String::from_utf8(output.stdout)?;
    let tag = tag.trim();
    if !output.status.success() || tag.is_empty() {
        println!("semver: NOT COMPARED: there is no tag v… to compare with");
        return Ok(());
    }
    let mut command = workspace.cargo(&workspace.root);
    command.args([
        "semver-checks",
        "--package",
        "libggml",
        "--package",
        "ggml-gguf",
        "--package",
        "ggml-draw",
        "--baseline-rev",
        tag,
    ]);
    // Declarations are enough.
    check(command.arg("--all-features").env("DOCS_RS", "1"))?;
    println!("semver: compared with {tag}");
    Ok(())
}
