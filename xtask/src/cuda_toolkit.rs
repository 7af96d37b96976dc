//! `cargo xtask cuda-toolkit`: installs CUDA's compiler and libraries from the package index into a folder.
//!
//! They are licensed by NVIDIA and stay in that folder; nothing of them is committed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, check};

/// The packages. The toolkit's version pins those of its parts.
const PACKAGE: &str = "cuda-toolkit[nvcc,cudart,cublas,cccl]==13.0.*";

/// The corresponding output of `nvcc --version`.
const RELEASE: &str = "release 13.0";

/// The toolkit's folder in the packages.
const FOLDER: &str = "nvidia/cu13";

/// Libraries that the packages contain under versioned names only.
const LIBRARIES: &[&str] = &["libcudart.so", "libcublas.so", "libcublasLt.so"];

/// The functions of the driver's library that ggml calls. Only a driver contains it, but the linker needs the names.
const DRIVER: &[&str] = &[
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuGetErrorString",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemGetAllocationGranularity",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
];

#[derive(Debug, clap::Args)]
pub(crate) struct CudaToolkitArguments {
    /// Where it goes [default: target/cuda-toolkit in the repository]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,

    /// The Python whose pip fetches the packages
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &CudaToolkitArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let folder = arguments.into.clone().unwrap_or_else(|| usual(&workspace));
    let toolkit = ensure(&folder, &arguments.python)?;
    println!("CUDA_PATH={}", toolkit.display());
    Ok(())
}

/// The default folder.
pub(crate) fn usual(workspace: &Workspace) -> PathBuf {
    workspace.root.join("target").join("cuda-toolkit")
}

/// Completes the toolkit in `folder`, and returns the value for `CUDA_PATH`.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn ensure(folder: &Path, python: &str) -> Result<PathBuf> {
    ensure!(
        cfg!(target_os = "linux"),
        "the packages' layout is known here for Linux only: install CUDA from https://developer.nvidia.com/cuda-downloads"
    );
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // cmake and nvcc run in another folder.
    let folder = folder.canonicalize()?;
    let toolkit = folder.join(FOLDER);
    if let Err(missing) = verify(&toolkit) {
        println!("{missing:#}: fetching {PACKAGE} (1.1 GB) with pip");
        println!("these packages are NVIDIA's, under NVIDIA's terms: https://docs.nvidia.com/cuda/eula");
        let start = Instant::now();
        fetch(python, &folder)?;
        println!("fetched in {} s", start.elapsed().as_secs());
    }
    for change in complete(&toolkit)? {
        println!("added {change}");
    }
    verify(&toolkit).context("what pip installed is not the toolkit that is wanted")?;
    Ok(toolkit)
}

fn fetch(python: &str, folder: &Path) -> Result<()> {
    let hint = || {
        format!(
            "cannot fetch {PACKAGE}: this takes the network, or a mirror or folder that pip is configured for, and a \
             Python with pip (Debian and Ubuntu: sudo apt-get install python3-pip; or --python)"
        )
    };
    check(Command::new(python).args(["-m", "pip", "--version"])).with_context(hint)?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--upgrade", "--progress-bar", "on", "--target"]).arg(folder).arg(PACKAGE);
    check(&mut pip).with_context(hint)
}

/// Checks that the compiler runs and has the right version.
fn verify(toolkit: &Path) -> Result<()> {
    let nvcc = toolkit.join("bin/nvcc");
    let output = Command::new(&nvcc).arg("--version").output();
    let output = output.with_context(|| format!("there is no {}", nvcc.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text.contains(RELEASE), "{} is not of {RELEASE}", nvcc.display());
    for header in ["cuda_runtime.h", "cublas_v2.h"] {
        let path = toolkit.join("include").join(header);
        ensure!(path.is_file(), "there is no {}", path.display());
    }
    Ok(())
}

/// Adds what the packages lack: library names without versions, and a stub of the driver's library. Returns what was
/// missing.
fn complete(toolkit: &Path) -> Result<Vec<String>> {
    let mut added = Vec::new();
    let lib = toolkit.join("lib");
    for name in LIBRARIES {
        if !lib.join(name).exists() {
            link(&versioned(&lib, name)?, &lib.join(name))?;
            added.push(format!("lib/{name}"));
        }
    }
    if !toolkit.join("lib64").exists() {
        link("lib", &toolkit.join("lib64"))?;
        added.push("lib64".to_owned());
    }
    let stub = lib.join("stubs/libcuda.so");
    if !stub.exists() {
        compile_stub(&stub)?;
        added.push("lib/stubs/libcuda.so".to_owned());
    }
    Ok(added)
}

/// The file called `name` plus a version.
fn versioned(lib: &Path, name: &str) -> Result<String> {
    let start = format!("{name}.");
    let entries = fs::read_dir(lib).with_context(|| format!("cannot list {}", lib.display()))?;
    let mut names: Vec<_> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    names.retain(|n| n.starts_with(&start));
    names.sort();
    names.into_iter().next().with_context(|| format!("{} has no {name}", lib.display()))
}

#[cfg(unix)]
fn link(to: &str, at: &Path) -> Result<()> {
    // A dangling link would be in the way.
    if at.is_symlink() {
        fs::remove_file(at)?;
    }
    std::os::unix::fs::symlink(to, at).with_context(|| format!("cannot make the link {}", at.display()))
}

#[cfg(not(unix))]
fn link(_to: &str, at: &Path) -> Result<()> {
    anyhow::bail!("cannot make the link {}", at.display())
}

/// The source of the driver's stub library, for the linker. It reports that there are no devices.
pub(crate) fn stub() -> String {
    let mut text = String::from("/* Names of libcuda.so.1 for the linker; a driver brings the real one. */\n");
    for name in DRIVER {
        // 100 is CUDA_ERROR_NO_DEVICE; writing to a String cannot fail.
        let _infallible = writeln!(text, "int {name}(void) {{ return 100; }}");
    }
    text
}

fn compile_stub(stub: &Path) -> Result<()> {
    let folder = stub.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    let source = folder.join("libcuda.c");
    fs::write(&source, self::stub())?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut cc = Command::new(&compiler);
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(stub).arg(&source);
    check(&mut cc).context("this takes a C compiler: run ./setup")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn toolkit_completion_adds_missing_files_once() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("lib");
        fs::create_dir(&lib).unwrap();
        let text = format!("{:#}", complete(folder.path()).unwrap_err());
        assert!(text.contains("has no libcudart.so"), "{text}");
        for name in LIBRARIES {
            fs::write(lib.join(format!("{name}.13")), name).unwrap();
        }
        let added = complete(folder.path()).unwrap();
        assert_eq!(
            added,
            ["lib/libcudart.so", "lib/libcublas.so", "lib/libcublasLt.so", "lib64", "lib/stubs/libcuda.so"]
        );
        assert_eq!(fs::read_to_string(folder.path().join("lib64/libcublas.so")).unwrap(), "libcublas.so");
        let stub = fs::read(lib.join("stubs/libcuda.so")).unwrap();
        for name in DRIVER.iter().chain(&["libcuda.so.1"]) {
            assert!(stub.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
        }
        assert_eq!(complete(folder.path()).unwrap(), [""; 0], "nothing is left to add");
    }

    #[test]
    fn missing_toolkit_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{:#}", verify(folder.path()).unwrap_err());
        assert!(text.contains("there is no") && text.contains("nvcc"), "{text}");
        let text = format!("{:#}", fetch("no-such-python", folder.path()).unwrap_err());
        assert!(text.contains("takes the network") && text.contains("python3-pip"), "{text}");
    }
}
