//! `cargo xtask cuda-check`: compiles ggml's CUDA backend as `ggml-sys`'s build script would, without a GPU or an
//! installed CUDA.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::cuda_toolkit;
use crate::sys_plan;
use crate::workspace::{Workspace, check};

/// The files of `ggml-cuda/` that `--core` compiles: the backend itself, and kernels that take seconds. The others are
/// mostly instances of the same templates, half a minute each.
const CORE: &[&str] = &[
    "acc",
    "arange",
    "clamp",
    "concat",
    "conv2d",
    "convert",
    "cpy",
    "cross-entropy-loss",
    "diagmask",
    "fill",
    "getrows",
    "ggml-cuda",
    "im2col",
    "mmid",
    "mmq",
    "norm",
    "pad",
    "pool2d",
    "quantize",
    "rope",
    "scale",
    "set-rows",
    "softmax",
    "sumrows",
    "unary",
    "upscale",
];

#[derive(Debug, clap::Args)]
pub(crate) struct CudaCheckArguments {
    /// Compile the backend itself and kernels that compile fast, a minute or two [the default]
    #[arg(long, conflicts_with = "all")]
    core: bool,

    /// Compile all files and link the backend's library, half an hour on two cores
    #[arg(long)]
    all: bool,

    /// The GPUs to compile for, as cmake names them
    #[arg(long, value_name = "NUMBERS", default_value = "90")]
    arch: String,

    /// The folder of a CUDA that is installed [default: `CUDA_PATH`, else what `cargo xtask cuda-toolkit` fetches]
    #[arg(long, value_name = "FOLDER")]
    toolkit: Option<PathBuf>,

    /// Forget what was compiled before
    #[arg(long)]
    again: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &CudaCheckArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let named = arguments.toolkit.clone().or_else(|| std::env::var_os("CUDA_PATH").map(PathBuf::from));
    let toolkit = match named {
        Some(folder) => folder.canonicalize().with_context(|| format!("there is no {}", folder.display()))?,
        None => cuda_toolkit::ensure(&cuda_toolkit::usual(&workspace), "python3")?,
    };
    let source = workspace.sources(&workspace.pin()?)?.canonicalize()?;
    let folder = workspace.root.join("target").join("cuda-check");
    if arguments.again && folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    configure(&workspace, &source, &toolkit, &folder, &arguments.arch)?;
    let files = objects(&folder)?;
    let chosen = if arguments.all { files.clone() } else { core(&files)? };
    println!("compiling {} of {} files for the architecture {}", chosen.len(), files.len(), arguments.arch);
    let start = Instant::now();
    let mut build = Command::new("cmake");
    build.arg("--build").arg(&folder).arg("--target");
    if arguments.all {
        build.arg("ggml-cuda");
    } else {
        build.args(&chosen);
    }
    check(&mut build)?;
    for object in &chosen {
        let path = folder.join(object);
        ensure!(path.metadata().is_ok_and(|m| m.len() > 0), "{} was not made", path.display());
    }
    println!(
        "cuda-check: files={} compiled={} linked={} arch={} minutes={}",
        files.len(),
        chosen.len(),
        if arguments.all { "yes" } else { "no" },
        arguments.arch,
        start.elapsed().as_secs().div_ceil(60)
    );
    Ok(())
}

/// Configures ggml with the build script's defines for the features `cuda` and `dynamic-backends`.
fn configure(workspace: &Workspace, source: &Path, toolkit: &Path, folder: &Path, arch: &str) -> Result<()> {
    let toolkit = toolkit.display().to_string();
    let more = [("CUDA_PATH", toolkit.as_str()), ("GGML_SYS_CUDA_ARCHITECTURES", arch)];
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(workspace.root.join("ggml-sys/cmake")).arg("-B").arg(folder).args(["-G", "Ninja"]);
    cmake.arg(format!("-DGGML_SYS_SOURCE={}", source.display())).arg("-DCMAKE_POSITION_INDEPENDENT_CODE=ON");
    for (name, value) in sys_plan::defines(workspace, &["cuda", "dynamic-backends"], &more, folder)? {
        cmake.arg(format!("-D{name}={value}"));
    }
    check(&mut cmake).context("cmake could not configure: it needs cmake and ninja, which ./setup installs")
}

/// The object files of the backend, as ninja names them.
fn objects(folder: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("ninja").arg("-C").arg(folder).args(["-t", "targets", "all"]).output();
    let output = output.context("cannot run ninja")?;
    ensure!(output.status.success(), "ninja can't list what it is to make: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name);
    let found: BTreeSet<_> = names.filter(|name| name.ends_with(".cu.o")).map(str::to_owned).collect();
    ensure!(!found.is_empty(), "there are no CUDA files among what ninja is to make");
    Ok(found)
}

/// The object files of [`CORE`].
fn core(files: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let find = |name: &&str| {
        let end = format!("/{name}.cu.o");
        let found = files.iter().find(|file| file.ends_with(&end) && !file.contains("template-instances"));
        found
            .cloned()
            .with_context(|| format!("ggml-cuda/{name}.cu is not there any more: mend the list of core files"))
    };
    CORE.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_core_file_is_an_error() {
        let mut files: BTreeSet<_> = CORE.iter().map(|name| format!("x/ggml-cuda.dir/{name}.cu.o")).collect();
        files.insert("x/ggml-cuda.dir/template-instances/other.cu.o".to_owned());
        assert_eq!(core(&files).unwrap().len(), CORE.len());
        files.remove("x/ggml-cuda.dir/norm.cu.o");
        files.insert("x/ggml-cuda.dir/template-instances/norm.cu.o".to_owned());
        files.insert("x/ggml-cuda.dir/other-norm.cu.o".to_owned());
        let text = core(&files).unwrap_err().to_string();
        assert!(text.contains("norm.cu is not there any more"), "{text}");
    }

    #[test]
    fn core_files_are_unique_and_exist() {
        let workspace = Workspace::find().unwrap();
        let folder = workspace.vendor().join(workspace.pin().unwrap().folder()).join("src/ggml-cuda");
        assert!(CORE.is_sorted_by(|a, b| a < b), "in order, each once");
        if folder.is_dir() {
            for name in CORE {
                assert!(folder.join(format!("{name}.cu")).is_file(), "{name}.cu");
            }
        }
    }
}
