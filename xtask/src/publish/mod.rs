//! `cargo xtask publish-check`: packages the crates of a fresh clone as `cargo publish` would, and builds a crate of
//! somebody else against the packages alone, without a network.

mod manifests;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::fetch;
use crate::offline::isolation::Isolation;
use crate::offline::packages;
use crate::workspace::{Workspace, check, clean};

const WRAPPER: &str = include_str!("../../publish/wrapper.toml");
const WRAPPER_CODE: &str = include_str!("../../publish/wrapper.rs");

/// What every package has, beside its code.
const FILES: &[&str] = &["Cargo.toml", "Cargo.lock", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let folder = workspace.root.join("target/publish");
    let build = folder.join("build");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path != build {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    let clone = folder.join("clone");
    check(Command::new("git").args(["clone", "--quiet"]).arg(&workspace.root).arg(&clone))?;
    println!("publish-check: of the last commit; what is not committed is not in it");

    let output = workspace.cargo(&clone).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    manifests::check(&output.stdout, packages::CRATES)?;

    refused_without_ggml(&workspace, &clone)?;
    for pin in workspace.pins()?.all {
        let vendor = clone.join("vendor");
        let tree = workspace.sources(&pin)?;
        fetch::tree::copy(&tree, &vendor.join(pin.folder())).map_err(anyhow::Error::msg)?;
    }
    let registry = folder.join("registry");
    let wrapper = folder.join("wrapper");
    write_wrapper(&wrapper, &|_, path| format!("path = \"{}\"", clone.join(path).display()))?;
    fs::copy(clone.join("Cargo.lock"), wrapper.join("Cargo.lock"))?;
    let output = workspace.cargo(&wrapper).args(["vendor", "--quiet"]).arg(&registry).output()?;
    ensure!(output.status.success(), "`cargo vendor` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let packaged = package(&workspace, &clone, &folder, &registry)?;
    downstream(&workspace, &wrapper, &registry, &build)?;
    println!("publish-check: crates={} packaged={packaged} downstream=ok", packages::CRATES.len());
    Ok(())
}

/// Without ggml's sources no package is made of the crate that carries them.
fn refused_without_ggml(workspace: &Workspace, clone: &Path) -> Result<()> {
    let mut command = workspace.cargo(clone);
    let output = command.args(["package", "--no-verify", "--package", "libggml-sys"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("vendor/ggml-") && said.contains("does not appear to exist"),
        "`cargo package -p libggml-sys` should refuse to leave ggml out; it said:\n{said}"
    );
    Ok(())
}

/// Packages the crates, checks what is in them, and puts them into a registry. Returns their number.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
fn package(workspace: &Workspace, clone: &Path, folder: &Path, registry: &Path) -> Result<usize> {
    let target = folder.join("packages");
    let mut command = workspace.cargo(clone);
    command.args(["package", "--no-verify", "--quiet"]).arg("--target-dir").arg(&target);
    // git ignores the sources that were fetched, so cargo calls the clone changed.
    command.arg("--allow-dirty").env("CARGO_NET_OFFLINE", "true");
    for name in packages::CRATES {
        command.args(["--package", name]);
    }
    check(&mut command)?;
    for name in packages::CRATES {
        let file = packages::find(&target.join("package"), name)?;
        println!("publish-check: {name}: {} bytes", packages::size(&file)?);
        let unpacked = packages::unpack(&file, registry)?;
        for part in FILES {
            ensure!(unpacked.join(part).is_file(), "the package of {name} has no {part}");
        }
        // cargo asks a folder of packages for their checksums; those of the files may be left out.
        fs::write(unpacked.join(".cargo-checksum.json"), "{\"files\":{},\"package\":null}")?;
        if *name == "libggml-sys" {
            for pin in workspace.pins()?.all {
                let tree = unpacked.join("vendor").join(pin.folder());
                fetch::tree::verify(&tree, &pin.tree_sha256).map_err(anyhow::Error::msg)?;
            }
        }
    }
    Ok(packages::CRATES.len())
}

/// Writes the crate of somebody else. `way` says how it depends on a package, whose folder in the repository it gets.
fn write_wrapper(wrapper: &Path, way: &dyn Fn(&str, &str) -> String) -> Result<()> {
    let mut manifest = format!("{WRAPPER}[dependencies]\n");
    for (library, name, path) in
        [("ggml", "libggml", ""), ("ggml-draw", "ggml-draw", "ggml-draw"), ("ggml-gguf", "ggml-gguf", "ggml-gguf")]
    {
        let features = if name == "libggml" { ", default-features = false" } else { "" };
        writeln!(manifest, "{library} = {{ package = \"{name}\", {}{features} }}", way(name, path))?;
    }
    fs::create_dir_all(wrapper.join("src"))?;
    fs::write(wrapper.join("Cargo.toml"), manifest)?;
    fs::write(wrapper.join("src/lib.rs"), WRAPPER_CODE)?;
    Ok(())
}

/// Builds, tests and packages the crate of somebody else against the packages.
fn downstream(workspace: &Workspace, wrapper: &Path, registry: &Path, build: &Path) -> Result<()> {
    write_wrapper(wrapper, &|_, _| "version = \"0.1\"".to_owned())?;
    fs::remove_file(wrapper.join("Cargo.lock"))?;
    let config = wrapper.join(".cargo");
    fs::create_dir_all(&config)?;
    let registry = registry.display();
    let sources = format!(
        "[source.crates-io]\nreplace-with = \"packages\"\n\n[source.packages]\ndirectory = {:?}\n",
        registry.to_string()
    );
    fs::write(config.join("config.toml"), sources)?;
    let isolation = Isolation::find();
    let home: PathBuf = wrapper.join("home");
    let cargo = |arguments: &[&str], declarations: bool| {
        let mut command = isolation.command(workspace.cargo_program());
        command.args(arguments).current_dir(wrapper).env("CARGO_HOME", &home);
        command.env("CARGO_TARGET_DIR", build).env("GGML_SYS_BUILD_TYPE", "Debug");
        clean(&mut command);
        if declarations {
            command.env("DOCS_RS", "1");
        } else {
            command.env_remove("DOCS_RS");
        }
        check(&mut command)
    };
    // Declarations are enough for these, so no C is compiled.
    cargo(&["check", "--quiet"], true)?;
    cargo(&["check", "--quiet", "--features", "vulkan"], true)?;
    cargo(&["test", "--quiet", "--features", "rpc"], false)?;
    cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"], true)
}
