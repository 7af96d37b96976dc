//! The processor features that the CPU kernels are compiled for.
//!
//! ggml's own defaults are surprising: without `GGML_NATIVE` it enables AVX2, FMA and so on if host and target are the
//! same, and disables them otherwise. So every option is always passed.

use super::input::Input;

/// One of ggml's x86 options, and the features (rustc's names) that it enables in the compiler.
struct Isa {
    option: &'static str,
    features: &'static [&'static str],
    /// The lowest x86-64 level that includes it; 0 if none does.
    level: u8,
}

const ISAS: &[Isa] = &[
    Isa { option: "GGML_SSE42", features: &["sse4.2", "popcnt"], level: 2 },
    Isa { option: "GGML_AVX", features: &["avx"], level: 3 },
    Isa { option: "GGML_AVX2", features: &["avx2"], level: 3 },
    Isa { option: "GGML_FMA", features: &["fma"], level: 3 },
    Isa { option: "GGML_F16C", features: &["f16c"], level: 3 },
    Isa { option: "GGML_BMI2", features: &["bmi2"], level: 3 },
    Isa { option: "GGML_AVX512", features: &["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"], level: 4 },
    Isa { option: "GGML_AVX512_VBMI", features: &["avx512vbmi"], level: 0 },
    Isa { option: "GGML_AVX512_VNNI", features: &["avx512vnni"], level: 0 },
    Isa { option: "GGML_AVX512_BF16", features: &["avx512bf16"], level: 0 },
    Isa { option: "GGML_AVX_VNNI", features: &["avxvnni"], level: 0 },
    Isa { option: "GGML_AMX_TILE", features: &["amx-tile"], level: 0 },
    Isa { option: "GGML_AMX_INT8", features: &["amx-int8"], level: 0 },
    Isa { option: "GGML_AMX_BF16", features: &["amx-bf16"], level: 0 },
];

/// The default x86-64 level. Every x86 server and desktop processor since 2013 to 2015 has it; without it ggml is
/// several times slower.
const DEFAULT_LEVEL: u8 = 3;

/// The processor features of the kernels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpu {
    /// Whether to use everything that the build machine has.
    pub native: bool,
    /// All of ggml's processor options, for cmake.
    pub options: Vec<(&'static str, String)>,
    /// The features that the kernels rely on, in rustc's names. For `native`, empty until the compiler was queried.
    pub features: Vec<&'static str>,
}

/// Chooses the features. `GGML_SYS_CPU` has priority, then the feature `native`, then rustc's flags, then the default.
///
/// # Errors
///
/// An unknown `GGML_SYS_CPU`, or `native` when cross-compiling.
pub fn plan(input: &Input) -> Result<Cpu, String> {
    if input.feature("dynamic_backends") {
        return variants(input);
    }
    let x86 = matches!(input.arch.as_str(), "x86_64" | "x86");
    match input.cpu.as_deref() {
        Some("native") => native(input),
        Some(name) if x86 => {
            let level = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"].iter().zip(1..).find(|(n, _)| **n == name);
            let (_, level) = level.ok_or_else(|| {
                format!("GGML_SYS_CPU={name}: expected x86-64, x86-64-v2, x86-64-v3, x86-64-v4 or native")
            })?;
            Ok(by_level(level))
        }
        Some(name) if input.arch == "aarch64" && name.starts_with("armv") => Ok(arm(Some(name.to_owned()), vec![])),
        Some(name) => Err(format!(
            "GGML_SYS_CPU={name}: for {} expected native{}",
            input.target,
            if input.arch == "aarch64" { " or an -march value such as armv8.2-a+dotprod" } else { "" }
        )),
        None if input.feature("native") => native(input),
        None => match asked_of_rustc(input) {
            Asked::Native => native(input),
            Asked::Features if x86 => Ok(by_features(input)),
            Asked::Features if input.arch == "aarch64" => Ok(arm_by_features(input)),
            Asked::Nothing if x86 => Ok(by_level(DEFAULT_LEVEL)),
            _ => Ok(arm(None, vec![])),
        },
    }
}

