//! Fetches a package through cargo, so that the user's mirrors, proxies, credentials, source replacement and offline
//! mode apply.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to call cargo.
#[derive(Debug, Clone)]
pub struct Cargo {
    /// The program: cargo sets the variable `CARGO` for build scripts and for programs it runs.
    pub program: OsString,
    /// The working directory: cargo searches for its configuration from there upwards.
    pub directory: PathBuf,
    /// Whether cargo must not use the network.
    pub offline: bool,
}

/// A package on crates.io.
#[derive(Debug, Clone, Copy)]
pub struct Package<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// SHA-256 of its `.crate` file, if known; cargo refuses any other.
    pub sha256: Option<&'a str>,
}

/// An unpacked package and its checksum.
#[derive(Debug)]
pub struct Unpacked {
    pub folder: PathBuf,
    pub sha256: String,
}

/// Variables that cargo sets for build scripts and that would change the behaviour of the inner cargo.
const NOT_INHERITED: &[&str] = &[
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
];

impl Cargo {
    /// Unpacks a package; `scratch` is a working folder.
    ///
    /// # Errors
    ///
    /// cargo's output.
    pub fn unpack(&self, package: Package<'_>, scratch: &Path) -> Result<Unpacked, String> {
        let manifest =
            write_project(package, scratch).map_err(|e| format!("cannot write to {}: {e}", scratch.display()))?;
        // Tries offline first: if the package is in cargo's cache, that is instant and uses no network.
        let folder = match self.locate(package, &manifest, true) {
            Err(_) if !self.offline => self.locate(package, &manifest, false),
            result => result,
        }?;
        let lock = scratch.join("Cargo.lock");
        let text = fs::read_to_string(&lock).map_err(|e| format!("cannot read {}: {e}", lock.display()))?;
        let sha256 = locked_checksum(package, &text).ok_or_else(|| format!("no checksum in {}", lock.display()))?;
        Ok(Unpacked { folder, sha256 })
    }

    fn locate(&self, package: Package<'_>, manifest: &Path, offline: bool) -> Result<PathBuf, String> {
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
        let found = manifest_path(package, &output.stdout).and_then(|m| m.parent().map(Path::to_owned));
        found.ok_or_else(|| format!("`cargo metadata` does not list {} {}", package.name, package.version))
    }
}

fn manifest_path(package: Package<'_>, metadata: &[u8]) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_slice(metadata).ok()?;
    let package = metadata.get("packages")?.as_array()?.iter().find(|p| {
        let is = |key: &str, value: &str| p.get(key).and_then(|v| v.as_str()) == Some(value);
        is("name", package.name) && is("version", package.version)
    })?;
    Some(PathBuf::from(package.get("manifest_path")?.as_str()?))
}

fn locked_checksum(package: Package<'_>, lock: &str) -> Option<String> {
    let lock: toml::Table = lock.parse().ok()?;
    let package = lock.get("package")?.as_array()?.iter().find(|p| {
        let is = |key: &str, value: &str| p.get(key).and_then(|v| v.as_str()) == Some(value);
        is("name", package.name) && is("version", package.version)
    })?;
    package.get("checksum")?.as_str().map(str::to_owned)
}

/// Writes a project that depends on the package alone. A known checksum goes into its lock file: cargo compares it with
/// the registry's, and that with the download.
fn write_project(package: Package<'_>, scratch: &Path) -> std::io::Result<PathBuf> {
    let Package { name, version, sha256 } = package;
    fs::create_dir_all(scratch)?;
    let manifest = scratch.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
             [lib]\npath = \"lib.rs\"\n\n[dependencies]\n{name} = \"={version}\"\n\n[workspace]\n"
        ),
    )?;
    fs::write(scratch.join("lib.rs"), "")?;
    if let Some(sha256) = sha256 {
        fs::write(
            scratch.join("Cargo.lock"),
            format!(
                "version = 4\n\n[[package]]\nname = \"fetch\"\nversion = \"0.0.0\"\ndependencies = [\n \"{name}\",\n]\n\n\
                 [[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\
                 source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{sha256}\"\n"
            ),
        )?;
    }
    Ok(manifest)
}
