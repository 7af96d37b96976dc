//! `cargo xtask package`: checks the published crates as a user gets them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::fetch;
use crate::workspace::{Workspace, check};

/// The published crates, dependencies first.
const CRATES: &[&str] = &["ggml-sys", "ggml"];

/// crates.io's size limit for packages.
const LIMIT: u64 = 10 << 20;

/// A program that proves that the pinned ggml is linked.
const PROGRAM: &str = r#"//! Links both packaged crates.

use ggml as _;

#[test]
fn packaged_ggml_reports_its_version() {
    // SAFETY: no preconditions; returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(ggml_sys::ggml_version()) };
    assert_eq!(version.to_str(), Ok(ggml_sys::VERSION));
    assert!(ggml_sys::BACKENDS.contains(&"cpu"));
}
"#;

#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let pin = workspace.pin()?;
    workspace.sources(&pin)?;
    let elsewhere = tempfile::tempdir()?;
    let target = elsewhere.path().join("target");

    let mut command = workspace.cargo(&workspace.root);
    // The fetched sources are not committed, so the tree is dirty; they were verified above.
    command.args(["package", "--no-verify", "--allow-dirty", "--quiet", "--target-dir"]).arg(&target);
    for name in CRATES {
        command.args(["--package", name]);
    }
    check(&mut command)?;

    let mut folders = Vec::new();
    for name in CRATES {
        let package = find(&target.join("package"), name)?;
        let size = fs::metadata(&package)?.len();
        println!("{}: {size} bytes", package.display());
        ensure!(size <= LIMIT, "crates.io takes packages of at most {LIMIT} bytes");
        folders.push(unpack(&package, elsewhere.path())?);
    }
    let tree = folders.first().context("ggml-sys comes first")?.join("vendor").join(pin.folder());
    fetch::tree::verify(&tree, &pin.tree_sha256).map_err(anyhow::Error::msg)?;

    let user = elsewhere.path().join("user");
    write_user(&user, &folders)?;
    let mut command = workspace.cargo(&user);
    // The folder is outside of the repository, so the repository's configuration has no effect there. The lock file
    // pins the versions that cargo has cached.
    fs::copy(workspace.root.join("Cargo.lock"), user.join("Cargo.lock"))?;
    command.args(["test", "--offline", "--target-dir"]).arg(&target);
    check(&mut command)?;
    println!("the packaged crates build and link offline, from the sources that they carry");
    Ok(())
}

/// The `.crate` file of `name`, of any version.
fn find(folder: &Path, name: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let version = stem.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        let is = version.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()));
        if is && path.extension().is_some_and(|e| e == "crate") {
            return Ok(path);
        }
    }
    anyhow::bail!("cargo left no package of {name} in {}", folder.display())
}

fn unpack(package: &Path, into: &Path) -> Result<PathBuf> {
    let file = fs::File::open(package)?;
    tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(into)?;
    Ok(into.join(package.file_stem().context("a package has a name")?))
}

/// A crate that depends on the unpacked crates as on the published ones.
fn write_user(user: &Path, folders: &[PathBuf]) -> Result<()> {
    fs::create_dir_all(user.join("src"))?;
    fs::write(user.join("src/lib.rs"), PROGRAM)?;
    let mut manifest = String::from(
        "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nggml = \"*\"\nggml-sys = \"*\"\n\n[patch.crates-io]\n",
    );
    for (name, folder) in CRATES.iter().zip(folders) {
        writeln!(manifest, "{name} = {{ path = {:?} }}", folder.display().to_string())?;
    }
    fs::write(user.join("Cargo.toml"), manifest)?;
    Ok(())
}
