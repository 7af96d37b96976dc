//! Products of many rows of activations: the matrix is unpacked to panels of columns, in which the instruction reads it.

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm256_setzero_si256, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_shuffle_i32x4,
};

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, Block};
use super::types::{self, Facts, Q4_0, Q4_K, Q8_0};
use super::{WIDTH, fetch, fours};

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

/// Unpacks [`WIDTH`] rows of the matrix, or as many bytes of each as there are panels for. An equal share of the [`HALF`] rows
/// that come next begins `ahead` bytes behind.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
pub(super) fn unpack<const T: u8>(rows: &[&[u8]; WIDTH], ahead: usize, to: &mut [Panel]) {
    match T {
        Q8_0 => unpack_units::<T, { Facts::of(Q8_0).bytes }>(rows, ahead, to),
        Q4_0 => unpack_units::<T, { Facts::of(Q4_0).bytes }>(rows, ahead, to),
        _ => unpack_units::<T, { Facts::of(Q4_K).bytes }>(rows, ahead, to),
    }
}

/// [`unpack`] with the bytes of a unit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
fn unpack_units<const T: u8, const BYTES: usize>(rows: &[&[u8]; WIDTH], ahead: usize, to: &mut [Panel]) {
    let facts = const { Facts::of(T) };
    let n = to.len() / facts.blocks;
    for (half, rows) in rows.as_chunks::<HALF>().0.iter().enumerate() {
        // All of one length, so that indices are checked once.
        let rows = rows.map(|row| &row.as_chunks::<BYTES>().0[..n]);
        for (u, to) in to.chunks_exact_mut(facts.blocks).enumerate() {
            let units = rows.map(|row| &row[u]);
            types::scales::<T, BYTES>(units, |block, scales, offsets| {
                to[block].scales[half] = scales;
                to[block].offsets[half] = offsets;
            });
            for (block, to) in to.iter_mut().enumerate() {
                // A share of the rows that come next, one line after the other.
                let share = HALF * BYTES / facts.blocks;
                let start = ahead + (u * facts.blocks + block) * share;
                (0..share).step_by(64).for_each(|line| fetch(&rows[0][0], start + line));
                let mut columns = [_mm256_setzero_si256(); HALF];
                for (column, unit) in columns.iter_mut().zip(units) {
                    *column = types::numbers::<T>(unit, block);
                }
                for (to, numbers) in to.numbers.iter_mut().zip(transpose(&columns)) {
                    to[half] = bytemuck::cast(numbers);
                }
            }
        }
    }
}

/// From sixteen columns of eight lanes to eight rows of 16 lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn transpose(columns: &[__m256i; HALF]) -> [__m512i; BLOCK / FOUR] {
    let mut out = [_mm512_setzero_si512(); BLOCK / FOUR];
    let mut quarters = [[_mm512_setzero_si512(); 4]; 2];
    for (q, quarter) in quarters.iter_mut().enumerate() {
        let z: [__m512i; 4] = [0, 1, 2, 3].map(|i| bytemuck::cast([columns[8 * q + i], columns[8 * q + i + 4]]));
        *quarter = fours(z);
    }
    for i in 0..4 {
        // Even lanes have lane `i` of the columns, odd ones lane `i + 4`.
        out[i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(quarters[0][i], quarters[1][i]);
        out[i + 4] = _mm512_shuffle_i32x4::<0b11_01_11_01>(quarters[0][i], quarters[1][i]);
    }
    out
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
