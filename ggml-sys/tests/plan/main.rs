//! The build plan, for targets and settings other than this machine's.

#![cfg(test)]

mod linkage;
mod matrix;
mod processor;

use std::path::Path;

use build_plan::backends::System;
use build_plan::input::Input;
use build_plan::plan::{Compile, Linkage, Plan, Source, plan};
use build_plan::sdk::Sdk;
use build_plan::{backends, emit, macros};

const LINUX: &str = "x86_64-unknown-linux-gnu";

/// cargo's environment of a build script for `target` on `host`, plus `more`.
fn input_on(host: &str, target: &str, more: &[(&str, &str)]) -> Input {
    let has = |part: &str| target.contains(part);
    let arch = target.split('-').next().unwrap();
    let (os, env) = match () {
        () if has("android") => ("android", ""),
        () if has("apple-darwin") => ("macos", ""),
        () if has("msvc") => ("windows", "msvc"),
        () if has("windows-gnu") => ("windows", "gnu"),
        () if has("freebsd") => ("freebsd", ""),
        () => ("linux", "gnu"),
    };
    let mut variables = vec![
        ("TARGET", target),
        ("HOST", host),
        ("CARGO_CFG_TARGET_ARCH", arch),
        ("CARGO_CFG_TARGET_OS", os),
        ("CARGO_CFG_TARGET_ENV", env),
        ("CARGO_CFG_TARGET_VENDOR", if has("apple") { "apple" } else { "unknown" }),
        ("CARGO_CFG_TARGET_FEATURE", "fxsr,sse,sse2"),
        ("CARGO_MANIFEST_DIR", "/crate"),
        ("OUT_DIR", "/out"),
    ];
    variables.extend(more);
    let get = |name: &str| variables.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    Input::read(get, variables.iter().map(|(name, _)| (*name).to_owned()))
}

fn input(target: &str, more: &[(&str, &str)]) -> Input {
    input_on(target, target, more)
}

fn planned(target: &str, more: &[(&str, &str)]) -> Plan {
    plan(&input(target, more)).unwrap()
}

fn compile(target: &str, more: &[(&str, &str)]) -> Compile {
    planned(target, more).compile.unwrap()
}

fn define<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    let all = plan.compile.as_ref().unwrap().defines.iter().chain(&plan.cpu.options);
    let values: Vec<_> = all.filter(|(n, _)| *n == name).map(|(_, v)| v.as_str()).collect();
    assert!(values.len() <= 1, "{name} is given twice");
    values.first().copied()
}

fn facts<'a>(root: &'a str, lib: &'a str) -> emit::Facts<'a> {
    let include = Path::new("/headers");
    emit::Facts { root: Path::new(root), lib: Path::new(lib), include, version: "1.2.3", origin: "carrier-1.0" }
}

#[test]
fn default_plan_is_static_and_explicit() {
    let p = planned(LINUX, &[]);
    for off in ["BUILD_SHARED_LIBS", "GIT_EXE", "GGML_RPC_RDMA", "GGML_OPENMP", "GGML_RPC", "GGML_METAL", "GGML_BLAS"] {
        assert_eq!(define(&p, off), Some("OFF"), "{off}");
    }
    assert_eq!(define(&p, "GGML_LLAMAFILE"), Some("ON"));
    assert_eq!(define(&p, "CMAKE_INSTALL_LIBDIR"), Some("lib"));
    let c = p.compile.unwrap();
    assert_eq!(c.build_type, "Release");
    assert_eq!(c.flags, ["-fexceptions"]);
    assert_eq!(c.libraries, ["ggml", "ggml-cpu", "ggml-base"]);
    assert_eq!(c.system, [System::Library("stdc++"), System::Library("m")]);
}

#[test]
fn features_combine_in_the_plan() {
    let p = planned(LINUX, &[("CARGO_FEATURE_RPC", "1"), ("CARGO_FEATURE_OPENMP", "1")]);
    assert!(p.headers.contains(&"ggml-rpc.h"));
    assert_eq!((define(&p, "GGML_RPC"), define(&p, "GGML_OPENMP")), (Some("ON"), Some("ON")));
    let c = p.compile.unwrap();
    assert_eq!(c.libraries, ["ggml", "ggml-rpc", "ggml-cpu", "ggml-base"]);
    assert!(c.system.contains(&System::OpenMp));
    assert!(!planned(LINUX, &[]).headers.contains(&"ggml-rpc.h"));
}

