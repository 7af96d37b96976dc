//! What only the C compiler knows.

use super::cpu;
use super::input::Input;

fn tool() -> Result<cc::Tool, String> {
    cc::Build::new().cargo_metadata(false).inherit_rustflags(false).try_get_compiler().map_err(|e| e.to_string())
}

/// Its OpenMP runtime.
pub(crate) fn openmp() -> &'static str {
    if tool().is_ok_and(|tool| tool.is_like_clang()) { "omp" } else { "gomp" }
}

/// What it compiles for on this machine when told to use all of it.
pub(crate) fn native(input: &Input) -> Result<Vec<&'static str>, String> {
    let tool = tool()?;
    if tool.is_like_msvc() {
        // cl has no such flag: ggml's build looks at the processor, which is this one.
        return Ok(detected());
    }
    let flag = if input.arch == "aarch64" { "-mcpu=native" } else { "-march=native" };
    let output = tool
        .to_command()
        .args([flag, "-dM", "-E", "-x", "c"])
        .arg(input.manifest_dir.join("shim/guard.h"))
        .output()
        .map_err(|e| format!("cannot run {}: {e}", tool.path().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} does not know {flag}:\n{said}", tool.path().display()));
    }
    Ok(cpu::features_of_macros(&String::from_utf8_lossy(&output.stdout)))
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn detected() -> Vec<&'static str> {
    macro_rules! detect {
        ($($name:tt),*) => {
            [$(($name, std::arch::is_x86_feature_detected!($name))),*]
        };
    }
    let known = detect!("sse4.2", "avx", "avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl");
    known.into_iter().filter(|(_, here)| *here).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn detected() -> Vec<&'static str> {
    vec![]
}
