//! What a processor reaches at most: a loop of multiply-adds alone.

use std::hint::black_box;

use pulp::Simd;

#[cfg(target_arch = "aarch64")]
type Vectors = pulp::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
type Vectors = pulp::x86::V3;

/// How often all sums are added to.
const RUNS: u32 = 10_000_000;
/// As many as the delay of a multiply-add takes.
const SUMS: usize = 12;

/// Multiplies and adds in vectors of AVX2 or NEON for some hundredths of a second, and returns how many 10^9 operations these were; `None`
/// where the processor has neither.
pub fn multiply_adds() -> Option<f64> {
    let simd = Vectors::try_new()?;
    black_box(simd.vectorize(MultiplyAdds { simd }));
    Some(2.0 * f64::from(RUNS) * (SUMS * Vectors::F32_LANES) as f64 / 1e9)
}

struct MultiplyAdds {
    simd: Vectors,
}

impl pulp::NullaryFnOnce for MultiplyAdds {
    type Output = [<Vectors as Simd>::f32s; SUMS];

    // What is not inlined is not compiled for the processor's vectors.
    #[inline(always)]
    fn call(self) -> Self::Output {
        let simd = self.simd;
        let mut sums = black_box([simd.splat_f32s(0.0); SUMS]);
        let (a, b) = (simd.splat_f32s(black_box(1.5)), simd.splat_f32s(black_box(0.5)));
        for _ in 0..RUNS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(a, b, *sum);
            }
        }
        sums
    }
}
