//! The repository's folders, and how to run cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::fetch;
use crate::fetch::cargo::Cargo;
use crate::fetch::pin::{Pin, Pins};

/// The repository, and the cargo that runs this program.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    cargo: OsString,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?.to_owned();
        Ok(Self { root, cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()) })
    }

    pub(crate) fn vendor(&self) -> PathBuf {
        self.root.join("vendor")
    }

    pub(crate) fn pins(&self) -> Result<Pins> {
        Pins::read(&self.vendor().join("ggml.toml")).map_err(anyhow::Error::msg)
    }

    /// The version that the build takes.
    pub(crate) fn pin(&self) -> Result<Pin> {
        let chosen = std::env::var("GGML_SYS_GGML").ok().filter(|value| !value.is_empty());
        self.pins()?.choose(chosen.as_deref()).cloned().map_err(anyhow::Error::msg)
    }

    /// The pins of these versions; all without any.
    pub(crate) fn chosen_pins(&self, versions: &[String]) -> Result<Vec<Pin>> {
        let pins = self.pins()?;
        if versions.is_empty() {
            return Ok(pins.all);
        }
        versions.iter().map(|version| pins.choose(Some(version)).cloned().map_err(anyhow::Error::msg)).collect()
    }

    /// The repository's files whose names match, by their paths in it.
    pub(crate) fn files(&self, pattern: &str) -> Result<Vec<String>> {
        let output = Command::new("git").args(["ls-files", "-z", pattern]).current_dir(&self.root).output()?;
        ensure!(output.status.success(), "git does not list the repository's files");
        let all = String::from_utf8(output.stdout)?;
        Ok(all.split_terminator('\0').filter(|file| self.root.join(file).is_file()).map(str::to_owned).collect())
    }

    /// How the fetch module calls cargo.
    pub(crate) fn fetcher(&self) -> Cargo {
        Cargo { program: self.cargo.clone(), directory: self.root.clone(), offline: false }
    }

    /// The pinned sources, fetched if missing.
    pub(crate) fn sources(&self, pin: &Pin) -> Result<PathBuf> {
        let vendor = self.vendor();
        fetch::ensure(&vendor, &vendor, pin, &self.fetcher()).map_err(anyhow::Error::msg)
    }

    /// cargo in a folder, without the variables that cargo set for this program.
    pub(crate) fn cargo(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(folder);
        clean(&mut command);
        command
    }

    pub(crate) fn cargo_program(&self) -> &Path {
        Path::new(&self.cargo)
    }
}

/// Removes the variables that cargo set for this program.
pub(crate) fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let own = name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"));
        if own {
            command.env_remove(name);
        }
    }
}

/// The triple of this machine.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not say what it runs on")?;
    Ok(host.to_owned())
}

/// Runs a command; a failure is an error.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
