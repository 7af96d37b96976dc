//! Queries to the C compiler.

use super::input::Input;

fn tool() -> Result<cc::Tool, String> {
    cc::Build::new().cargo_metadata(false).inherit_rustflags(false).try_get_compiler().map_err(|e| e.to_string())
}

/// The name of its OpenMP runtime.
pub fn openmp() -> &'static str {
    if tool().is_ok_and(|tool| tool.is_like_clang()) { "omp" } else { "gomp" }
}

/// The predefined macros; with `native`, those for all features of this machine.
pub fn macros(input: &Input, native: bool) -> Result<String, String> {
    let tool = tool()?;
    if tool.is_like_msvc() {
        // cl can't list its macros and has no such flag; ggml's build detects this machine's processor instead.
        return Ok(if native { detected() } else { String::new() });
    }
    let flag = if input.arch == "aarch64" { "-mcpu=native" } else { "-march=native" };
    let output = tool
        .to_command()
        .args(native.then_some(flag))
        .args(["-dM", "-E", "-x", "c"])
        .arg(input.manifest_dir.join("shim/guard.h"))
        .output()
        .map_err(|e| format!("cannot run {}: {e}", tool.path().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} does not list its macros:\n{said}", tool.path().display()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The processor's features, written as another compiler's macros.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn detected() -> String {
    macro_rules! defines {
        ($($feature:tt => $name:literal),* $(,)?) => {
            [$((concat!("#define ", $name, " 1\n"), std::arch::is_x86_feature_detected!($feature))),*]
        };
    }
    let known = defines! {
        "sse4.2" => "__SSE4_2__",
        "avx" => "__AVX__",
        "avx2" => "__AVX2__",
        "fma" => "__FMA__",
        "f16c" => "__F16C__",
        "bmi2" => "__BMI2__",
        "avx512f" => "__AVX512F__",
        "avx512cd" => "__AVX512CD__",
        "avx512vl" => "__AVX512VL__",
        "avx512dq" => "__AVX512DQ__",
        "avx512bw" => "__AVX512BW__",
    };
    known.into_iter().filter(|(_, here)| *here).map(|(define, _)| define).collect()
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn detected() -> String {
    String::new()
}
