//! Features by target.

use super::*;

const MAC: &str = "aarch64-apple-darwin";
const MSVC: &str = "x86_64-pc-windows-msvc";
const ANDROID: &str = "aarch64-linux-android";
pub(crate) const TARGETS: [&str; 4] = [LINUX, MAC, MSVC, ANDROID];

pub(crate) const LIBRARY: fn(&'static str) -> System = System::Library;
const FRAMEWORK: fn(&'static str) -> System = System::Framework;

fn on(feature: &str) -> (String, &'static str) {
    (format!("CARGO_FEATURE_{}", feature.to_uppercase().replace('-', "_")), "1")
}

/// The plan for a target with these features.
pub(crate) fn with(target: &str, features: &[&str], more: &[(&str, &str)]) -> Result<Plan, String> {
    let features: Vec<_> = features.iter().map(|f| on(f)).collect();
    let all: Vec<_> =
        features.iter().map(|(name, value)| (name.as_str(), *value)).chain(more.iter().copied()).collect();
    plan(&input(target, &all))
}

/// The link lines that a static backend adds per target, in the order of [`TARGETS`].
#[test]
fn backends_link_their_libraries_on_each_target() {
    let none = || Some(vec![]);
    let rows = [
        ("rpc", [none(), none(), Some(vec![LIBRARY("ws2_32")]), none()]),
        (
            "blas",
            [Some(vec![LIBRARY("openblas")]), none(), Some(vec![LIBRARY("openblas")]), Some(vec![LIBRARY("openblas")])],
        ),
        (
            "vulkan",
            [
                Some(vec![LIBRARY("vulkan")]),
                Some(vec![LIBRARY("vulkan")]),
                Some(vec![LIBRARY("vulkan-1")]),
                Some(vec![LIBRARY("vulkan")]),
            ],
        ),
        (
            "cuda",
            [
                Some(["cudart", "cublas", "cuda"].map(LIBRARY).to_vec()),
                None,
                Some(["cudart", "cublas", "cuda"].map(LIBRARY).to_vec()),
                None,
            ],
        ),
        (
            "hip",
            [
                Some(["amdhip64", "hipblas", "rocblas"].map(LIBRARY).to_vec()),
                None,
                Some(["amdhip64", "hipblas", "rocblas"].map(LIBRARY).to_vec()),
                None,
            ],
        ),
        ("metal", [None, Some(["Foundation", "Metal", "MetalKit"].map(FRAMEWORK).to_vec()), None, None]),
        (
            "opencl",
            [
                Some(vec![LIBRARY("OpenCL")]),
                Some(vec![FRAMEWORK("OpenCL")]),
                Some(vec![LIBRARY("OpenCL")]),
                Some(vec![LIBRARY("OpenCL")]),
            ],
        ),
    ];
    assert_eq!(rows.len(), backends::BACKENDS.len(), "a row for each backend");
    for (feature, expected) in rows {
        for (target, expected) in TARGETS.into_iter().zip(expected) {
            let what = format!("{feature} for {target}");
            let Some(expected) = expected else {
                let error = with(target, &[feature], &[]).unwrap_err();
                assert!(error.contains(&format!("`{feature}` is for")) && error.contains(target), "{what}: {error}");
                continue;
            };
            let p = with(target, &[feature], &[]).unwrap();
            let backend = backends::BACKENDS.iter().find(|b| b.name == feature).unwrap();
            for b in backends::BACKENDS {
                assert_eq!(define(&p, b.option), Some(if b == backend { "ON" } else { "OFF" }), "{what}: {}", b.option);
            }
            assert!(p.headers.contains(&backend.header), "{what}");
            let c = p.compile.unwrap();
            assert_eq!(c.libraries, ["ggml", backend.library, "ggml-cpu", "ggml-base"], "{what}");
            let bare = compile(target, &[]).system;
            assert_eq!(c.system, [bare, expected].concat(), "{what}");
        }
    }
}

#[test]
fn backends_are_features_of_cargo() {
    let manifest: toml::Table = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
    let features = manifest["features"].as_table().unwrap();
    for b in backends::BACKENDS {
        assert!(features.contains_key(b.name), "{}", b.name);
    }
    for name in ["native", "openmp", "dynamic-link", "dynamic-backends", "system"] {
        assert!(features.contains_key(name), "{name}");
    }
    assert_eq!(features.len(), backends::BACKENDS.len() + 5, "{features:?}");
}

#[test]
fn backends_combine_in_the_plan() {
    let p = with(LINUX, &["rpc", "blas", "vulkan", "cuda", "opencl", "openmp"], &[]).unwrap();
    let c = p.compile.unwrap();
    let libraries =
        ["ggml", "ggml-rpc", "ggml-blas", "ggml-vulkan", "ggml-cuda", "ggml-opencl", "ggml-cpu", "ggml-base"];
    assert_eq!(c.libraries, libraries);
    assert!(c.system.contains(&System::OpenMp) && c.system.contains(&LIBRARY("openblas")));
    assert_eq!(c.sdks, [Sdk::OpenBlas, Sdk::Vulkan, Sdk::Cuda, Sdk::OpenCl]);
}

#[test]
fn backends_name_the_sdks_they_need() {
    let sdks = |target, feature| with(target, &[feature], &[]).unwrap().compile.unwrap().sdks;
    assert_eq!(sdks(LINUX, "hip"), [Sdk::Rocm]);
    for feature in ["rpc", "blas", "metal", "opencl", "openmp", "native"] {
        assert!(sdks(MAC, feature).is_empty(), "{feature} comes with the system");
    }
    assert_eq!(sdks(MAC, "vulkan"), [Sdk::Vulkan]);
    assert_eq!((sdks(MSVC, "blas"), sdks(ANDROID, "blas")), (vec![Sdk::OpenBlas], vec![Sdk::OpenBlas]));
}

#[test]
fn backends_read_their_vendor_and_options() {
    let value = |target, feature: &str, more: &[(&str, &str)], name| {
        define(&with(target, &[feature], more).unwrap(), name).map(str::to_owned)
    };
    for target in TARGETS {
        let vendor = if target == MAC { "Apple" } else { "OpenBLAS" };
        assert_eq!(value(target, "blas", &[], "GGML_BLAS_VENDOR").as_deref(), Some(vendor), "{target}");
    }
    assert_eq!(value(LINUX, "rpc", &[], "GGML_BLAS_VENDOR"), None);
    assert_eq!(value(LINUX, "cuda", &[], "GGML_CUDA_NCCL").as_deref(), Some("OFF"));
    assert_eq!(value(LINUX, "cuda", &[], "CMAKE_CUDA_ARCHITECTURES"), None);
    let archs = [("GGML_SYS_CUDA_ARCHITECTURES", "90")];
    assert_eq!(value(LINUX, "cuda", &archs, "CMAKE_CUDA_ARCHITECTURES").as_deref(), Some("90"));
    assert_eq!(value(LINUX, "blas", &archs, "CMAKE_CUDA_ARCHITECTURES"), None);
    assert_eq!(value(LINUX, "hip", &[], "GGML_HIP_RCCL").as_deref(), Some("OFF"));
    assert_eq!(value(MAC, "metal", &[], "GGML_METAL_EMBED_LIBRARY").as_deref(), Some("ON"));
    assert_eq!(value(ANDROID, "opencl", &[], "GGML_OPENCL_EMBED_KERNELS").as_deref(), Some("ON"));
}

#[test]
fn sdk_folders_are_searched_and_passed_to_cmake() {
    let search =
        |target, feature: &str, more: &[(&str, &str)]| with(target, &[feature], more).unwrap().compile.unwrap().search;
    let none: [&str; 0] = [];
    assert_eq!(search(LINUX, "blas", &[]), none);
    assert_eq!(search(LINUX, "blas", &[("OPENBLAS_DIR", "/b")]), ["/b/lib"]);
    assert_eq!(search(LINUX, "rpc", &[("OPENBLAS_DIR", "/b")]), none, "of what is built with it only");
    assert_eq!(search(MSVC, "vulkan", &[("VULKAN_SDK", "C:/V")]), ["C:/V/Lib"]);
    assert_eq!(search(LINUX, "cuda", &[]), ["/usr/local/cuda/lib64", "/usr/local/cuda/lib64/stubs"]);
    assert_eq!(search(LINUX, "cuda", &[("CUDA_PATH", "/c")]), ["/c/lib64", "/c/lib64/stubs"]);
    assert_eq!(search(MSVC, "cuda", &[("CUDA_PATH", "C:/c")]), ["C:/c/lib/x64"]);
    assert_eq!(search(LINUX, "hip", &[]), ["/opt/rocm/lib"]);
    assert_eq!(search(MSVC, "hip", &[("HIP_PATH", "C:/h"), ("ROCM_PATH", "C:/r")]), ["C:/h/lib"]);
    assert_eq!(search(MSVC, "opencl", &[("OCL_ROOT", "C:/o")]), ["C:/o/lib"]);
    let p = with(ANDROID, &["blas"], &[("OPENBLAS_DIR", "/b")]).unwrap();
    assert_eq!((define(&p, "CMAKE_PREFIX_PATH"), define(&p, "CMAKE_FIND_ROOT_PATH")), (Some("/b"), Some("/b")));
    let p = with(LINUX, &["blas"], &[("OPENBLAS_DIR", "/b")]).unwrap();
    assert_eq!((define(&p, "CMAKE_PREFIX_PATH"), define(&p, "CMAKE_FIND_ROOT_PATH")), (Some("/b"), None));
    let p = with(LINUX, &["cuda"], &[("CUDA_PATH", "/c")]).unwrap();
    assert_eq!(define(&p, "CUDAToolkit_ROOT"), Some("/c"));
    assert_eq!(define(&p, "CMAKE_CUDA_COMPILER"), Some("/c/bin/nvcc"));
    let c = with(LINUX, &["blas"], &[("OPENBLAS_DIR", "/b")]).unwrap().compile.unwrap();
    let lines = emit::link(Path::new("/out/lib"), &c, "gomp");
    let at = |line: &str| lines.iter().position(|l| l == line).unwrap();
    assert!(at("cargo::rustc-link-search=native=/b/lib") < at("cargo::rustc-link-lib=openblas"), "{lines:?}");
    assert!(at("cargo::rustc-link-lib=static=ggml-blas") < at("cargo::rustc-link-lib=openblas"), "{lines:?}");
    let rerun: Vec<_> = Input::rerun_lines().collect();
    for name in ["OPENBLAS_DIR", "VULKAN_SDK", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "OCL_ROOT", "GGML_SYS_PREFIX"] {
        assert!(rerun.contains(&format!("cargo::rerun-if-env-changed={name}")), "{name}");
    }
}

#[test]
fn openmp_and_native_work_on_each_target() {
    for target in TARGETS {
        let p = with(target, &["openmp", "native"], &[]).unwrap();
        assert_eq!((define(&p, "GGML_OPENMP"), define(&p, "GGML_NATIVE")), (Some("ON"), Some("ON")), "{target}");
        assert!(p.compile.unwrap().system.contains(&System::OpenMp), "{target}");
    }
}

#[test]
fn docs_rs_plan_includes_every_backend() {
    let all: Vec<_> = backends::BACKENDS.iter().map(|b| b.name).collect();
    let p = with(LINUX, &all, &[("DOCS_RS", "1")]).unwrap();
    assert_eq!((p.compile, p.backends.len()), (None, all.len()));
}
