//! Spelling of pages and sources, by `typos`: `typos.toml` has the words of the field.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::workspace::Workspace;

#[expect(clippy::print_stdout, reason = "says that it did not run")]
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let version = Command::new("typos").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        println!(
            "docs: spelling: NOT RUN: typos is not installed: `pip install typos` or `cargo install typos-cli` does that"
        );
        return Ok(());
    }
    let status = Command::new("typos").current_dir(&workspace.root).status()?;
    ensure!(status.success(), "`typos` found misspelt words; words that are right belong into typos.toml");
    Ok(())
}