/// One library per processor level; the matching one is chosen when backends are loaded.
fn variants(input: &Input) -> Result<Cpu, String> {
    if input.cpu.is_some() || input.feature("native") {
        return Err("with dynamic-backends the CPU's kernels are built for every level of processors, so neither \
                    GGML_SYS_CPU nor the feature `native` can choose one"
            .to_owned());
    }
    Ok(Cpu { native: false, options: vec![("GGML_NATIVE", on(false))], features: vec![] })
}

enum Asked {
    Nothing,
    Native,
    Features,
}

/// What the user set with `-Ctarget-cpu` or `-Ctarget-feature`.
fn asked_of_rustc(input: &Input) -> Asked {
    let mut asked = Asked::Nothing;
    let mut flags = input.rustflags.iter();
    while let Some(flag) = flags.next() {
        let option = match flag.as_str() {
            "-C" | "--codegen" => flags.next().map_or("", String::as_str),
            joined => joined.strip_prefix("-C").or_else(|| joined.strip_prefix("--codegen=")).unwrap_or(""),
        };
        match option.split_once('=') {
            Some(("target-cpu", "native")) => return Asked::Native,
            Some(("target-cpu" | "target-feature", _)) => asked = Asked::Features,
            _ => {}
        }
    }
    asked
}

fn native(input: &Input) -> Result<Cpu, String> {
    if input.host != input.target {
        return Err(format!(
            "`native` means the machine that builds, {}, but the target is {}: set GGML_SYS_CPU to the processor to compile for",
            input.host, input.target
        ));
    }
    let options = x86_options(|_| false).chain([("GGML_NATIVE", on(true))]).collect();
    Ok(Cpu { native: true, options, features: vec![] })
}

fn by_level(level: u8) -> Cpu {
    x86(|isa| (1..=level).contains(&isa.level))
}

/// Exactly the features that rustc compiles for, even if they are fewer than the default.
fn by_features(input: &Input) -> Cpu {
    // rustc's sse4.2 does not imply popcnt, as the C compilers' does; every processor with one has the other.
    let has = |name: &str| name == "popcnt" || input.target_features.iter().any(|f| f == name);
    // cl's /arch:AVX2 includes FMA and F16C.
    let along: &[&str] = if input.env == "msvc" { &["fma", "f16c"] } else { &[] };
    x86(|isa| {
        let along = if isa.option == "GGML_AVX2" { along } else { &[] };
        isa.features.iter().chain(along).all(|f| has(f))
    })
}

fn x86(enabled: impl Fn(&Isa) -> bool) -> Cpu {
    let features = ISAS.iter().filter(|isa| enabled(isa)).flat_map(|isa| isa.features).copied().collect();
    let options = x86_options(enabled).chain([("GGML_NATIVE", on(false))]).collect();
    Cpu { native: false, options, features }
}

fn x86_options(enabled: impl Fn(&Isa) -> bool) -> impl Iterator<Item = (&'static str, String)> {
    ISAS.iter().map(move |isa| (isa.option, on(enabled(isa))))
}

/// The aarch64 features that ggml has kernels for: rustc's names and `-march` names.
const ARM_FEATURES: &[(&str, &str)] =
    &[("dotprod", "dotprod"), ("fp16", "fp16"), ("i8mm", "i8mm"), ("sve", "sve"), ("sve2", "sve2")];

fn arm_by_features(input: &Input) -> Cpu {
    let has = |name: &str| input.target_features.iter().any(|f| f == name);
    let found: Vec<_> = ARM_FEATURES.iter().filter(|(rust, _)| has(rust)).collect();
    if found.is_empty() {
        return arm(None, vec![]);
    }
    let march = found.iter().fold("armv8.2-a".to_owned(), |march, (_, name)| march + "+" + name);
    arm(Some(march), found.iter().map(|(rust, _)| *rust).collect())
}

/// Without `march`, the compiler uses the target's baseline.
fn arm(march: Option<String>, features: Vec<&'static str>) -> Cpu {
    let march = march.map(|m| ("GGML_CPU_ARM_ARCH", m));
    Cpu { native: false, options: march.into_iter().chain([("GGML_NATIVE", on(false))]).collect(), features }
}

/// A boolean in cmake's spelling.
pub fn on(value: bool) -> String {
    if value { "ON" } else { "OFF" }.to_owned()
}
