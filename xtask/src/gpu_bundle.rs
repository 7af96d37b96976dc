//! `cargo xtask gpu-bundle`: a folder for a machine with a GPU, nvcc and cmake, but without Rust and network. There,
//! `run.sh` builds ggml's CUDA backend; the device tests and benchmarks, built here, load it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::cuda_toolkit;
use crate::fetch;
use crate::sys_plan;
use crate::workspace::{Workspace, check};

/// The script that runs there; embedded in this program and copied into the bundle.
const SCRIPT: &str = include_str!("gpu_bundle/run.sh");

/// The tests and benchmarks that run on any device, as cargo arguments.
const PROGRAMS: &[(&str, &str)] = &[
    ("--test", "device"),
    ("--test", "sched"),
    ("--test", "decode_loop"),
    ("--test", "meta"),
    ("--test", "abuse"),
    ("--bench", "device"),
];

/// Marks a folder as a bundle that may be replaced.
const MARK: &str = "bundle.json";

/// The sources of the CUDA backend and of the library it uses, in addition to the files in `src`.
const SOURCES: &[&str] =
    &["CMakeLists.txt", "LICENSE", "cmake", "include", "src/ggml-cuda", "src/ggml-cpu/ggml-cpu-impl.h"];

#[derive(Debug, clap::Args)]
pub(crate) struct GpuBundleArguments {
    /// Where it goes [default: target/gpu-bundle in the repository]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,

    /// Run it here, on the CPU, once it is made
    #[arg(long)]
    try_out: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &GpuBundleArguments) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "bundles are for Linux, and are made there");
    let workspace = Workspace::find()?;
    let pin = workspace.pin()?;
    let sources = workspace.sources(&pin)?;
    let bundle = arguments.into.clone().unwrap_or_else(|| workspace.root.join("target").join("gpu-bundle"));
    clear(&bundle)?;
    fs::create_dir_all(bundle.join("bin"))?;
    let version = fetch::tree::ggml_version(&sources).map_err(anyhow::Error::msg)?;
    let about = json!({ "ggml": version, "origin": pin.origin(), "commit": commit(&workspace) });
    fs::write(bundle.join(MARK), about.to_string())?; // first, so that what was left unfinished can be replaced

    let mut libraries = None;
    for (kind, name) in PROGRAMS {
        println!("building {} {name}", kind.trim_start_matches('-'));
        let built = build(&workspace, kind, name)?;
        let file = format!("{}-{name}", kind.trim_start_matches('-'));
        copy(&built.program, &bundle.join("bin").join(file))?;
        libraries = Some(built.libraries);
    }
    let libraries = libraries.context("nothing was built")?;
    copy_libraries(&libraries, &bundle.join("lib"))?;
    copy_sources(&sources, &bundle.join("ggml"))?;
    copy(&workspace.root.join("ggml-sys/cmake/CMakeLists.txt"), &bundle.join("CMakeLists.txt"))?;
    fs::write(bundle.join("cmake.args"), cmake_arguments(&workspace)?)?;
    fs::write(bundle.join("libcuda.c"), cuda_toolkit::stub())?;
    let script = bundle.join("run.sh");
    fs::write(&script, SCRIPT)?;
    check(Command::new("chmod").arg("+x").arg(&script))?;
    println!("gpu-bundle: folder={} bytes={}", bundle.display(), size(&bundle)?);
    println!("there, run: ./run.sh (needs nvcc, cmake, ninja or make, and bash)");
    if arguments.try_out {
        check(Command::new("bash").arg(&script).arg("--cpu"))?;
    }
    Ok(())
}

/// Removes an existing bundle, and nothing else.
fn clear(bundle: &Path) -> Result<()> {
    let empty = fs::read_dir(bundle).map_or(true, |mut entries| entries.next().is_none());
    if empty {
        return Ok(());
    }
    ensure!(bundle.join(MARK).is_file(), "{} is there and is no bundle: choose another folder", bundle.display());
    fs::remove_dir_all(bundle).with_context(|| format!("cannot remove {}", bundle.display()))
}

