//! `cargo xtask interop`: llama.cpp's crate and this one in one program, sharing one installed ggml.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::fetch::cargo::Package;
use crate::fetch::pin::Pin;
use crate::workspace::{Workspace, check};
use crate::{install, interop_static};

/// The folder of installed libraries and of what is made there, in `target`.
pub(crate) const FOLDER: &str = "target/interop";

/// llama.cpp's crate.
const LLAMA: &str = "llama-cpp-sys-2";

#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    let workspace = Workspace::find()?;
    let program = build(&workspace, "tests/interop", "interop")?;
    let folder = workspace.root.join(FOLDER);
    let prefix = folder.join("ggml");
    check(&mut Command::new(&program))?;
    notices_a_second_copy(&program, &prefix, &folder)?;
    interop_static::run(&workspace)?;
    println!("interop: a second copy is noticed; {} s in all", start.elapsed().as_secs());
    Ok(())
}

/// Builds the program of a crate that links llama.cpp. It is outside of the workspace, as it can only be built with an
/// installed ggml.
pub(crate) fn build(workspace: &Workspace, folder: &str, program: &str) -> Result<PathBuf> {
    let target = workspace.root.join("target");
    // A build type without flags: compiling llama.cpp without optimisation and debug information is much faster.
    build_with(workspace, folder, "rpc", &target, &mut |build| {
        build.arg("--locked").env("LLAMA_LIB_PROFILE", "None");
    })?;
    Ok(target.join("debug").join(program))
}

/// [`build`] over a pinned version of ggml, with the llama.cpp of the package that carries this version. The crate has the
/// feature `sources`, which compiles llama.cpp without the build script of the package.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn build_over(workspace: &Workspace, pin: &Pin, folder: &str, program: &str) -> Result<PathBuf> {
    if pin.package == LLAMA {
        return build(workspace, folder, program);
    }
    let prefix = workspace.root.join(FOLDER).join(format!("ggml-{}", pin.ggml));
    install::install(workspace, pin, &prefix, &["rpc"])?;
    let scratch = workspace.root.join(FOLDER).join(&pin.package);
    let package = Package { name: &pin.package, version: &pin.version, sha256: Some(&pin.sha256) };
    let package = workspace.fetcher().unpack(package, &scratch).map_err(anyhow::Error::msg)?;
    println!("compiling the llama.cpp of {} and the program: minutes, if that was not done before", pin.package);
    let target = workspace.root.join(FOLDER).join(format!("build-{}", pin.ggml));
    let mut build = workspace.cargo(&workspace.root.join(folder));
    build.args(["build", "--locked", "--no-default-features", "--features", "sources", "--target-dir"]).arg(&target);
    build.env("GGML_SYS_GGML", &pin.ggml).env("GGML_SYS_PREFIX", &prefix);
    build.env("LLAMA_CPP", package.folder.join("llama.cpp"));
    prefer_ninja(&mut build);
    check(&mut build)?;
    Ok(target.join("debug").join(program))
}

/// Ninja compiles in parallel.
fn prefer_ninja(build: &mut Command) {
    if Command::new("ninja").arg("--version").output().is_ok() {
        build.env("CMAKE_GENERATOR", "Ninja");
    }
}

/// Builds a crate that links llama.cpp into a target folder, over a ggml with these features of ggml-sys.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn build_with(
    workspace: &Workspace,
    folder: &str,
    features: &str,
    target: &Path,
    change: &mut dyn FnMut(&mut Command),
) -> Result<()> {
    let prefix = workspace.root.join(FOLDER).join("ggml");
    let pins = workspace.pins()?;
    // One ggml for both: the version that llama.cpp's crate carries.
    let pin = pins.all.iter().find(|pin| pin.package == LLAMA).with_context(|| format!("{LLAMA} is not pinned"))?;
    install::install(workspace, pin, &prefix, &features.split(',').collect::<Vec<_>>())?;

    println!("compiling llama.cpp and the program: minutes, if that was not done before");
    let mut build = workspace.cargo(&workspace.root.join(folder));
    build.args(["build", "--target-dir"]).arg(target);
    // Each crate has its own variable.
    build.env("GGML_SYS_GGML", &pin.ggml).env("GGML_SYS_PREFIX", &prefix).env("CMAKE_PREFIX_PATH", &prefix);
    prefer_ninja(&mut build);
    change(&mut build);
    check(&mut build)
}

/// Checks that the program fails if there are two copies of ggml; otherwise its check would prove nothing.
fn notices_a_second_copy(program: &Path, prefix: &Path, folder: &Path) -> Result<()> {
    let second = folder.join("libggml-base-second.so");
    fs::copy(prefix.join("lib/libggml-base.so"), &second).context("cannot copy the library")?;
    let output = Command::new(program).arg(&second).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("copies=2"), "a second copy is not noticed: {said}");
    Ok(())
}
