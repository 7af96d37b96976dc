//! The C compiler's predefined macros, as `-dM -E` lists them.

/// Macros for processor features, with rustc's names of the features.
const MACROS: &[(&str, &str)] = &[
    ("__SSE4_2__", "sse4.2"),
    ("__POPCNT__", "popcnt"),
    ("__LZCNT__", "lzcnt"),
    ("__MOVBE__", "movbe"),
    ("__AVX__", "avx"),
    ("__AVX2__", "avx2"),
    ("__FMA__", "fma"),
    ("__F16C__", "f16c"),
    ("__BMI__", "bmi1"),
    ("__BMI2__", "bmi2"),
    ("__GFNI__", "gfni"),
    ("__AVXVNNI__", "avxvnni"),
    ("__AVX512F__", "avx512f"),
    ("__AVX512CD__", "avx512cd"),
    ("__AVX512VL__", "avx512vl"),
    ("__AVX512DQ__", "avx512dq"),
    ("__AVX512BW__", "avx512bw"),
    ("__AVX512IFMA__", "avx512ifma"),
    ("__AVX512VBMI__", "avx512vbmi"),
    ("__AVX512VBMI2__", "avx512vbmi2"),
    ("__AVX512VNNI__", "avx512vnni"),
    ("__AVX512BITALG__", "avx512bitalg"),
    ("__AVX512VPOPCNTDQ__", "avx512vpopcntdq"),
    ("__AVX512BF16__", "avx512bf16"),
    ("__AVX512FP16__", "avx512fp16"),
    ("__AMX_TILE__", "amx-tile"),
    ("__AMX_INT8__", "amx-int8"),
    ("__AMX_BF16__", "amx-bf16"),
    ("__ARM_FEATURE_DOTPROD", "dotprod"),
    ("__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "fp16"),
    ("__ARM_FEATURE_MATMUL_INT8", "i8mm"),
    ("__ARM_FEATURE_SVE", "sve"),
    ("__ARM_FEATURE_SVE2", "sve2"),
];

/// The features in a list of macros (`-dM -E`).
pub fn features(text: &str) -> Vec<&'static str> {
    let defined: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("#define ")?.split(' ').next()).collect();
    MACROS.iter().filter(|(name, _)| defined.contains(name)).map(|(_, feature)| *feature).collect()
}

/// Whether this GCC miscompiles AMX: its `_tile_loadconfig` tells the optimiser that it reads 8 of the 64 bytes, so
/// stores to the others are dropped and the first tile instruction faults. Fixed in 11.5, 12.4, 13.3 and 14 (GCC bug
/// 114098).
pub fn loses_tile_configuration(text: &str) -> bool {
    let value = |name: &str| {
        let start = format!("#define {name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.trim().parse::<u32>().ok())
    };
    if value("__clang__").is_some() {
        return false;
    }
    match (value("__GNUC__"), value("__GNUC_MINOR__").unwrap_or(0)) {
        (Some(11), minor) => minor < 5,
        (Some(12), minor) => minor < 4,
        (Some(13), minor) => minor < 3,
        (Some(major), _) => major < 11,
        (None, _) => false,
    }
}
