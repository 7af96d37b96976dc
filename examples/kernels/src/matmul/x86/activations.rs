//! Rows of activations in blocks of bytes.

use std::arch::x86_64::{
    __m512, _mm512_abs_ps, _mm512_add_epi32, _mm512_cvtepi32_epi8, _mm512_cvtps_epi32, _mm512_max_ps, _mm512_mul_ps,
    _mm512_reduce_add_epi32, _mm512_reduce_max_ps, _mm512_set1_ps,
};

use bytemuck::{Pod, Zeroable};

/// The number of values that share a scale.
pub(super) const BLOCK: usize = 32;

/// Numbers from -127 to 127, times a scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Block {
    pub(super) numbers: [i8; BLOCK],
    pub(super) scale: f32,
    /// The sum of the numbers.
    pub(super) sum: i32,
}

impl Block {
    /// The sum of the values.
    #[expect(clippy::cast_precision_loss, reason = "a sum of 32 bytes")]
    pub(super) fn total(&self) -> f32 {
        self.scale * self.sum as f32
    }
}

/// Quantises a row, as to `q8_0`, but with scales in `f32`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) fn quantise(row: &[f32], to: &mut [Block]) {
    for (to, from) in to.iter_mut().zip(row.as_chunks::<BLOCK>().0) {
        let [a, b]: [__m512; 2] = bytemuck::cast(*from);
        let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        let by = _mm512_set1_ps(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let [a, b] = [_mm512_cvtps_epi32(_mm512_mul_ps(a, by)), _mm512_cvtps_epi32(_mm512_mul_ps(b, by))];
        to.numbers = bytemuck::cast([_mm512_cvtepi32_epi8(a), _mm512_cvtepi32_epi8(b)]);
        to.scale = largest / 127.0;
        to.sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
    }
}
