//! Products of many rows of activations with matrices of `f16`, by tiles of `bf16`. Each number is a sum of two: the first
//! has its upper 8 bits, the second the rest of an `f16`, or the next 8 bits of an activation.

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtph_ps,
    _mm512_permutex2var_epi16, _mm512_set1_epi32, _mm512_sub_ps,
};

use bytemuck::Zeroable;
use ggml::ops::Operands;

use super::Avx512;
use super::amx::{AmxTile, AmxTiles, Pair, Split};
use super::transpose::transpose;
use crate::matmul::set::Set;
use crate::matmul::{Out, Put, WIDTH, resize, weights};

/// The rows of a tile, and the numbers in a vector.
const LANES: usize = 16;
/// The numbers in a tile's row.
const STEP: usize = 32;
/// The most bytes of activations at a time, so that they stay in the cache.
const MOST: usize = 3 << 19;

/// Memory that a thread keeps: rows and columns.
pub(super) type AmxScratch = (Vec<Split>, Vec<Pair>);

/// Computes columns of the product.
#[target_feature(enable = "avx512f,avx512bw,f16c")]
pub(super) fn multiply(
    s: Avx512,
    tiles: &AmxTiles,
    out: &mut Out<'_>,
    operands: &Operands<'_>,
    (packed_rows, columns): &mut AmxScratch,
) {
    let x = operands.rows::<f32>(1);
    let [depth, rows, ..] = x.shape();
    let steps = depth / STEP;
    let columns = resize(columns, steps);
    // Two tiles of rows at least.
    let part = (MOST / (steps * size_of::<Split>())).max(2) / 2 * 2 * LANES;
    for from in (0..rows).step_by(part) {
        let n = part.min(rows - from);
        let packed = resize(packed_rows, n.next_multiple_of(2 * LANES) / LANES * steps);
        for (i, tile) in packed.chunks_exact_mut(steps).enumerate() {
            // What rows have that aren't there doesn't matter: their sums aren't stored.
            for row in 0..LANES.min(n.saturating_sub(i * LANES)) {
                pack(x.row([from + i * LANES + row, 0, 0]), tile, row);
            }
        }
        let mut sums = [AmxTile::zeroed(); 4];
        out.each(|part, put| {
            unpack(s, &weights(operands, part, 0), columns);
            for (pair, first) in packed.chunks_exact(2 * steps).zip((from..).step_by(2 * LANES)) {
                let (a, b) = pair.split_at(steps);
                tiles.product([a, b], columns, &mut sums);
                let [aa, ab, ba, bb] = &sums;
                for (left, right, first) in [(aa, ab, first), (ba, bb, first + LANES)] {
                    store(left, right, first, from + n, put);
                }
            }
        });
    }
}

/// Stores the sums of rows from `first` on, up to `end`.
fn store(left: &AmxTile, right: &AmxTile, first: usize, end: usize, put: Put<'_>) {
    for (i, (left, right)) in left.0.iter().zip(&right.0).enumerate().take(end.saturating_sub(first)) {
        put(first + i, &bytemuck::cast([*left, *right]));
    }
}

/// Puts a row of activations into tiles.
#[target_feature(enable = "avx512f,avx512bw")]
fn pack(row: &[f32], tiles: &mut [Split], i: usize) {
    for ([to_high, to_low], numbers) in tiles.iter_mut().zip(row.as_chunks::<STEP>().0) {
        let (high, low) = split(bytemuck::cast(*numbers));
        (to_high.0[i], to_low.0[i]) = (bytemuck::cast(high), bytemuck::cast(low));
    }
}

/// The upper halves of 32 numbers, and those of what is left of them.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn split([a, b]: [__m512; 2]) -> (__m512i, __m512i) {
    // From 32 on those of the second vector.
    const UPPER: [u16; 32] = [
        1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57,
        59, 61, 63,
    ];
    let upper = |a, b| _mm512_permutex2var_epi16(_mm512_castps_si512(a), bytemuck::cast(UPPER), _mm512_castps_si512(b));
    let mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    let rest = |x| _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), mask)));
    (upper(a, b), upper(rest(a), rest(b)))
}

/// Unpacks [`WIDTH`] rows of the matrix.
#[target_feature(enable = "avx512f,avx512bw,f16c")]
fn unpack(s: Avx512, rows: &[&[u8]; WIDTH], to: &mut [Pair]) {
    for (k, [to_high, to_low]) in to.iter_mut().enumerate() {
        for (half, rows) in rows.as_chunks::<LANES>().0.iter().enumerate() {
            let (mut high, mut low) = ([__m512i::zeroed(); LANES], [__m512i::zeroed(); LANES]);
            for ((high, low), row) in high.iter_mut().zip(&mut low).zip(rows) {
                s.fetch(&row[2 * STEP * k], row.len() * LANES); // the rows that come next
                let numbers: [u8; 2 * STEP] = bytemuck::pod_read_unaligned(&row[2 * STEP * k..][..2 * STEP]);
                let [a, b]: [__m256i; 2] = bytemuck::cast(numbers);
                (*high, *low) = split([_mm512_cvtph_ps(a), _mm512_cvtph_ps(b)]);
            }
            // Lane i of each column becomes row i.
            for (tile, columns) in [(&mut to_high[half], &high), (&mut to_low[half], &low)] {
                for (to, row) in tile.0.iter_mut().zip(transpose(columns)) {
                    *to = bytemuck::cast(row);
                }
            }
        }
    }
}
