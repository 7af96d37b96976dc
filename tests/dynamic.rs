//! Backends that are loaded at run time. All in one test, because ggml's registry is global.

#![cfg(feature = "dynamic-backends")]
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{Registry, SchedBuilder};

fn compute() -> Vec<f32> {
    compute_by(Sched::builder())
}

fn compute_by(backends: SchedBuilder) -> Vec<f32> {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.add(x, x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = backends.backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    run.compute().unwrap();
    run.get(y).unwrap()
}

fn modules(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut cpu: Vec<_> = files
        .filter(|p| p.to_str().unwrap().contains("ggml-cpu-") && p.extension().is_some_and(|e| e == "so"))
        .collect();
    cpu.sort();
    cpu
}

/// A logger that keeps what this crate says of loaded backends.
struct Keep(Mutex<Vec<String>>);

static LOGGED: Keep = Keep(Mutex::new(Vec::new()));

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if line.starts_with("backends after loading") {
            self.0.lock().unwrap().push(line);
        }
    }

    fn flush(&self) {}
}

/// A device in Rust that computes nothing.
struct Early;

impl Driver for Early {
    type Buffer = NoBuffer;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("Early0".into(), DeviceType::Accelerator)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        false
    }

    fn stream(&self, _: &str) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl DriverStream<Self> for Early {
    fn compute(&mut self, _: Nodes<'_, Self>) -> Result<(), Failure> {
        Err(Failure::new("it computes nothing"))
    }
}

#[test]
fn backends_load_and_unload() {
    assert!(Registry::all().unwrap().is_empty(), "nothing is linked in");
    let message = "no device type named `Cpu`; there are none before `Registry::load_all`";
    assert_eq!(Device::cpu().unwrap_err().to_string(), message);
    let folder = Path::new(ggml::sys::BACKEND_DIR.unwrap());
    let variants = modules(folder);
    assert!(variants.len() > 5, "one library for each level of processors: {variants:?}");

    // SAFETY: the file does not exist, so nothing is loaded.
    let missing = unsafe { Registry::load(folder.join("libggml-none.so")) };
    assert!(matches!(missing, Err(Error::Null { .. })), "{missing:?}");
    // SAFETY: the file is no backend, so nothing is loaded.
    let other = unsafe { Registry::load(folder.parent().unwrap().join("libggml-base.so")) };
    assert!(matches!(other, Err(Error::Null { .. })), "{other:?}");
    // SAFETY: a path with a NUL is refused, so nothing is loaded.
    let nul = unsafe { Registry::load("a\0b") };
    assert!(matches!(nul, Err(Error::Param { .. })), "{nul:?}");

    // One variant by its file name: the lowest level runs anywhere.
    let lowest = variants.iter().find(|p| p.to_str().unwrap().ends_with("-x64.so"));
    if let Some(lowest) = lowest {
        // SAFETY: the file was built together with this crate.
        let registry = unsafe { Registry::load(lowest) }.unwrap();
        assert_eq!((registry.name(), Registry::all().unwrap().len()), ("CPU".into(), 1));
        let vectors = |registry: Registry| {
            registry.features().unwrap().into_iter().any(|(name, _)| name == "AVX" || name == "AVX2")
        };
        assert!(!vectors(registry), "{:?}", registry.features());
        assert_eq!(compute(), [2.0, 4.0, 6.0, 8.0]);
        // SAFETY: everything that used it was dropped in `compute`.
        unsafe { registry.unload() }.unwrap();
        assert!(Registry::all().unwrap().is_empty(), "it is gone");
    }

    // All backends, with the best CPU variant. A device in Rust is no backend that was loaded.
    let early = Registry::register("Early", [Early]).unwrap();
    log::set_logger(&LOGGED).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let all = Registry::load_all().unwrap();
    let names: Vec<_> = all.iter().map(|r| r.name()).collect();
    let line = format!("backends after loading those in {}: {}", folder.display(), names.join(", "));
    assert_eq!(*LOGGED.0.lock().unwrap(), [line]);
    assert!(all.contains(&early), "{all:?}");
    assert!(all.iter().any(|r| r.name() == "CPU"), "{all:?}");
    assert_eq!(all.iter().any(|r| r.name() == "RPC"), cfg!(feature = "rpc"), "{all:?}");
    assert_eq!(Registry::load_all().unwrap(), all, "nothing is loaded twice");
    #[cfg(target_arch = "x86_64")]
    {
        let features = Registry::by_name("CPU").unwrap().features().unwrap();
        let has = |name: &str| features.iter().any(|(n, _)| n == name);
        assert_eq!(has("AVX2"), std::arch::is_x86_feature_detected!("avx2"), "{features:?}");
        assert!(!has("AMX_INT8") || variants.iter().any(|v| v.to_str().unwrap().contains("sapphire")), "{features:?}");
    }
    assert_eq!(compute(), [2.0, 4.0, 6.0, 8.0]);
}