#[test]
fn targets_link_their_system_libraries() {
    let rpc = [("CARGO_FEATURE_RPC", "1")];
    let system = |target| compile(target, &rpc).system;
    let library = System::Library;
    assert_eq!(system("aarch64-apple-darwin"), [library("c++"), System::Framework("Accelerate")]);
    assert_eq!(system("aarch64-linux-android"), [library("c++_shared"), library("m")]);
    assert_eq!(system("x86_64-unknown-freebsd"), [library("c++"), library("m")]);
    assert_eq!(system("x86_64-pc-windows-msvc"), [library("advapi32"), library("ws2_32")]);
    assert_eq!(system("x86_64-pc-windows-gnu"), [library("stdc++"), library("advapi32"), library("ws2_32")]);
    assert_eq!(compile("x86_64-pc-windows-msvc", &rpc).flags, ["/EHsc"]);
}

#[test]
fn link_lines_are_ordered_and_spelled_out_for_mingw() {
    let lines = |target| emit::link(Path::new("/out/lib"), &compile(target, &[]), "gomp");
    assert_eq!(
        lines(LINUX),
        [
            "cargo::rustc-link-search=native=/out/lib",
            "cargo::rustc-link-lib=static=ggml",
            "cargo::rustc-link-lib=static=ggml-cpu",
            "cargo::rustc-link-lib=static=ggml-base",
            "cargo::rustc-link-lib=stdc++",
            "cargo::rustc-link-lib=m",
        ]
    );
    assert!(lines("x86_64-pc-windows-gnu").contains(&"cargo::rustc-link-lib=static:+verbatim=ggml.a".to_owned()));
    let openmp = compile(LINUX, &[("CARGO_FEATURE_OPENMP", "1")]);
    assert!(emit::link(Path::new("/out/lib"), &openmp, "omp").contains(&"cargo::rustc-link-lib=omp".to_owned()));
}

#[test]
fn metadata_names_what_was_built() {
    let input = input(LINUX, &[("CARGO_FEATURE_RPC", "1")]);
    let facts = facts("/out", "/out/lib");
    let plan = plan(&input).unwrap();
    let lines = emit::metadata(&plan, &facts);
    for expected in [
        "version=1.2.3",
        "commit=carrier-1.0",
        "backends=cpu,rpc",
        "cpu_features=sse4.2,popcnt,avx,avx2,fma,f16c,bmi2",
        "root=/out",
        "include=/headers",
        "lib=/out/lib",
        "cmake_dir=/out/lib/cmake/ggml",
        "build_type=Release",
    ] {
        assert!(lines.contains(&format!("cargo::metadata={expected}")), "{expected} in {lines:?}");
    }
    assert!(emit::config(&plan, &facts).contains("pub const BACKENDS: &[&str] = &[\"cpu\", \"rpc\"];"));
}

#[test]
fn docs_rs_plan_compiles_nothing() {
    let p = planned(LINUX, &[("DOCS_RS", "1"), ("CARGO_FEATURE_RPC", "1")]);
    assert_eq!(p.compile, None);
    assert!(p.headers.contains(&"ggml-rpc.h"));
    assert!(planned(LINUX, &[("DOCS_RS", "")]).compile.is_some());
}

#[test]
fn environment_selects_sources_and_build_type() {
    assert_eq!(planned(LINUX, &[]).source, Source::Vendored);
    let p = planned(LINUX, &[("GGML_SYS_SOURCE_DIR", "/my/ggml"), ("GGML_SYS_BUILD_TYPE", "Debug")]);
    assert_eq!(p.source, Source::Folder("/my/ggml".into()));
    assert_eq!(p.compile.unwrap().build_type, "Debug");
    let error = plan(&input(LINUX, &[("GGML_SYS_BUILD_TYPE", "debug")])).unwrap_err();
    assert!(error.contains("RelWithDebInfo"), "{error}");
    let lines: Vec<_> = Input::rerun_lines().collect();
    for name in ["GGML_SYS_SOURCE_DIR", "GGML_SYS_BUILD_TYPE", "GGML_SYS_CPU", "DOCS_RS"] {
        assert!(lines.contains(&format!("cargo::rerun-if-env-changed={name}")), "{name}");
    }
}

#[test]
fn offline_variable_is_read() {
    assert!(input(LINUX, &[("CARGO_NET_OFFLINE", "true")]).offline);
    assert!(!input(LINUX, &[("CARGO_NET_OFFLINE", "false")]).offline);
    assert!(!input(LINUX, &[]).offline);
}
