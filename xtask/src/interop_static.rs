//! The second part of `cargo xtask interop`: whisper.cpp and C, compiled against the static ggml of ggml-sys.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::fetch::cargo::Package;
use crate::workspace::{Workspace, check};

/// The crate, outside of the workspace: it can only be built with whisper.cpp.
const CRATE: &str = "tests/interop-static";

/// What carries whisper.cpp. Its own build script, which compiles another ggml, is not run.
const WHISPER: Package<'_> = Package {
    name: "whisper-rs-sys",
    version: "0.15.0",
    sha256: Some("6986c0fe081241d391f09b9a071fbcbb59720c3563628c3c829057cf69f2a56f"),
};

#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let scratch = workspace.root.join("target/interop/whisper");
    let package = workspace.fetcher().unpack(WHISPER, &scratch).map_err(anyhow::Error::msg)?;
    println!("compiling whisper.cpp against ggml-sys");
    let target = workspace.root.join("target");
    let mut build = workspace.cargo(&workspace.root.join(CRATE));
    build.args(["build", "--locked", "--target-dir"]).arg(&target);
    check(build.env("WHISPER_CPP", package.folder.join("whisper.cpp")))?;
    let program = target.join("debug/interop-static");
    check(&mut Command::new(&program))?;
    let output = Command::new("nm").arg(&program).output().context("cannot run nm")?;
    let symbols = String::from_utf8_lossy(&output.stdout);
    let copies = symbols.lines().filter(|line| line.ends_with(" T ggml_init")).count();
    ensure!(copies == 1, "the program should have one ggml, and has {copies}");
    println!("interop-static: whisper.cpp of {} {}, copies={copies}", WHISPER.name, WHISPER.version);
    Ok(())
}
