//! A picture of the front page, to be looked at: `target/docs.png`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;

/// Browsers that draw a page without a window, and what they take for it.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

#[expect(clippy::print_stdout, reason = "says what it did")]
pub(super) fn take(workspace: &Workspace, docs: &Path) -> Result<()> {
    let runs = |name: &&&str| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let Some(browser) = BROWSERS.iter().find(runs) else {
        println!("docs: picture: NOT RUN: none of {} is installed", BROWSERS.join(", "));
        return Ok(());
    };
    let picture = workspace.root.join("target/docs.png");
    fs::remove_file(&picture).ok();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,1600"]);
    command.arg(format!("--screenshot={}", picture.display()));
    command.arg(format!("file://{}", docs.join("ggml/index.html").display()));
    let output = command.output().with_context(|| format!("cannot run {browser}"))?;
    let size = fs::metadata(&picture).map_or(0, |file| file.len());
    anyhow::ensure!(size > 0, "{browser} drew nothing: {}", String::from_utf8_lossy(&output.stderr));
    println!("docs: picture: {} ({size} bytes)", picture.display());
    Ok(())
}
