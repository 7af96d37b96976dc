//! Builds ggml: reads the environment, plans, checks the tools, and then acts.

#![allow(unreachable_pub, reason = "`lib.rs` makes a library of most of these modules")]

mod backends;
mod bindings;
mod cmake;
mod compiler;
mod cpu;
mod emit;
mod enums;
mod fetch;
mod find;
mod input;
mod installed;
mod macros;
mod plan;
mod sdk;
mod tools;
mod version;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fetch::cargo::Cargo;
use fetch::pin::{Pin, Pins};
use input::Input;
use installed::{Installed, Wanted};
use plan::{Compile, Linkage, Plan, Source};

#[expect(clippy::print_stdout, reason = "a build script talks to cargo on its standard output")]
fn main() -> ExitCode {
    match build() {
        Ok(lines) => {
            for line in lines {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<Vec<String>, String> {
    let input = Input::from_env();
    let mut plan = plan::plan(&input)?;
    let own_driver = input.generator.is_some() || input.env == "msvc";
    let mut absent = Vec::new();
    if let Some(compile) = &mut plan.compile {
        let (defines, missing) = find::sdks(&input, &compile.sdks);
        compile.defines.extend(defines);
        absent = missing;
    }
    let target = (input.target != input.host).then_some(input.target.as_str());
    let compile = plan.compile.is_some();
    tools::check(&tools::WantedTool { cmake: &input.cmake, compile, generator: own_driver, absent: &absent, target })?;
    if compile && input.os == "windows" && input.env == "gnu" {
        tools::threads(cc::Build::new(), &input.out_dir)?;
    }
    let vendor = vendor_folder(&input);
    let pins = Pins::read(&vendor.join("ggml.toml"))?;
    let pin = pins.choose(input.ggml.as_deref()).map_err(|e| format!("GGML_SYS_GGML: {e}"))?;
    let mut lines: Vec<_> = Input::rerun_lines().collect();
    if plan.compile.as_ref().is_some_and(|c| !matches!(c.linkage, Linkage::Installed))
        && let Some(warning) = plan.suit(&compiler::macros(&input, plan.cpu.native)?)
    {
        lines.push(format!("cargo::warning={warning}"));
    }
    let source = source(&input, &plan, &vendor, pin, &mut lines)?;
    let mut origin = match &plan.source {
        Source::Vendored => pin.origin(),
        Source::Folder(_) => "GGML_SYS_SOURCE_DIR".to_owned(),
    };
    let include = source.join("include");
    let version = fetch::tree::ggml_version(&source)?;
    if let (Source::Folder(folder), true) = (&plan.source, plan.compile.is_some()) {
        let all = pins.all.iter().map(|pin| pin.ggml.as_str());
        let accepted: Vec<_> = all.filter(|ggml| input.ggml.as_deref().is_none_or(|wanted| wanted == *ggml)).collect();
        version::check(folder, &version, &accepted)?;
    }
    bindings::generate(&input, &plan, &include)?;
    let mut root = cmake::folder(&input, &source);
    let (mut lib, mut headers) = (root.join("lib"), root.join("include"));
    if let Some(compile) = &plan.compile {
        let installed = compile.linkage == Linkage::Installed;
        let found = installed.then(|| find_installed(&input, &plan, compile, &version, &include)).transpose()?;
        cmake::shim(&input, compile, &include)?;
        if let Some(found) = found {
            lines.extend(found.files.iter().map(|file| rerun(file)));
            lines.extend(emit::rpath(&input, compile, &found.lib));
            (root, lib, headers, origin) = (found.root, found.lib, found.include, found.commit);
        } else {
            cmake::ggml(&input, &plan, &source, &root, &origin)?;
            remove_unusable(&root.join(plan::MODULES), &compile.unusable)?;
        }
        lines.extend(emit::link(&lib, compile, compiler::openmp()));
    }
    let facts = emit::Facts { root: &root, lib: &lib, include: &headers, version: &version, origin: &origin };
    let config = input.out_dir.join("config.rs");
    std::fs::write(&config, emit::config(&plan, &facts))
        .map_err(|e| format!("cannot write {}: {e}", config.display()))?;
    lines.extend(emit::metadata(&plan, &facts));
    for path in ["shim", "cmake"] {
        lines.push(rerun(&input.manifest_dir.join(path)));
    }
    Ok(lines)
}

/// Finds the installed ggml.
fn find_installed(
    input: &Input,
    plan: &Plan,
    compile: &Compile,
    version: &str,
    include: &Path,
) -> Result<Installed, String> {
    let wanted = Wanted { version, libraries: &compile.libraries, headers: &plan.headers, include };
    installed::find(input, wanted, installed::pkg_config)
}

/// The folder of the sources, and the rerun lines for it.
fn source(input: &Input, plan: &Plan, vendor: &Path, pin: &Pin, lines: &mut Vec<String>) -> Result<PathBuf, String> {
    if let Source::Folder(folder) = &plan.source {
        if !folder.join("CMakeLists.txt").is_file() || !folder.join("include/ggml.h").is_file() {
            return Err(format!(
                "GGML_SYS_SOURCE_DIR={}: expected a folder of ggml's, with CMakeLists.txt and include/ggml.h",
                folder.display()
            ));
        }
        lines.extend(watched(folder));
        return Ok(folder.clone());
    }
    let tree = fetch::ensure(vendor, &input.out_dir, pin, &cargo(input))?;
    lines.push(rerun(&vendor.join("ggml.toml")));
    lines.extend(watched(&tree));
    Ok(tree)
}

/// Removes the backend libraries whose file names start with one of `names`.
fn remove_unusable(folder: &Path, names: &[&str]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let failed = |e: std::io::Error| format!("cannot look through {}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if names.iter().any(|unusable| name.starts_with(unusable)) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// The paths of a tree that are compiled. The build never writes there.
fn watched(tree: &Path) -> [String; 4] {
    ["CMakeLists.txt", "cmake", "include", "src"].map(|part| rerun(&tree.join(part)))
}

/// How to call cargo. It should use the configuration of the project that is built: that is above this crate's folder,
/// except for a git dependency, which is checked out in cargo's home; then `OUT_DIR` is below the project.
fn cargo(input: &Input) -> Cargo {
    let cached = input.cargo_home.as_ref().is_some_and(|home| input.manifest_dir.starts_with(home));
    let directory = if cached { &input.out_dir } else { &input.manifest_dir };
    Cargo { program: input.cargo.clone().into(), directory: directory.clone(), offline: input.offline }
}

/// `vendor/` of this crate: a link to the repository's, or a folder in the published package. If links are not checked
/// out, as on Windows, the repository's own folder.
fn vendor_folder(input: &Input) -> PathBuf {
    let linked = input.manifest_dir.join("vendor");
    if linked.is_dir() { linked } else { input.manifest_dir.join("../vendor") }
}

fn rerun(path: &Path) -> String {
    format!("cargo::rerun-if-changed={}", path.display())
}