/// The results of a cargo build.
#[derive(Debug)]
struct Built {
    program: PathBuf,
    /// The folder of the libraries of ggml that `ggml-sys`'s build script installed.
    libraries: PathBuf,
}

/// Builds a test or benchmark with shared ggml libraries, which it loads from its own folder.
fn build(workspace: &Workspace, kind: &str, name: &str) -> Result<Built> {
    let mut cargo = workspace.cargo(&workspace.root);
    cargo.args(["rustc", "--release", "--features", "dynamic-backends", kind, name]);
    cargo.args(["--message-format", "json-render-diagnostics", "--"]);
    cargo.args(["-Clink-arg=-Wl,-rpath,$ORIGIN/../lib", "-Cstrip=symbols"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo could not build {name}: {}", output.status);
    built(&String::from_utf8_lossy(&output.stdout), name)
}

/// Parses cargo's build messages.
fn built(messages: &str, name: &str) -> Result<Built> {
    let (mut program, mut libraries) = (None, None);
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        if text("/target/name") == Some(name) && text("/executable").is_some() {
            program = text("/executable").map(PathBuf::from);
        }
        if text("/package_id").is_some_and(|id| id.contains("#libggml-sys@")) {
            let folders = message.pointer("/linked_paths").and_then(Value::as_array).into_iter().flatten();
            let mut folders = folders.filter_map(|folder| folder.as_str()?.strip_prefix("native="));
            libraries = folders.rfind(|folder| folder.ends_with("/lib")).map(PathBuf::from).or(libraries);
        }
    }
    Ok(Built {
        program: program.with_context(|| format!("cargo built no program {name}"))?,
        libraries: libraries.context("cargo ran no build script of ggml-sys")?,
    })
}

/// Copies ggml's shared libraries, under the names that programs look for, and the loadable backends.
fn copy_libraries(from: &Path, to: &Path) -> Result<()> {
    for name in ["libggml.so.0", "libggml-base.so.0"] {
        copy(&from.join(name), &to.join(name))?;
    }
    let modules = from.join("ggml");
    let mut backends = 0;
    for entry in fs::read_dir(&modules).with_context(|| format!("cannot list {}", modules.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "so") {
            copy(&path, &to.join("backends").join(path.file_name().unwrap_or_default()))?;
            backends += 1;
        }
    }
    ensure!(backends > 0, "there are no backends in {}", modules.display());
    Ok(())
}

/// Copies the sources of the CUDA backend.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    for part in SOURCES {
        for entry in WalkDir::new(from.join(part)) {
            let entry = entry?;
            if entry.file_type().is_file() {
                copy(entry.path(), &to.join(entry.path().strip_prefix(from)?))?;
            }
        }
    }
    // The backend includes headers from there, and its base library is built from the rest.
    for entry in fs::read_dir(from.join("src"))? {
        let path = entry?.path();
        if path.is_file() {
            copy(&path, &to.join(path.strip_prefix(from)?))?;
        }
    }
    Ok(())
}

