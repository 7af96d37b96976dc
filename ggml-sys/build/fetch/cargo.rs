//! Asks cargo for a package: so mirrors, proxies, credentials, source replacement and offline use work as its user
//! has set them up.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pin::Pin;

/// How to call cargo.
#[derive(Debug, Clone)]
pub(crate) struct Cargo {
    /// The program: cargo sets the variable `CARGO` for build scripts and for what it runs.
    pub(crate) program: OsString,
    /// Where to run it: cargo looks for its configuration from there upwards.
    pub(crate) directory: PathBuf,
    /// Whether the network is out of bounds.
    pub(crate) offline: bool,
}

/// What cargo sets for a build script that would change how it runs itself.
const NOT_INHERITED: &[&str] = &[
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
];

impl Cargo {
    /// Unpacks the pinned package and says where; `scratch` is a folder to work in.
    ///
    /// # Errors
    ///
    /// What cargo printed.
    pub(crate) fn unpack(&self, pin: &Pin, scratch: &Path) -> Result<PathBuf, String> {
        let manifest =
            write_project(pin, scratch).map_err(|e| format!("cannot write to {}: {e}", scratch.display()))?;
        // Without the network first: where the package lies in cargo's cache, this is instant and asks nobody.
        match self.locate(pin, &manifest, true) {
            Err(_) if !self.offline => self.locate(pin, &manifest, false),
            result => result,
        }
    }

    fn locate(&self, pin: &Pin, manifest: &Path, offline: bool) -> Result<PathBuf, String> {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory).args(["metadata", "--format-version", "1", "--quiet"]);
        command.arg("--manifest-path").arg(manifest);
        if offline {
            command.arg("--offline");
        }
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        let output = command.output().map_err(|e| format!("cannot run {}: {e}", self.program.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let found = manifest_path(pin, &output.stdout).and_then(|m| m.parent().map(Path::to_owned));
        found.ok_or_else(|| format!("`cargo metadata` does not list {} {}", pin.package, pin.version))
    }
}

fn manifest_path(pin: &Pin, metadata: &[u8]) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    let package = metadata.get("packages")?.as_array()?.iter().find(|p| {
        let is = |key: &str, value: &str| p.get(key).and_then(|v| v.as_str()) == Some(value);
        is("name", &pin.package) && is("version", &pin.version)
    })?;
    Some(PathBuf::from(package.get("manifest_path")?.as_str()?))
}

/// A project that depends on the package alone. Its lock file carries the pinned checksum, which cargo compares with the
/// registry's and with what it downloads.
fn write_project(pin: &Pin, scratch: &Path) -> std::io::Result<PathBuf> {
    let Pin { package, version, sha256, .. } = pin;
    fs::create_dir_all(scratch)?;
    let manifest = scratch.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
             [lib]\npath = \"lib.rs\"\n\n[dependencies]\n{package} = \"={version}\"\n\n[workspace]\n"
        ),
    )?;
    fs::write(scratch.join("lib.rs"), "")?;
    fs::write(
        scratch.join("Cargo.lock"),
        format!(
            "version = 4\n\n[[package]]\nname = \"fetch\"\nversion = \"0.0.0\"\ndependencies = [\n \"{package}\",\n]\n\n\
             [[package]]\nname = \"{package}\"\nversion = \"{version}\"\n\
             source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{sha256}\"\n"
        ),
    )?;
    Ok(manifest)
}