/// Vulkan's module, with and without a usable driver: each in its own process, since a module is loaded only once.
#[cfg(all(feature = "vulkan", target_os = "linux"))]
mod vulkan {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Passes the folder to load from to the child process.
    const FOLDER: &str = "GGML_TEST_BACKENDS";
    const MODULE: &str = "libggml-vulkan.so";
    /// The other backends in the list; devices of an RPC server would be listed under RPC.
    const OTHERS: &str = if cfg!(feature = "rpc") { "CPU=CPU RPC=" } else { "CPU=CPU" };

    /// The output of a process that loads all backends of a folder and computes: "CPU=CPU Vulkan=Vulkan0".
    fn listed(folder: &Path, variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "vulkan::vulkan_backend_loads_only_where_it_can_start", "--nocapture"]);
        for name in ["GGML_VK_VISIBLE_DEVICES", "VK_ICD_FILENAMES", "VK_DRIVER_FILES"] {
            command.env_remove(name);
        }
        let output = command.env(FOLDER, folder).envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{variables:?}: {}\n{text}\n{errors}", output.status);
        let line = text.lines().find_map(|line| line.split_once("listed: "));
        line.unwrap_or_else(|| panic!("{variables:?}: {text}\n{errors}")).1.to_owned()
    }

    /// The child process.
    fn list(folder: &Path) {
        // SAFETY: the files in the folder were built together with this crate.
        unsafe { Registry::load_all_from(folder) }.unwrap();
        let mut all = Vec::new();
        for registry in Registry::all().unwrap() {
            let devices: Vec<_> = registry.devices().unwrap().into_iter().map(Device::name).collect();
            all.push(format!("{}={}", registry.name(), devices.join("+")));
        }
        all.sort();
        assert_eq!(compute(), [2.0, 4.0, 6.0, 8.0], "whatever else is there");
        if let Some(vulkan) = Device::all().unwrap().into_iter().find(|d| d.name() == "Vulkan0") {
            assert_eq!(compute_by(Sched::builder().backend(vulkan.init().unwrap())), [2.0, 4.0, 6.0, 8.0], "by Vulkan");
        }
        println!("listed: {}", all.join(" "));
    }

    /// Creates a new folder for this test.
    fn new_folder(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dynamic-{name}"));
        let _there_was_none = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Creates a folder with links to the wanted modules.
    fn folder_with(from: &Path, wanted: impl Fn(&str) -> bool) -> PathBuf {
        let folder = new_folder("modules");
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if wanted(entry.file_name().to_str().unwrap()) {
                std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name())).unwrap();
            }
        }
        folder
    }

    #[test]
    fn vulkan_backend_loads_only_where_it_can_start() {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return list(Path::new(&folder));
        }
        let folder = Path::new(ggml::sys::BACKEND_DIR.unwrap());
        assert!(folder.join(MODULE).is_file(), "it was built");

        let devices = ("GGML_VK_VISIBLE_DEVICES", "0");
        let without = folder_with(folder, |name| name != MODULE);
        assert_eq!(listed(&without, &[devices]), OTHERS, "no module");

        // A machine without Vulkan's loader: the module needs it, and the first file found is not one.
        let broken = new_folder("loader");
        std::fs::write(broken.join("libvulkan.so.1"), "not a library\n").unwrap();
        let usual = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let path = format!("{}:{usual}", broken.display());
        assert_eq!(listed(folder, &[("LD_LIBRARY_PATH", &path), devices]), OTHERS, "no loader");

        // A machine without a driver.
        assert_eq!(listed(folder, &[("VK_ICD_FILENAMES", "/no/such/driver.json")]), OTHERS, "no driver");

        // A machine with a CPU driver, which ggml uses only if it is named; CI has Mesa's.
        assert_eq!(listed(folder, &[devices]), format!("{OTHERS} Vulkan=Vulkan0"));
    }
}
