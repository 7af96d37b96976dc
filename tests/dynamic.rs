//! Backends that are loaded while the program runs. One test: ggml's lists are the process's.

#![cfg(feature = "dynamic-backends")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use ggml::Registry;
use ggml::prelude::*;

fn compute() -> Vec<f32> {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.add(x, x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
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

#[test]
fn backends_come_and_go() {
    assert!(Registry::all().unwrap().is_empty(), "nothing is linked in");
    assert!(matches!(Device::cpu(), Err(Error::NoSuch { .. })), "no device before a backend is loaded");
    let folder = Path::new(ggml::sys::BACKEND_DIR.unwrap());
    let variants = modules(folder);
    assert!(variants.len() > 5, "one library for each level of processors: {variants:?}");

    // SAFETY: files that don't exist, and one that is no backend: nothing is loaded.
    let missing = unsafe { Registry::load(folder.join("libggml-none.so")) };
    assert!(matches!(missing, Err(Error::Null { .. })), "{missing:?}");
    // SAFETY: as above.
    let other = unsafe { Registry::load(folder.parent().unwrap().join("libggml-base.so")) };
    assert!(matches!(other, Err(Error::Null { .. })), "{other:?}");
    // SAFETY: as above.
    let nul = unsafe { Registry::load("a\0b") };
    assert!(matches!(nul, Err(Error::Param { .. })), "{nul:?}");

    // One by its file: the lowest level runs anywhere.
    let lowest = variants.iter().find(|p| p.to_str().unwrap().ends_with("-x64.so"));
    if let Some(lowest) = lowest {
        // SAFETY: built with this crate.
        let registry = unsafe { Registry::load(lowest) }.unwrap();
        assert_eq!((registry.name(), Registry::all().unwrap().len()), ("CPU".into(), 1));
        let vectors = |registry: Registry| {
            registry.features().unwrap().into_iter().any(|(name, _)| name == "AVX" || name == "AVX2")
        };
        assert!(!vectors(registry), "{:?}", registry.features());
        assert_eq!(compute(), [2.0, 4.0, 6.0, 8.0]);
        // SAFETY: what used it was dropped in `compute`.
        unsafe { registry.unload() }.unwrap();
        assert!(Registry::all().unwrap().is_empty(), "it is gone");
    }

    // All, and the best of the CPU's.
    let all = Registry::load_all().unwrap();
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
