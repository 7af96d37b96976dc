//! The processors that the CPU kernels are compiled for.

use super::*;

const V3: &[&str] = &["sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi2"];

fn features(target: &str, more: &[(&str, &str)]) -> Vec<&'static str> {
    planned(target, more).cpu.features
}

#[test]
fn cpu_default_is_level_3_on_any_host() {
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
fn cpu_levels_are_selected_by_name() {
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
fn cpu_follows_rustc_target_features() {
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
fn cpu_drops_avx512_if_a_part_is_missing() {
    let partial = [
        ("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=knl"),
        ("CARGO_CFG_TARGET_FEATURE", "avx,avx2,avx512cd,avx512f,bmi2,f16c,fma,sse4.2"),
    ];
    assert_eq!(features(LINUX, &partial), V3);
}

#[test]
fn cpu_on_msvc_drops_avx2_without_fma() {
    let given =
        [("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+avx2"), ("CARGO_CFG_TARGET_FEATURE", "avx,avx2,sse4.2")];
    assert_eq!(features("x86_64-pc-windows-msvc", &given), ["sse4.2", "popcnt", "avx"]);
    assert_eq!(features(LINUX, &given), ["sse4.2", "popcnt", "avx", "avx2"]);
}

#[test]
fn cpu_native_has_three_switches_and_is_refused_for_cross_builds() {
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
    // The variable has priority.
    let both = [("CARGO_FEATURE_NATIVE", "1"), ("GGML_SYS_CPU", "x86-64-v2")];
    assert_eq!(features(LINUX, &both), ["sse4.2", "popcnt"]);
}

#[test]
fn cpu_errors_list_the_known_names() {
    let error = plan(&input(LINUX, &[("GGML_SYS_CPU", "haswell")])).unwrap_err();
    assert!(error.contains("x86-64-v3"), "{error}");
    let error = plan(&input("aarch64-apple-darwin", &[("GGML_SYS_CPU", "x86-64-v3")])).unwrap_err();
    assert!(error.contains("-march"), "{error}");
}

#[test]
fn cpu_on_aarch64_is_the_baseline_or_as_named() {
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
fn compiler_macros_name_features() {
    let text = "#define __AVX2__ 1\n#define __AVX512F__ 1\n#define __AVX512FP16__X 1\n#undef __FMA__\n";
    assert_eq!(macros::features(text), ["avx2", "avx512f"]);
    assert_eq!(macros::features("#define __ARM_FEATURE_SVE 1"), ["sve"]);
}

const AMX: &str = "#define __AMX_TILE__ 1\n#define __AMX_INT8__ 1\n#define __AVX2__ 1\n";

#[test]
fn cpu_native_uses_the_features_of_the_compiler() {
    let mut p = planned(LINUX, &[("CARGO_FEATURE_NATIVE", "1")]);
    assert_eq!(p.suit(&format!("{AMX}#define __GNUC__ 14\n")), None);
    assert_eq!(p.cpu.features, ["avx2", "amx-tile", "amx-int8"]);
    let mut fixed = planned(LINUX, &[]);
    assert_eq!(fixed.suit("#define __AVX512F__ 1\n"), None);
    assert_eq!(fixed.cpu.features, V3);
}

#[test]
fn amx_is_dropped_for_compilers_that_lose_tile_configuration() {
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
    // Older compilers without AMX don't know the flag.
    let mut p = planned(LINUX, &[("CARGO_FEATURE_NATIVE", "1")]);
    assert_eq!(p.suit("#define __GNUC__ 9\n#define __AVX2__ 1\n"), None);
    assert_eq!(p.compile.unwrap().flags, ["-fexceptions"]);
}

#[test]
fn compilers_that_lose_tile_configuration_are_known() {
    let gcc = |major: u32, minor: u32| {
        macros::loses_tile_configuration(&format!("#define __GNUC__ {major}\n#define __GNUC_MINOR__ {minor}\n"))
    };
    for (major, fixed) in [(11, 5), (12, 4), (13, 3)] {
        assert!(gcc(major, fixed - 1) && !gcc(major, fixed), "{major}");
    }
    assert!(!gcc(14, 0) && !gcc(15, 1) && gcc(10, 9));
    assert!(!macros::loses_tile_configuration("#define __clang__ 1\n#define __GNUC__ 4\n"));
}