/// The cmake arguments for that machine: the build script's for the features `cuda` and `dynamic-backends`, except that
/// the CPU backend is built here, and that the GPU is detected there.
fn cmake_arguments(workspace: &Workspace) -> Result<String> {
    let more = [("GGML_SYS_CUDA_ARCHITECTURES", "native")];
    let planned = sys_plan::defines(workspace, &["cuda", "dynamic-backends"], &more, Path::new("/out"))?;
    let mut all: BTreeMap<_, _> = planned.into_iter().collect();
    for name in ["GGML_CPU", "GGML_CPU_ALL_VARIANTS"] {
        all.insert(name.to_owned(), "OFF".to_owned());
    }
    let lines: Vec<_> = all.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    Ok(lines.join("\n") + "\n")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The commit of this repository, if git knows it.
fn commit(workspace: &Workspace) -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&workspace.root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in WalkDir::new(folder) {
        let entry = entry?;
        if entry.file_type().is_file() {
            bytes += entry.metadata()?.len();
        }
    }
    if bytes == 0 {
        bail!("{} is empty", folder.display());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_messages_name_programs_and_libraries() {
        let ran = |package: &str, linked: Value| json!({ "reason": "build-script-executed", "package_id": package, "linked_paths": linked });
        let script = ran("path+file:///x/ggml-sys#libggml-sys@0.1.0", json!(["native=/o", "native=/o/ggml/lib"]));
        let other = ran("path+file:///x/ggml#libggml@0.1.0", json!(["native=/p/lib"]));
        let library = json!({ "reason": "compiler-artifact", "target": { "name": "ggml" }, "executable": null });
        let test =
            json!({ "reason": "compiler-artifact", "target": { "name": "device" }, "executable": "/t/device-1" });
        let all = format!("{script}\nnothing\n{other}\n{library}\n{test}\n");
        let found = built(&all, "device").unwrap();
        assert_eq!((found.program, found.libraries), ("/t/device-1".into(), "/o/ggml/lib".into()));
        assert!(built(&all, "ggml").unwrap_err().to_string().contains("no program ggml"));
        assert!(built(&test.to_string(), "device").unwrap_err().to_string().contains("no build script"));
    }

    #[test]
    fn clear_refuses_folders_of_others() {
        let folder = tempfile::tempdir().unwrap();
        clear(folder.path()).unwrap();
        fs::write(folder.path().join("mine"), "").unwrap();
        assert!(clear(folder.path()).unwrap_err().to_string().contains("no bundle"));
        assert!(folder.path().join("mine").is_file());
        fs::write(folder.path().join(MARK), "").unwrap();
        clear(folder.path()).unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn cmake_arguments_build_only_the_cuda_backend() {
        let text = cmake_arguments(&Workspace::find().unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for line in ["-DGGML_CUDA=ON", "-DGGML_CPU=OFF", "-DGGML_BACKEND_DL=ON", "-DCMAKE_CUDA_ARCHITECTURES=native"] {
            assert!(lines.contains(&line), "{line} in {text}");
        }
        assert!(!text.contains("/out"), "nothing of here: {text}");
    }

    /// A program with the options of Rust's test harness.
    const TEST: &str = r#"#!/usr/bin/env bash
case $1 in
    --list) printf 'good: test\nfamily::bad: test\nhung: test\ndead: test\nidle: test\n' ;;
    good)
        [ -d "$GGML_TEST_BACKENDS" ] || exit 9
        echo "unsupported: $GGML_TEST_DEVICE"
        echo 'unsupported: a "quoted" thing'
        echo 'compared: family=x device=CPU cases=3 unsupported=1'
        echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
        ;;
    family::bad) exit 101 ;;
    hung) sleep 100 ;;
    dead) kill -SEGV $$ ;;
    idle) echo 'test result: ok. 0 passed; 0 failed; 1 ignored' ;;
