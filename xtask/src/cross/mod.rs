//! `cargo xtask cross`: the crates for other targets and with the oldest Rust. All are type-checked; for some, ggml is
//! compiled and programs run: `build.rs`.

mod build;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{Workspace, check};

/// The targets, each with its special property, and what is done besides checking types.
const TARGETS: &[(&str, &str, Option<build::Build>)] = &[
    ("aarch64", "aarch64-unknown-linux-gnu", Some(build::aarch64)), // characters without a sign
    ("windows-gnu", "x86_64-pc-windows-gnu", Some(build::windows)),
    ("musl", "x86_64-unknown-linux-musl", None), // musl-tools has no C++
    ("msvc", "x86_64-pc-windows-msvc", None),    // enums with a sign, a `long` of 32 bits
    ("macos", "aarch64-apple-darwin", None),
    ("android", "aarch64-linux-android", None),
];

/// The name of the check with the oldest Rust, beside those of [`TARGETS`].
const RUST: &str = "rust";

/// The features whose headers need no SDK.
const FEATURES: &str = "rpc,blas,vulkan";

/// Minimal replacements of the C library headers that ggml's headers include.
const HEADERS: &[(&str, &str)] = &[
    ("stddef.h", "typedef __SIZE_TYPE__ size_t;\ntypedef __PTRDIFF_TYPE__ ptrdiff_t;\n#define NULL ((void *) 0)\n"),
    (
        "stdint.h",
        "typedef __INT8_TYPE__ int8_t;\ntypedef __INT16_TYPE__ int16_t;\ntypedef __INT32_TYPE__ int32_t;\n\
         typedef __INT64_TYPE__ int64_t;\ntypedef __UINT8_TYPE__ uint8_t;\ntypedef __UINT16_TYPE__ uint16_t;\n\
         typedef __UINT32_TYPE__ uint32_t;\ntypedef __UINT64_TYPE__ uint64_t;\n",
    ),
    ("stdbool.h", "#define bool _Bool\n#define true 1\n#define false 0\n"),
    ("stdio.h", "typedef struct FILE FILE;\n"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct CrossArguments {
    /// Only these: aarch64, windows-gnu, musl, msvc, macos, android, rust
    #[arg(value_name = "NAME")]
    only: Vec<String>,
    /// Check types, and compile no C; targets and the Rust that can't be installed are left out
    #[arg(long)]
    types: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &CrossArguments) -> Result<()> {
    let known = |name: &String| name == RUST || TARGETS.iter().any(|(known, ..)| name == known);
    if let Some(name) = arguments.only.iter().find(|name| !known(name)) {
        bail!("no target is called {name} here: see `cargo xtask cross --help`");
    }
    let chosen = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let targets: Vec<_> = TARGETS.iter().filter(|(name, ..)| chosen(name)).collect();
    let workspace = Workspace::find()?;
    let folder = workspace.root.join("target/cross");
    let headers = folder.join("headers");
    fs::create_dir_all(&headers)?;
    for (name, text) in HEADERS {
        fs::write(headers.join(name), format!("#pragma once\n{text}"))?;
    }
    let mut words = Vec::new();
    for (name, target, build) in targets {
        if !had(|| libraries(target), &["target", "add", target], arguments)? {
            words.push(format!("{name}=UNCHECKED"));
            continue;
        }
        let mut command = workspace.cargo(&workspace.root);
        command.args(types(&folder)).args(["--target", target]);
        command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-nostdinc -isystem \"{}\"", headers.display()));
        check(command.env("DOCS_RS", "1"))?;
        let word = match build.filter(|_| !arguments.types) {
            Some(build) => build(&workspace, &folder, target).with_context(|| format!("{name} ({target})"))?,
            None => "checked",
        };
        words.push(format!("{name}={word}"));
    }
    if chosen(RUST) {
        let oldest = oldest_rust(&fs::read_to_string(workspace.root.join("Cargo.toml"))?)?;
        let there = || rust(&oldest).args(["cargo", "--version"]).output().is_ok_and(|output| output.status.success());
        let had = had(there, &["toolchain", "install", &oldest, "--profile", "minimal"], arguments)?;
        if had {
            let mut command = rust(&oldest);
            // This process's own cargo would otherwise pass on its tools.
            for name in ["CARGO", "RUSTC", "RUSTDOC"] {
                command.env_remove(name);
            }
            check(command.arg("cargo").args(types(&folder)).current_dir(&workspace.root).env("DOCS_RS", "1"))?;
        }
        words.push(format!("rust-{oldest}={}", if had { "checked" } else { "UNCHECKED" }));
    }
    if chosen("musl") && !arguments.types {
        println!("musl: Debian's musl-tools has no C++ compiler, so that the types are all that is checked");
    }
    println!("cross: {}", words.join(" "));
    Ok(())
}

/// Whether something is there, perhaps as rustup could install it.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
fn had(there: impl Fn() -> bool, install: &[&str], arguments: &CrossArguments) -> Result<bool> {
    if !there() {
        println!("running: rustup {}", install.join(" "));
        // What counts is whether it is there then.
        let _status = Command::new("rustup").args(install).status();
    }
    let had = there();
    ensure!(had || arguments.types, "`rustup {}` failed", install.join(" "));
    Ok(had)
}

/// Whether Rust's libraries for a target are installed.
fn libraries(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// cargo's arguments to check the two published crates.
fn types(folder: &Path) -> Vec<OsString> {
    let mut arguments: Vec<_> =
        ["check", "--quiet", "--locked", "--package", "libggml", "--lib", "--features", FEATURES]
            .map(OsString::from)
            .into();
    arguments.extend(["--target-dir".into(), folder.into()]);
    arguments
}

/// The toolchain name for `rust-version`: its first two numbers and a 0.
fn oldest_rust(manifest: &str) -> Result<String> {
    let manifest: toml::Table = manifest.parse()?;
    let version = manifest.get("workspace").and_then(|w| w.get("package")?.get("rust-version")?.as_str());
    Ok(format!("{}.0", version.context("the workspace has no `rust-version`")?))
}

fn rust(toolchain: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rust_is_the_manifests() {
        let oldest = oldest_rust(include_str!("../../../Cargo.toml")).unwrap();
        let msrv = format!("msrv = \"{}\"", oldest.strip_suffix(".0").unwrap());
        assert!(include_str!("../../../clippy.toml").contains(&msrv), "clippy looks for what is newer: {msrv}");
        assert!(oldest_rust("[package]\nrust-version = \"1.0\"").is_err());
    }
}
