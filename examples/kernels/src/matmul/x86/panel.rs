//! Products of many rows of activations: the matrix is unpacked to panels of columns, in which the instruction reads it.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512,
};

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, Block};
use super::types::{self, Facts};
use super::{WIDTH, fetch};

/// The columns of a vector: rows of the matrix that are unpacked together.
pub(super) const HALF: usize = WIDTH / 2;
/// The values in a lane of the instruction.
const FOUR: usize = 4;

/// A block of each column.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(super) struct Panel {
    numbers: [[[[u8; FOUR]; HALF]; 2]; BLOCK / FOUR],
    scales: [[f32; HALF]; 2],
    offsets: [[f32; HALF]; 2],
}

/// Unpacks units of [`WIDTH`] rows of the matrix, from unit `first` on, as many of each row as there are panels for. An equal share
/// of the [`HALF`] rows that come next begins `ahead` bytes behind the first row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
pub(super) fn unpack<const T: u8, const BYTES: usize>(
    rows: &[&[[u8; BYTES]]; WIDTH],
    first: usize,
    ahead: usize,
    to: &mut [Panel],
) {
    const { assert!(BYTES == Facts::of(T).bytes, "a unit of the type") };
    let facts = const { Facts::of(T) };
    let n = to.len() / facts.blocks;
    for (half, rows) in rows.as_chunks::<HALF>().0.iter().enumerate() {
        // All of one length, so that indices are checked once.
        let mut parts: [&[[u8; BYTES]]; HALF] = [&[]; HALF];
        for (part, row) in parts.iter_mut().zip(rows) {
            *part = &row[first..first + n];
        }
        for (u, to) in to.chunks_exact_mut(facts.blocks).enumerate() {
            let mut units = [&[0; BYTES]; HALF];
            for (unit, part) in units.iter_mut().zip(parts) {
                *unit = &part[u];
            }
            types::scales::<T, BYTES>(units, |block, scales, offsets| {
                to[block].scales[half] = scales;
                to[block].offsets[half] = offsets;
            });
            let start = ahead + (first + u) * HALF * BYTES;
            let mut share = 0;
            types::numbers::<T, BYTES>(units, |block, k, numbers| {
                to[block].numbers[k][half] = bytemuck::cast(numbers);
                // A line after the other, as the processor can't wait for many.
                fetch(rows[0].as_flattened(), start + share);
                share += HALF * BYTES / (facts.blocks * BLOCK / FOUR);
            });
        }
    }
}

/// Adds the products of `R` rows of activations and a panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline]
pub(super) fn tile<const T: u8, const R: usize>(
    mut rows: [&[Block]; R],
    panel: &[Panel],
    mut sums: [[__m512; 2]; R],
) -> [[__m512; 2]; R] {
    let facts = const { Facts::of(T) };
    // Tells the compiler that all indices are in bounds.
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    for (i, block) in panel.iter().enumerate() {
        let mut whole = [[_mm512_setzero_si512(); 2]; R];
        if facts.offset != 0 {
            for (whole, row) in whole.iter_mut().zip(rows) {
                *whole = [_mm512_set1_epi32(-facts.offset * row[i].sum); 2];
            }
        }
        for (k, numbers) in block.numbers.iter().enumerate() {
            let [a, b]: [__m512i; 2] = bytemuck::cast(*numbers);
            for (whole, row) in whole.iter_mut().zip(rows) {
                let x: [i32; BLOCK / FOUR] = bytemuck::cast(row[i].numbers);
                let x = _mm512_set1_epi32(x[k]);
                whole[0] = _mm512_dpbusd_epi32(whole[0], a, x);
                whole[1] = _mm512_dpbusd_epi32(whole[1], b, x);
            }
        }
        let scales: [__m512; 2] = bytemuck::cast(block.scales);
        let offsets: [__m512; 2] = bytemuck::cast(block.offsets);
        for ((sums, whole), row) in sums.iter_mut().zip(whole).zip(rows) {
            let scale = _mm512_set1_ps(row[i].scale);
            let sum = _mm512_set1_ps(row[i].total());
            for v in 0..2 {
                let by = _mm512_mul_ps(scales[v], scale);
                sums[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[v]), by, sums[v]);
                if facts.offset == 0 {
                    sums[v] = _mm512_fnmadd_ps(offsets[v], sum, sums[v]);
                }
            }
        }
    }
    sums
}
