//! `cargo xtask cross`: type-checks the crates for other targets and with the minimum Rust version. Compiles no C.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, check};

/// The targets, each with its special property.
const TARGETS: &[(&str, &str)] = &[
    ("aarch64", "aarch64-unknown-linux-gnu"), // characters without a sign
    ("musl", "x86_64-unknown-linux-musl"),
    ("windows-msvc", "x86_64-pc-windows-msvc"), // enums with a sign, a `long` of 32 bits
    ("windows-gnu", "x86_64-pc-windows-gnu"),
    ("macos", "aarch64-apple-darwin"),
    ("android", "aarch64-linux-android"),
];

/// The features whose headers need no SDK.
const FEATURES: &str = "rpc,blas,vulkan,tools";

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

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let folder = workspace.root.join("target/cross");
    let oldest = oldest_rust(&fs::read_to_string(workspace.root.join("Cargo.toml"))?)?;
    tools(&oldest)?;
    let headers = folder.join("headers");
    fs::create_dir_all(&headers)?;
    for (name, text) in HEADERS {
        fs::write(headers.join(name), format!("#pragma once\n{text}"))?;
    }
    for (_, target) in TARGETS {
        let mut command = workspace.cargo(&workspace.root);
        command.args(types(&folder)).args(["--target", target]);
        command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-nostdinc -isystem \"{}\"", headers.display()));
        check(command.env("DOCS_RS", "1"))?;
    }
    let mut command = rust(&oldest);
    // This process's own cargo would otherwise pass on its tools.
    for name in ["CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(name);
    }
    check(command.arg("cargo").args(types(&folder)).current_dir(&workspace.root).env("DOCS_RS", "1"))?;
    let all: Vec<_> = TARGETS.iter().map(|(name, _)| format!("{name}=checked")).collect();
    println!("cross: {} rust-{oldest}=checked", all.join(" "));
    Ok(())
}

/// cargo's arguments to check the two published crates.
fn types(folder: &Path) -> Vec<OsString> {
    let mut arguments: Vec<_> = ["check", "--quiet", "--locked", "--package", "ggml", "--lib", "--features", FEATURES]
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

/// Checks that all tools are installed before anything runs.
fn tools(oldest: &str) -> Result<()> {
    let there = |target: &str| {
        let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
        output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    let missing: Vec<_> = TARGETS.iter().map(|(_, target)| *target).filter(|target| !there(target)).collect();
    let mut commands = Vec::new();
    if !missing.is_empty() {
        commands.push(format!("rustup target add {}", missing.join(" ")));
    }
    if !rust(oldest).args(["cargo", "--version"]).output().is_ok_and(|output| output.status.success()) {
        commands.push(format!("rustup toolchain install {oldest} --profile minimal"));
    }
    ensure!(commands.is_empty(), "toolchains are missing. To install:\n  {}", commands.join("\n  "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_rust_is_that_of_the_manifest() {
        let oldest = oldest_rust(include_str!("../../Cargo.toml")).unwrap();
        let msrv = format!("msrv = \"{}\"", oldest.strip_suffix(".0").unwrap());
        assert!(include_str!("../../clippy.toml").contains(&msrv), "clippy looks for what is newer: {msrv}");
        assert!(oldest_rust("[package]\nrust-version = \"1.0\"").is_err());
    }
}
