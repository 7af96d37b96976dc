//! CPU features that the CPU backend uses.

use std::fmt;

use super::Device;
use crate::callback;
use crate::error::Result;

macro_rules! features {
    ($($field:ident = $name:literal, $alias:literal, $doc:literal;)*) => {
        /// The CPU features that the CPU backend was compiled for and the CPU has, made by [`features`]. `Display`
        /// prints ggml's names.
        ///
        /// ```
        /// # use ggml::prelude::*;
        /// let features = ggml::cpu::features()?;
        /// println!("{features}"); // such as SSE3 = 1 | AVX2 = 1
        /// if cfg!(target_arch = "x86_64") {
        ///     assert!(!features.neon && features.sve_bytes == 0);
        /// }
        /// # Ok::<(), ggml::Error>(())
        /// ```
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Features {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                #[doc(alias = $alias)]
                pub $field: bool,
            )*
            /// The bytes of an SVE vector; 0 without SVE (`ggml_cpu_get_sve_cnt`).
            #[doc(alias = "ggml_cpu_get_sve_cnt")]
            pub sve_bytes: usize,
            /// The bytes of a RISC-V vector; 0 without the vector extension (`ggml_cpu_get_rvv_vlen`).
            #[doc(alias = "ggml_cpu_get_rvv_vlen")]
            pub riscv_v_bytes: usize,
            /// Other compile options, such as `OPENMP` or `REPACK`.
            pub others: Vec<String>,
        }

        impl Features {
            /// The field of the feature with ggml's `name`, or `None` if it has no field.
            fn flag(&mut self, name: &str) -> Option<&mut bool> {
                match name {
                    $($name => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// ggml's names of the present features.
            fn names(&self) -> impl Iterator<Item = &str> {
                let flags = [$(($name, self.$field)),*];
                let flags = flags.into_iter().filter_map(|(name, there)| there.then_some(name));
                flags.chain(self.others.iter().map(String::as_str))
            }
        }
    };
}

features! {
    sse3 = "SSE3", "ggml_cpu_has_sse3", "SSE3";
    ssse3 = "SSSE3", "ggml_cpu_has_ssse3", "SSSE3";
    avx = "AVX", "ggml_cpu_has_avx", "AVX";
    avx_vnni = "AVX_VNNI", "ggml_cpu_has_avx_vnni", "AVX-VNNI";
    avx2 = "AVX2", "ggml_cpu_has_avx2", "AVX2";
    f16c = "F16C", "ggml_cpu_has_f16c", "F16C, conversions of half floats";
    fma = "FMA", "ggml_cpu_has_fma", "FMA";
    bmi2 = "BMI2", "ggml_cpu_has_bmi2", "BMI2";
    avx512 = "AVX512", "ggml_cpu_has_avx512", "AVX-512 F";
    avx512_vbmi = "AVX512_VBMI", "ggml_cpu_has_avx512_vbmi", "AVX-512 VBMI";
    avx512_vnni = "AVX512_VNNI", "ggml_cpu_has_avx512_vnni", "AVX-512 VNNI";
    avx512_bf16 = "AVX512_BF16", "ggml_cpu_has_avx512_bf16", "AVX-512 BF16";
    amx_int8 = "AMX_INT8", "ggml_cpu_has_amx_int8", "AMX for 8-bit integers";
    neon = "NEON", "ggml_cpu_has_neon", "Arm's NEON";
    arm_fma = "ARM_FMA", "ggml_cpu_has_arm_fma", "Arm's FMA";
    fp16_va = "FP16_VA", "ggml_cpu_has_fp16_va", "Arm's vectors of half floats";
    dotprod = "DOTPROD", "ggml_cpu_has_dotprod", "Arm's dot products";
    matmul_int8 = "MATMUL_INT8", "ggml_cpu_has_matmul_int8", "Arm's products of 8-bit matrices";
    sve = "SVE", "ggml_cpu_has_sve", "Arm's SVE";
    sme = "SME", "ggml_cpu_has_sme", "Arm's SME";
    sme2 = "SME2", "ggml_cpu_has_sme2", "Arm's SME2";
    riscv_v = "RISCV_V", "ggml_cpu_has_riscv_v", "RISC-V's vectors";
    vsx = "VSX", "ggml_cpu_has_vsx", "POWER's VSX";
    vxe = "VXE", "ggml_cpu_has_vxe", "z/Architecture's vectors";
    wasm_simd = "WASM_SIMD", "ggml_cpu_has_wasm_simd", "WebAssembly's vectors";
    llamafile = "LLAMAFILE", "ggml_cpu_has_llamafile", "llamafile's matrix products";
}

/// The CPU features that the CPU backend was compiled for and the CPU has (`ggml_backend_get_features`).
///
/// ```
/// let features = ggml::cpu::features()?;
/// println!("{features}");
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Errors
///
/// As [`Device::cpu`].
pub fn features() -> Result<Features> {
    callback::check_reentry("cpu::features")?;
    let mut features = Features::default();
    let Some(registry) = Device::cpu()?.registry() else { return Ok(features) };
    for (name, value) in registry.features()? {
        match name.as_str() {
            "SVE_CNT" => features.sve_bytes = value.parse().unwrap_or(0),
            "RVV_VLEN" => features.riscv_v_bytes = value.parse().unwrap_or(0),
            _ => match features.flag(&name) {
                Some(flag) => *flag = true,
                None => features.others.push(name),
            },
        }
    }
    Ok(features)
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))?;
        for (name, bytes) in [("SVE_CNT", self.sve_bytes), ("RVV_VLEN", self.riscv_v_bytes)] {
            if bytes > 0 {
                write!(f, " {name}={bytes}")?;
            }
        }
        Ok(())
    }
}
