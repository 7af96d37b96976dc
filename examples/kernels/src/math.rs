//! Functions of scalars and of rows, written so that the compiler vectorises their loops.

/// The number of separate partial sums, as in a SIMD vector.
const LANES: usize = 16;

/// Adding it to a number below 2^22 leaves the nearest integer in the lowest bits.
pub(super) const WHOLE: f32 = 12_582_912.0;

/// `erf(x) = x p(x^2) / q(x^2)` up to 4e-7, fitted by weighted least squares to minimise the maximum error.
const ERF_P: [f32; 6] =
    [std::f32::consts::FRAC_2_SQRT_PI, 0.191_941_5, 0.052_966_985, 0.003_836_898_2, 0.000_287_457_92, 2.050_385_5e-6];
const ERF_Q: [f32; 6] = [1.0, 0.503_435_5, 0.114_758_41, 0.015_109_248, 0.001_181_740_2, 3.823_076e-5];
/// Above this, `erf` rounds to 1 in f32.
const ERF_END: f32 = 3.9;

#[inline(always)]
fn polynomial<const N: usize>(x: f32, factors: [f32; N]) -> f32 {
    let mut sum = factors[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum.mul_add(x, factors[i]);
    }
    sum
}

/// `x / 2 (1 + erf(x / sqrt 2))`.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    let y = x * std::f32::consts::FRAC_1_SQRT_2;
    let squared = y * y;
    let erf = y * polynomial(squared, ERF_P) / polynomial(squared, ERF_Q);
    let erf = if y.abs() < ERF_END { erf } else { 1.0_f32.copysign(y) };
    0.5 * x * (1.0 + erf)
}

/// `e^x` for `x <= 0`, or NaN; 0 below -87.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// ln 2 in two parts; the first has enough trailing zeros for exact products.
    const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    /// The first two are those of `e^x`; with the others, the error is 3e-9 at most up to ln 2 / 2.
    const FACTORS: [f32; 7] = [1.0, 1.0, 0.499_999_94, 0.166_665_2, 0.041_668_393, 0.008_368_781, 0.001_381_446_7];
    let is_small = x < -87.0;
    let x = if is_small { -87.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, WHOLE);
    let powers = shifted - WHOLE;
    let rest = powers.mul_add(-LN_2[1], powers.mul_add(-LN_2[0], x));
    // A NaN stays one: what its exponent becomes doesn't matter to a product.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if is_small { 0.0 } else { polynomial(rest, FACTORS) * power }
}

#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let power = exp(-2.0 * x.abs());
    ((1.0 - power) / (1.0 + power)).copysign(x)
}

/// Reduces `each` of the values by `join`, [`LANES`] at a time.
#[inline(always)]
fn fold(row: &[f32], start: f32, each: impl Fn(f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [start; LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = join(*lane, each(x));
        }
    }
    for n in [LANES / 2, LANES / 4, LANES / 8, LANES / 16] {
        for i in 0..n {
            lanes[i] = join(lanes[i], lanes[n + i]);
        }
    }
    rest.iter().fold(lanes[0], |all, &x| join(all, each(x)))
}

#[inline(always)]
pub(super) fn max(row: &[f32]) -> f32 {
    fold(row, f32::NEG_INFINITY, |x| x, |a, b| if a > b { a } else { b })
}

#[inline(always)]
pub(super) fn sum(row: &[f32], each: impl Fn(f32) -> f32) -> f32 {
    fold(row, 0.0, each, |a, b| a + b)
}

/// Layer norm of a row, with scale and bias.
#[inline(always)]
pub(super) fn norm(row: &mut [f32], scale: &[f32], shift: &[f32], eps: f32) {
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let share = 1.0 / row.len() as f32;
    let mean = sum(row, |x| x) * share;
    let variance = sum(row, |x| (x - mean) * (x - mean)) * share;
    let by = 1.0 / (variance + eps).sqrt();
    for ((x, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
        *x = (*x - mean) * by * scale + shift;
    }
}
