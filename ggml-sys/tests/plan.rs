//! What the build script decides, for targets and settings that this machine is not.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../build/backends.rs"]
mod backends;
#[path = "../build/cpu.rs"]
mod cpu;
#[path = "../build/emit.rs"]
mod emit;
#[path = "../build/input.rs"]
#[expect(dead_code, reason = "the real environment is read by the build script only")]
mod input;
#[path = "../build/macros.rs"]
mod macros;
#[path = "../build/plan.rs"]
mod plan;
#[path = "../build/sdk.rs"]
#[expect(dead_code, reason = "what to install is said where tools are looked for")]
mod sdk;

use std::path::Path;

use input::Input;
use plan::{Compile, Linkage, Plan, Source, System, plan};
use sdk::Sdk;

const LINUX: &str = "x86_64-unknown-linux-gnu";

/// The environment that cargo gives a build script for `target`, built on `host`, and `more` on top.
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
fn static_release_with_nothing_left_to_defaults() {
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
fn features_add() {
    let p = planned(LINUX, &[("CARGO_FEATURE_RPC", "1"), ("CARGO_FEATURE_OPENMP", "1")]);
    assert!(p.headers.contains(&"ggml-rpc.h"));
    assert_eq!((define(&p, "GGML_RPC"), define(&p, "GGML_OPENMP")), (Some("ON"), Some("ON")));
    let c = p.compile.unwrap();
    assert_eq!(c.libraries, ["ggml", "ggml-rpc", "ggml-cpu", "ggml-base"]);
    assert!(c.system.contains(&System::OpenMp));
    assert!(!planned(LINUX, &[]).headers.contains(&"ggml-rpc.h"));
}

#[test]
fn targets_link_what_they_have() {
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
fn link_lines_are_in_order_and_spell_names_out_for_mingw() {
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
fn docs_rs_compiles_nothing() {
    let p = planned(LINUX, &[("DOCS_RS", "1"), ("CARGO_FEATURE_RPC", "1")]);
    assert_eq!(p.compile, None);
    assert!(p.headers.contains(&"ggml-rpc.h"));
    assert!(planned(LINUX, &[("DOCS_RS", "")]).compile.is_some());
}

#[test]
fn people_choose_sources_and_build_type() {
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
fn offline_is_seen() {
    assert!(input(LINUX, &[("CARGO_NET_OFFLINE", "true")]).offline);
    assert!(!input(LINUX, &[("CARGO_NET_OFFLINE", "false")]).offline);
    assert!(!input(LINUX, &[]).offline);
}

mod processor {
    use super::*;

    const V3: &[&str] = &["sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi2"];

    fn features(target: &str, more: &[(&str, &str)]) -> Vec<&'static str> {
        planned(target, more).cpu.features
    }

    #[test]
    fn default_is_level_3_whoever_builds() {
        for target in [LINUX, "x86_64-apple-darwin", "x86_64-pc-windows-msvc", "x86_64-linux-android"] {
            assert_eq!(features(target, &[]), V3, "{target}");
            let cross = plan(&input_on("aarch64-unknown-linux-gnu", target, &[])).unwrap();
            assert_eq!(cross.cpu, planned(target, &[]).cpu, "{target}");
        }
        let p = planned(LINUX, &[]);
        assert_eq!((define(&p, "GGML_AVX2"), define(&p, "GGML_AVX512")), (Some("ON"), Some("OFF")));
        assert_eq!(define(&p, "GGML_NATIVE"), Some("OFF"));
    }

    #[test]
    fn levels_by_name() {
        let level = |name| features(LINUX, &[("GGML_SYS_CPU", name)]);
        assert_eq!(level("x86-64"), [""; 0]);
        assert_eq!(level("x86-64-v2"), ["sse4.2", "popcnt"]);
        assert_eq!(level("x86-64-v3"), V3);
        assert!(level("x86-64-v4").contains(&"avx512bw"));
        assert!(!level("x86-64-v4").contains(&"avx512vnni"));
        let p = planned(LINUX, &[("GGML_SYS_CPU", "x86-64")]);
        assert_eq!((define(&p, "GGML_SSE42"), define(&p, "GGML_AVX2")), (Some("OFF"), Some("OFF")));
    }

    #[test]
    fn rustc_flags_are_followed_up_and_down() {
        let skylake = [
            ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=x"),
            (
                "CARGO_CFG_TARGET_FEATURE",
                "avx,avx2,avx512bw,avx512cd,avx512dq,avx512f,avx512vl,bmi2,f16c,fma,popcnt,sse4.2",
            ),
        ];
        assert!(features(LINUX, &skylake).contains(&"avx512f"));
        for flags in ["-Ctarget-feature=+sse4.2", "-C\x1ftarget-feature=+sse4.2", "--codegen=target-cpu=nehalem"] {
            let down = [("CARGO_ENCODED_RUSTFLAGS", flags), ("CARGO_CFG_TARGET_FEATURE", "sse,sse2,sse4.2")];
            assert_eq!(features(LINUX, &down), ["sse4.2", "popcnt"], "{flags}");
        }
        let unrelated = [("CARGO_ENCODED_RUSTFLAGS", "-Copt-level=3\x1f-Dwarnings")];
        assert_eq!(features(LINUX, &unrelated), V3);
    }

    #[test]
    fn one_missing_part_of_avx512_leaves_it_out() {
        let partial = [
            ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=knl"),
            ("CARGO_CFG_TARGET_FEATURE", "avx,avx2,avx512cd,avx512f,bmi2,f16c,fma,sse4.2"),
        ];
        assert_eq!(features(LINUX, &partial), V3);
    }

    #[test]
    fn cl_has_no_avx2_without_fma() {
        let given =
            [("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+avx2"), ("CARGO_CFG_TARGET_FEATURE", "avx,avx2,sse4.2")];
        assert_eq!(features("x86_64-pc-windows-msvc", &given), ["sse4.2", "popcnt", "avx"]);
        assert_eq!(features(LINUX, &given), ["sse4.2", "popcnt", "avx", "avx2"]);
    }

    #[test]
    fn native_by_feature_by_flag_or_by_name_but_not_across() {
        for given in [
            ("CARGO_FEATURE_NATIVE", "1"),
            ("CARGO_ENCODED_RUSTFLAGS", "-C\x1ftarget-cpu=native"),
            ("GGML_SYS_CPU", "native"),
        ] {
            let p = planned(LINUX, &[given]);
            assert_eq!((define(&p, "GGML_NATIVE"), define(&p, "GGML_AVX2")), (Some("ON"), Some("OFF")), "{given:?}");
            let error = plan(&input_on(LINUX, "aarch64-linux-android", &[given])).unwrap_err();
            assert!(error.contains("GGML_SYS_CPU"), "{error}");
        }
        // The variable comes first.
        let both = [("CARGO_FEATURE_NATIVE", "1"), ("GGML_SYS_CPU", "x86-64-v2")];
        assert_eq!(features(LINUX, &both), ["sse4.2", "popcnt"]);
    }

    #[test]
    fn unknown_names_are_errors_that_list_the_known() {
        let error = plan(&input(LINUX, &[("GGML_SYS_CPU", "haswell")])).unwrap_err();
        assert!(error.contains("x86-64-v3"), "{error}");
        let error = plan(&input("aarch64-apple-darwin", &[("GGML_SYS_CPU", "x86-64-v3")])).unwrap_err();
        assert!(error.contains("-march"), "{error}");
    }

    #[test]
    fn aarch64_takes_the_baseline_or_what_it_is_told() {
        let arch = |more: &[(&str, &str)]| {
            let p = planned("aarch64-unknown-linux-gnu", more);
            (define(&p, "GGML_CPU_ARM_ARCH").map(str::to_owned), define(&p, "GGML_NATIVE").map(str::to_owned))
        };
        let off = Some("OFF".to_owned());
        assert_eq!(arch(&[]), (None, off.clone()));
        assert_eq!(arch(&[("GGML_SYS_CPU", "armv8.2-a+fp16")]), (Some("armv8.2-a+fp16".to_owned()), off.clone()));
        let told = [
            ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+dotprod,+i8mm"),
            ("CARGO_CFG_TARGET_FEATURE", "dotprod,i8mm,neon"),
        ];
        assert_eq!(arch(&told), (Some("armv8.2-a+dotprod+i8mm".to_owned()), off));
        assert_eq!(features("aarch64-unknown-linux-gnu", &told), ["dotprod", "i8mm"]);
    }

    #[test]
    fn a_compilers_macros_name_features() {
        let text = "#define __AVX2__ 1\n#define __AVX512F__ 1\n#define __AVX512FP16__X 1\n#undef __FMA__\n";
        assert_eq!(macros::features(text), ["avx2", "avx512f"]);
        assert_eq!(macros::features("#define __ARM_FEATURE_SVE 1"), ["sve"]);
    }

    const AMX: &str = "#define __AMX_TILE__ 1\n#define __AMX_INT8__ 1\n#define __AVX2__ 1\n";

    #[test]
    fn native_relies_on_what_the_compiler_uses() {
        let mut p = planned(LINUX, &[("CARGO_FEATURE_NATIVE", "1")]);
        assert_eq!(p.suit(&format!("{AMX}#define __GNUC__ 14\n")), None);
        assert_eq!(p.cpu.features, ["avx2", "amx-tile", "amx-int8"]);
        let mut fixed = planned(LINUX, &[]);
        assert_eq!(fixed.suit("#define __AVX512F__ 1\n"), None);
        assert_eq!(fixed.cpu.features, V3);
    }

    #[test]
    fn amx_is_left_out_where_gcc_loses_the_tile_configuration() {
        let old = format!("{AMX}#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n");
        let by_flags = [
            ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+amx-int8"),
            ("CARGO_CFG_TARGET_FEATURE", "amx-int8,amx-tile,avx,avx2,sse4.2"),
        ];
        for given in [&by_flags[..], &[("CARGO_FEATURE_NATIVE", "1")]] {
            let mut p = planned(LINUX, given);
            assert!(p.suit(&old).unwrap().contains("without AMX"));
            assert!(!p.cpu.features.iter().any(|f| f.starts_with("amx")), "{:?}", p.cpu.features);
            assert!(p.cpu.features.contains(&"avx2"));
            assert_eq!((define(&p, "GGML_AMX_TILE"), define(&p, "GGML_AMX_INT8")), (Some("OFF"), Some("OFF")));
            assert!(p.compile.unwrap().flags.contains(&"-mno-amx-tile"));
        }
        // Older ones without AMX do not know the flag.
        let mut p = planned(LINUX, &[("CARGO_FEATURE_NATIVE", "1")]);
        assert_eq!(p.suit("#define __GNUC__ 9\n#define __AVX2__ 1\n"), None);
        assert_eq!(p.compile.unwrap().flags, ["-fexceptions"]);
    }

    #[test]
    fn which_compilers_lose_the_tile_configuration() {
        let gcc = |major: u32, minor: u32| {
            macros::loses_tile_configuration(&format!("#define __GNUC__ {major}\n#define __GNUC_MINOR__ {minor}\n"))
        };
        for (major, fixed) in [(11, 5), (12, 4), (13, 3)] {
            assert!(gcc(major, fixed - 1) && !gcc(major, fixed), "{major}");
        }
        assert!(!gcc(14, 0) && !gcc(15, 1) && gcc(10, 9));
        assert!(!macros::loses_tile_configuration("#define __clang__ 1\n#define __GNUC__ 4\n"));
    }
}

#[test]
fn dynamic_backends_are_libraries_of_their_own() {
    let dynamic = ("CARGO_FEATURE_DYNAMIC_BACKENDS", "1");
    let mut p = planned(LINUX, &[dynamic, ("CARGO_FEATURE_RPC", "1")]);
    for on in ["BUILD_SHARED_LIBS", "GGML_BACKEND_DL", "GGML_CPU_ALL_VARIANTS", "GGML_RPC"] {
        assert_eq!(define(&p, on), Some("ON"), "{on}");
    }
    // A single level would win over the variants, or be refused.
    assert_eq!((define(&p, "GGML_NATIVE"), define(&p, "GGML_AVX2")), (Some("OFF"), None));
    assert!(p.cpu.features.is_empty(), "the variant that is loaded suits the processor");
    let c = p.compile.clone().unwrap();
    assert_eq!(c.libraries, ["ggml", "ggml-base"], "backends are not linked");
    let lines = emit::link(Path::new("/out/lib"), &c, "gomp");
    assert!(lines.contains(&"cargo::rustc-link-lib=dylib=ggml".to_owned()), "{lines:?}");
    let facts = facts("/out", "/out/lib");
    let text = emit::config(&p, &facts);
    assert!(text.contains("pub const BACKEND_DIR: Option<&str> = Some(\"/out/lib/ggml\");"), "{text}");
    // H36: the variant that such a GCC breaks is left out, so that the next best is chosen.
    assert!(p.suit("#define __GNUC__ 14\n#define __GNUC_MINOR__ 1\n").is_none());
    assert!(p.compile.as_ref().unwrap().unusable.is_empty());
    assert!(p.suit("#define __GNUC__ 12\n#define __GNUC_MINOR__ 2\n").is_none());
    assert_eq!(p.compile.unwrap().unusable, ["libggml-cpu-sapphirerapids"]);
    for more in [("GGML_SYS_CPU", "x86-64-v3"), ("CARGO_FEATURE_NATIVE", "1")] {
        assert!(plan(&input(LINUX, &[dynamic, more])).unwrap_err().contains("dynamic-backends"), "{more:?}");
    }
}

/// Features by targets.
mod matrix {
    use super::*;

    const MAC: &str = "aarch64-apple-darwin";
    const MSVC: &str = "x86_64-pc-windows-msvc";
    const ANDROID: &str = "aarch64-linux-android";
    const TARGETS: [&str; 4] = [LINUX, MAC, MSVC, ANDROID];

    const LIBRARY: fn(&'static str) -> System = System::Library;
    const FRAMEWORK: fn(&'static str) -> System = System::Framework;

    fn on(feature: &str) -> (String, &'static str) {
        (format!("CARGO_FEATURE_{}", feature.to_uppercase().replace('-', "_")), "1")
    }

    /// The plan for a target with these features.
    fn with(target: &str, features: &[&str], more: &[(&str, &str)]) -> Result<Plan, String> {
        let features: Vec<_> = features.iter().map(|f| on(f)).collect();
        let all: Vec<_> =
            features.iter().map(|(name, value)| (name.as_str(), *value)).chain(more.iter().copied()).collect();
        plan(&input(target, &all))
    }

    /// What a static backend adds to the link line of a target, in the order of [`TARGETS`].
    #[test]
    fn backends_link_what_they_need() {
        let none = || Some(vec![]);
        let rows = [
            ("rpc", [none(), none(), Some(vec![LIBRARY("ws2_32")]), none()]),
            (
                "blas",
                [
                    Some(vec![LIBRARY("openblas")]),
                    none(),
                    Some(vec![LIBRARY("openblas")]),
                    Some(vec![LIBRARY("openblas")]),
                ],
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
                    assert!(
                        error.contains(&format!("`{feature}` is for")) && error.contains(target),
                        "{what}: {error}"
                    );
                    continue;
                };
                let p = with(target, &[feature], &[]).unwrap();
                let backend = backends::BACKENDS.iter().find(|b| b.name == feature).unwrap();
                for b in backends::BACKENDS {
                    assert_eq!(
                        define(&p, b.option),
                        Some(if b == backend { "ON" } else { "OFF" }),
                        "{what}: {}",
                        b.option
                    );
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
    fn every_feature_is_one_of_cargo() {
        let manifest: toml::Table = toml::from_str(include_str!("../Cargo.toml")).unwrap();
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
    fn backends_add_up() {
        let p = with(LINUX, &["rpc", "blas", "vulkan", "cuda", "opencl", "openmp"], &[]).unwrap();
        let c = p.compile.unwrap();
        let libraries =
            ["ggml", "ggml-rpc", "ggml-blas", "ggml-vulkan", "ggml-cuda", "ggml-opencl", "ggml-cpu", "ggml-base"];
        assert_eq!(c.libraries, libraries);
        assert!(c.system.contains(&System::OpenMp) && c.system.contains(&LIBRARY("openblas")));
        assert_eq!(c.sdks, [Sdk::OpenBlas, Sdk::Vulkan, Sdk::Cuda, Sdk::OpenCl]);
    }

    #[test]
    fn what_has_to_be_installed() {
        let sdks = |target, feature| with(target, &[feature], &[]).unwrap().compile.unwrap().sdks;
        assert_eq!(sdks(LINUX, "hip"), [Sdk::Rocm]);
        for feature in ["rpc", "blas", "metal", "opencl", "openmp", "native"] {
            assert!(sdks(MAC, feature).is_empty(), "{feature} comes with the system");
        }
        assert_eq!(sdks(MAC, "vulkan"), [Sdk::Vulkan]);
        assert_eq!((sdks(MSVC, "blas"), sdks(ANDROID, "blas")), (vec![Sdk::OpenBlas], vec![Sdk::OpenBlas]));
    }

    #[test]
    fn vendors_and_options_of_backends() {
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
    fn folders_of_others_are_searched_and_told_to_cmake() {
        let search = |target, feature: &str, more: &[(&str, &str)]| {
            with(target, &[feature], more).unwrap().compile.unwrap().search
        };
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
        for name in ["OPENBLAS_DIR", "VULKAN_SDK", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "OCL_ROOT", "GGML_SYS_PREFIX"]
        {
            assert!(rerun.contains(&format!("cargo::rerun-if-env-changed={name}")), "{name}");
        }
    }

    #[test]
    fn openmp_and_native_for_each_target() {
        for target in TARGETS {
            let p = with(target, &["openmp", "native"], &[]).unwrap();
            assert_eq!((define(&p, "GGML_OPENMP"), define(&p, "GGML_NATIVE")), (Some("ON"), Some("ON")), "{target}");
            assert!(p.compile.unwrap().system.contains(&System::OpenMp), "{target}");
        }
    }

    #[test]
    fn shared_libraries_bring_what_they_need() {
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
        // What is loaded is shared as well.
        let p = with(LINUX, &["dynamic-link", "dynamic-backends", "blas"], &[]).unwrap();
        assert_eq!((define(&p, "BUILD_SHARED_LIBS"), define(&p, "GGML_BACKEND_DL")), (Some("ON"), Some("ON")));
        let c = p.compile.unwrap();
        assert_eq!(
            (c.linkage, c.libraries, c.sdks),
            (Linkage::Modules, vec!["ggml", "ggml-base"], vec![Sdk::OpenBlas])
        );
    }

    #[test]
    fn cuda_and_hip_only_as_libraries_of_their_own() {
        let error = with(LINUX, &["cuda", "hip"], &[]).unwrap_err();
        assert!(error.contains("dynamic-backends"), "{error}");
        let p = with(LINUX, &["cuda", "hip", "dynamic-backends"], &[]).unwrap();
        assert_eq!(p.headers.iter().filter(|h| **h == "ggml-cuda.h").count(), 1);
    }

    #[test]
    fn an_installed_ggml_is_linked_and_not_compiled() {
        let p =
            with(LINUX, &["system", "rpc", "blas", "openmp", "native"], &[("GGML_SYS_PREFIX", "/opt/ggml")]).unwrap();
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

    #[test]
    fn docs_rs_documents_every_backend() {
        let all: Vec<_> = backends::BACKENDS.iter().map(|b| b.name).collect();
        let p = with(LINUX, &all, &[("DOCS_RS", "1")]).unwrap();
        assert_eq!((p.compile, p.backends.len()), (None, all.len()));
    }
}
