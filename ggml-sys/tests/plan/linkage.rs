//! ggml in shared libraries: compiled, loaded at run time, or installed.

use super::matrix::{LIBRARY, TARGETS, with};
use super::*;

#[test]
fn dynamic_backends_are_separate_libraries() {
    let dynamic = ("CARGO_FEATURE_DYNAMIC_BACKENDS", "1");
    let mut p = planned(LINUX, &[dynamic, ("CARGO_FEATURE_RPC", "1")]);
    for on in ["BUILD_SHARED_LIBS", "GGML_BACKEND_DL", "GGML_CPU_ALL_VARIANTS", "GGML_RPC"] {
        assert_eq!(define(&p, on), Some("ON"), "{on}");
    }
    // A single level would override the variants, or be refused.
    assert_eq!((define(&p, "GGML_NATIVE"), define(&p, "GGML_AVX2")), (Some("OFF"), None));
    assert!(p.cpu.features.is_empty(), "the variant that is loaded suits the processor");
    let c = p.compile.clone().unwrap();
    assert_eq!(c.libraries, ["ggml", "ggml-base"], "backends are not linked");
    let lines = emit::link(Path::new("/out/lib"), &c, "gomp");
    assert!(lines.contains(&"cargo::rustc-link-lib=dylib=ggml".to_owned()), "{lines:?}");
    let facts = facts("/out", "/out/lib");
    let text = emit::config(&p, &facts);
    assert!(text.contains("pub const BACKEND_DIR: Option<&str> = Some(\"/out/lib/ggml\");"), "{text}");
    // H36: the variant that this GCC miscompiles is left out, so that the next best one is chosen.
    assert!(p.suit("#define __GNUC__ 14\n#define __GNUC_MINOR__ 1\n").is_none());
    assert!(p.compile.as_ref().unwrap().unusable.is_empty());
    assert!(p.suit("#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n").is_none());
    assert_eq!(p.compile.unwrap().unusable, ["libggml-cpu-sapphirerapids"]);
    for more in [("GGML_SYS_CPU", "x86-64-v3"), ("CARGO_FEATURE_NATIVE", "1")] {
        assert!(plan(&input(LINUX, &[dynamic, more])).unwrap_err().contains("dynamic-backends"), "{more:?}");
    }
}

#[test]
fn shared_libraries_link_their_dependencies() {
    for target in TARGETS {
        let p = with(target, &["dynamic-link", "blas", "opencl"], &[]).unwrap();
        assert_eq!(
            (define(&p, "BUILD_SHARED_LIBS"), define(&p, "GGML_BACKEND_DL")),
            (Some("ON"), Some("OFF")),
            "{target}"
        );
        assert_eq!(define(&p, "GGML_AVX2").is_some(), target.starts_with("x86_64"), "{target}: one level");
        let c = p.compile.unwrap();
        assert_eq!(c.linkage, Linkage::Shared);
        assert_eq!(c.libraries, ["ggml", "ggml-blas", "ggml-opencl", "ggml-cpu", "ggml-base"]);
        let beside = match target {
            _ if target.contains("apple") => Some("@loader_path"),
            _ if target.contains("windows") => None,
            _ => Some("$ORIGIN"),
        };
        assert_eq!(c.defines.iter().find(|(n, _)| *n == "CMAKE_INSTALL_RPATH").map(|(_, v)| v.as_str()), beside);
        assert_eq!(c.system, compile(target, &[]).system, "{target}");
        let lines = emit::link(Path::new("/out/lib"), &c, "gomp");
        assert!(lines.contains(&"cargo::rustc-link-lib=dylib=ggml-blas".to_owned()), "{lines:?}");
    }
    // Backends that are loaded at run time are shared libraries, too.
    let p = with(LINUX, &["dynamic-link", "dynamic-backends", "blas"], &[]).unwrap();
    assert_eq!((define(&p, "BUILD_SHARED_LIBS"), define(&p, "GGML_BACKEND_DL")), (Some("ON"), Some("ON")));
    let c = p.compile.unwrap();
    assert_eq!((c.linkage, c.libraries, c.sdks), (Linkage::Modules, vec!["ggml", "ggml-base"], vec![Sdk::OpenBlas]));
}

#[test]
fn cuda_and_hip_together_require_dynamic_backends() {
    let error = with(LINUX, &["cuda", "hip"], &[]).unwrap_err();
    assert!(error.contains("dynamic-backends"), "{error}");
    let p = with(LINUX, &["cuda", "hip", "dynamic-backends"], &[]).unwrap();
    assert_eq!(p.headers.iter().filter(|h| **h == "ggml-cuda.h").count(), 1);
}

#[test]
fn system_feature_links_and_compiles_nothing() {
    let p = with(LINUX, &["system", "rpc", "blas", "openmp", "native"], &[("GGML_SYS_PREFIX", "/opt/ggml")]).unwrap();
    assert_eq!((p.source.clone(), p.cpu.features.len()), (Source::Vendored, 0), "declarations are the pinned ones");
    let c = p.compile.clone().unwrap();
    assert_eq!(c.linkage, Linkage::Installed);
    assert_eq!(c.libraries, ["ggml", "ggml-rpc", "ggml-blas", "ggml-cpu", "ggml-base"]);
    assert!(c.sdks.is_empty(), "it was built elsewhere");
    assert_eq!(c.system, [LIBRARY("stdc++"), LIBRARY("m")]);
    let lines = emit::link(Path::new("/opt/ggml/lib64"), &c, "gomp");
    assert!(lines.contains(&"cargo::rustc-link-search=native=/opt/ggml/lib64".to_owned()), "{lines:?}");
    assert!(lines.contains(&"cargo::rustc-link-lib=dylib=ggml-base".to_owned()), "{lines:?}");
    let facts = facts("/opt/ggml", "/opt/ggml/lib64");
    let said = emit::metadata(&p, &facts);
    for line in ["root=/opt/ggml", "lib=/opt/ggml/lib64", "cmake_dir=/opt/ggml/lib64/cmake/ggml"] {
        assert!(said.contains(&format!("cargo::metadata={line}")), "{line}: {said:?}");
    }
    let rpath = |target, c| emit::rpath(&input(target, &[]), c, Path::new("/opt/ggml/lib64"));
    let carried = ["cargo::metadata=rpath=/opt/ggml/lib64", "cargo::rustc-link-arg=-Wl,-rpath,/opt/ggml/lib64"];
    assert_eq!(rpath(LINUX, &c), carried);
    assert!(rpath("x86_64-pc-windows-msvc", &c).is_empty());
    let compiled = compile(LINUX, &[("CARGO_FEATURE_DYNAMIC_LINK", "1")]);
    assert!(rpath(LINUX, &compiled).is_empty(), "cargo knows where those are");
    assert_eq!(with(LINUX, &["system"], &[]).unwrap().compile.unwrap().linkage, Linkage::Installed);
    let error = with(LINUX, &["system"], &[("GGML_SYS_SOURCE_DIR", "/src")]).unwrap_err();
    assert!(error.contains("GGML_SYS_SOURCE_DIR"), "{error}");
}
