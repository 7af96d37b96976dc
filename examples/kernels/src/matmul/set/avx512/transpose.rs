//! Squares of numbers.

use std::arch::x86_64::{
    __m512i, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};

/// The lanes of a vector.
const LANES: usize = 16;

/// From 16 columns to 16 rows.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn transpose(columns: &[__m512i; LANES]) -> [__m512i; LANES] {
    // Rows 4 * lane + i of four columns, for each lane.
    let four = |q: usize| fours([columns[q], columns[q + 1], columns[q + 2], columns[q + 3]]);
    let fours = [four(0), four(4), four(8), four(12)];
    let mut out = *columns;
    for i in 0..4 {
        let [a, b, c, d] = [fours[0][i], fours[1][i], fours[2][i], fours[3][i]];
        let even = [_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0b11_01_11_01>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d)];
        // Lanes 0 and 2 of each are in `even`, lanes 1 and 3 in `odd`.
        out[i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even[0], even[1]);
        out[8 + i] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even[0], even[1]);
        out[4 + i] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd[0], odd[1]);
        out[12 + i] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd[0], odd[1]);
    }
    out
}

/// Lane `i` of four columns, side by side in each 128 bits, as vector `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn fours(columns: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(columns[0], columns[1]), _mm512_unpackhi_epi32(columns[0], columns[1]));
    let (c, d) = (_mm512_unpacklo_epi32(columns[2], columns[3]), _mm512_unpackhi_epi32(columns[2], columns[3]));
    [_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)]
}