esac
"#;

    fn program(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        check(Command::new("chmod").arg("+x").arg(path)).unwrap();
    }

    /// A bundle of such programs.
    fn small() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "lib/backends"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join(MARK), "{}").unwrap();
        fs::write(folder.path().join("CMakeLists.txt"), "cmake_minimum_required(VERSION 3.14)\nproject(small NONE)\n")
            .unwrap();
        fs::write(folder.path().join("cmake.args"), "").unwrap();
        program(&folder.path().join("run.sh"), SCRIPT);
        program(&folder.path().join("bin/test-device"), TEST);
        let bench = "#!/usr/bin/env bash\necho noise\necho '{\"name\": \"x\", \"value\": 2.5}'\n";
        program(&folder.path().join("bin/bench-device"), bench);
        folder
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn script_reports_each_test() {
        let folder = small();
        let output = Command::new(folder.path().join("run.sh")).args(["--cpu", "--limit", "2"]).output().unwrap();
        assert!(!output.status.success(), "tests failed: {output:?}");
        let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["passed"], &report["failed"], &report["ignored"]), (&json!(1), &json!(3), &json!(1)));
        let results: Vec<_> =
            report["tests"].as_array().unwrap().iter().map(|t| t["result"].as_str().unwrap()).collect();
        assert_eq!(results, ["passed", "failed", "no end in 2 s", "died: 139", "ignored"]);
        assert_eq!(report["tests"][1]["name"], "family::bad");
        assert_eq!(report["unsupported"], json!(["CPU", "a \"quoted\" thing"]));
        assert_eq!(report["figures"], json!([{ "name": "x", "value": 2.5 }]));
        assert_eq!(report["compared"].as_array().unwrap().len(), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn script_reports_a_missing_gpu() {
        let folder = small();
        // A fake driver tool that answers like one without a GPU.
        let tools = folder.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        for (answer, expected) in [("echo driver is gone; exit 9", "driver is gone"), ("", "lists none")] {
            program(&tools.join("nvidia-smi"), &format!("#!/usr/bin/env bash\n{answer}\n"));
            let output = Command::new(folder.path().join("run.sh")).env("PATH", &path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains("no GPU: ") && text.contains(expected), "{text}");
            assert!(!output.status.success() && !folder.path().join("out/report.json").exists());
        }
    }

    /// Runs the script with fake tools: checks how they are called and what happens to their output.
    #[test]
    #[cfg(target_os = "linux")]
    fn script_builds_the_backend_and_runs_the_tests() {
        let folder = small();
        let tools = folder.path().join("cuda/bin");
        fs::create_dir_all(&tools).unwrap();
        let tool = |name: &str, text: &str| program(&tools.join(name), &format!("#!/usr/bin/env bash\n{text}\n"));
        tool("nvidia-smi", "echo 'NVIDIA \"Test\", 580.1'; echo 'Another, 580.1'");
        tool("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'");
        // The layout of the Python packages.
        fs::create_dir_all(folder.path().join("cuda/lib")).unwrap();
        fs::write(folder.path().join("cuda/lib/libcudart.so.13"), "cudart").unwrap();
        fs::write(folder.path().join("libcuda.c"), cuda_toolkit::stub()).unwrap();
        tool("ninja", "exit 1");
        let made = "mkdir -p \"$2/bin\" && echo module > \"$2/bin/libggml-cuda.so\"";
        tool("cmake", &format!("if [ \"$1\" = --build ]; then {made}; else printf '%s\\n' \"$@\"; fi"));
        fs::write(folder.path().join("cmake.args"), "-DA=1;2\n-DB=x y\n").unwrap();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let script = || {
            let mut script = Command::new(folder.path().join("run.sh"));
            script.env("PATH", &path).env("CUDA_PATH", folder.path().join("cuda"));
            script
        };
        let early = script().arg("--no-build").output().unwrap();
        assert!(String::from_utf8_lossy(&early.stderr).contains("there is no CUDA backend yet"), "{early:?}");
        let built = script().arg("--build-only").output().unwrap();
        assert!(built.status.success(), "{built:?}");
        let asked = fs::read_to_string(folder.path().join("out/configure.log")).unwrap();
        let toolkit = folder.path().join("toolkit");
        assert!(asked.contains(&format!("-DCUDAToolkit_ROOT={}\n", toolkit.display())), "{asked}");
        assert_eq!(fs::read_to_string(toolkit.join("lib64/libcudart.so")).unwrap(), "cudart");
        assert!(toolkit.join("bin/nvcc").is_file() && toolkit.join("lib64/stubs/libcuda.so").is_file());
        assert!(asked.contains("-G\nNinja\n") && asked.ends_with("-DA=1;2\n-DB=x y\n"), "{asked}");
        assert_eq!(fs::read_to_string(folder.path().join("lib/backends/libggml-cuda.so")).unwrap(), "module\n");
        let run = script().args(["--no-build", "--limit", "2"]).output().unwrap();
        assert!(!run.status.success(), "some tests fail: {run:?}");
        let report = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!((&report["gpu"], &report["driver"]), (&json!("NVIDIA \"Test\""), &json!("580.1")));
        assert_eq!((&report["device"], &report["unsupported"][0]), (&json!("CUDA0"), &json!("CUDA0")));
        assert!(report["nvcc"] == "13.0" && report["build_seconds"].as_u64().unwrap() > 0, "{report}");
    }
}
