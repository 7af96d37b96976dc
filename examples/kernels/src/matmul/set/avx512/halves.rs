//! Products with matrices of `f16`. Activations and sums are `f32`.

use std::arch::x86_64::{
    __m256i, __m512, _MM_FROUND_CUR_DIRECTION, _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_cvt_roundph_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4,
    _mm512_shuffle_i32x4,
};

use ggml::ops::Operands;

use super::{fetch, fours};
use crate::matmul::{Out, WIDTH, resize, weights};

/// Up to so many rows of activations, the matrix is not unpacked.
pub(super) const FEW: usize = 8;

/// The numbers of a vector.
const LANES: usize = 16;

/// The vectors of a row that are multiplied at a time: those of [`FEW`] rows of activations stay in the nearest cache.
const PART: usize = 64;

/// The rows of activations whose sums, for a panel's columns, fit into the registers.
const ROWS: usize = 12;

/// Computes columns of the product.
#[target_feature(enable = "avx512f,f16c")]
pub(super) fn multiply(mut out: Out<'_>, operands: &Operands<'_>, panel: &mut Vec<PanelRow>) {
    let x = operands.rows::<f32>(1);
    let [depth, rows, ..] = x.shape();
    let row = |i: usize| x.row([i.min(rows - 1), 0, 0]);
    if rows <= FEW {
        let with: [&[f32]; FEW] = std::array::from_fn(row);
        out.each(|part, put| {
            let columns = &weights(operands, part, 0);
            match rows {
                1 => few::<16, 1>(columns, &with, rows, put),
                2 => few::<8, 2>(columns, &with, rows, put),
                3 | 4 => few::<4, 4>(columns, &with, rows, put),
                _ => few::<2, 8>(columns, &with, rows, put),
            }
        });
        return;
    }
    let panel = resize(panel, depth);
    out.each(|part, put| {
        unpack(&weights(operands, part, 0), panel);
        for first in (0..rows).step_by(ROWS) {
            let sums = tile::<ROWS>(std::array::from_fn(|i| row(first + i)), panel);
            for (i, sums) in sums.into_iter().enumerate().take(rows - first) {
                put(first + i, bytemuck::cast_slice(&sums));
            }
        }
    });
}

/// The products of up to `N` rows of activations, `R` columns at a time, so that there are [`LANES`] sums. The columns are
/// far apart: memory is read faster at several places at once.
#[target_feature(enable = "avx512f,f16c")]
fn few<const R: usize, const N: usize>(
    columns: &[&[u8]; WIDTH],
    with: &[&[f32]; FEW],
    rows: usize,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    const { assert!(R * N == LANES, "a lane for each sum") };
    let apart = const { WIDTH / R };
    let bytes = columns[0].len();
    let mut sums = [_mm512_setzero_ps(); LANES];
    for from in (0..with[0].len() / LANES).step_by(PART) {
        let mut some = [Default::default(); N];
        for (some, row) in some.iter_mut().zip(with) {
            *some = part(row.as_chunks().0, from);
        }
        for (i, sums) in sums.iter_mut().enumerate().take(apart) {
            // Behind the last column at each place come the first ones of the next `WIDTH` columns.
            let next = if i + 1 < apart { 1 } else { 1 + WIDTH - apart };
            let mut rows = [Default::default(); R];
            for (row, column) in rows.iter_mut().zip(columns[i..].iter().step_by(apart)) {
                *row = part(column.as_chunks().0, from);
            }
            *sums = _mm512_add_ps(*sums, dot(&rows, &some, next * bytes));
        }
    }
    let sums: [[f32; LANES]; LANES] = bytemuck::cast(transpose(&sums));
    for (j, sums) in sums.as_chunks::<R>().0.iter().enumerate().take(rows) {
        let mut values = [0.0; WIDTH];
        for (values, sums) in values.chunks_exact_mut(apart).zip(sums) {
            values.copy_from_slice(&sums[..apart]);
        }
        put(j, &values);
    }
}

/// Up to [`PART`] vectors of a row.
#[inline]
fn part<T>(row: &[T], from: usize) -> &[T] {
    &row[from..row.len().min(from + PART)]
}

/// The products of `R` rows of the matrix and `N` rows of activations: lane `R * j + r` is that of row `r` and activations
/// `j`. What lies `ahead` bytes behind the rows is fetched.
#[target_feature(enable = "avx512f,f16c")]
#[inline]
fn dot<const R: usize, const N: usize>(
    rows: &[&[[u8; 2 * LANES]]; R],
    with: &[&[[f32; LANES]]; N],
    ahead: usize,
) -> __m512 {
    let n = with[0].len();
    let (mut rows, mut with) = (*rows, *with);
    for row in &mut rows {
        *row = &row[..n];
    }
    for row in &mut with {
        *row = &row[..n];
    }
    let mut sums = [[_mm512_setzero_ps(); N]; R];
    for k in 0..n {
        for (sums, row) in sums.iter_mut().zip(rows) {
            fetch(&row[k], ahead);
            // Unlike `_mm512_cvtph_ps`, this reads from memory itself.
            let w = _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(bytemuck::cast(row[k]));
            for (sum, with) in sums.iter_mut().zip(with) {
                *sum = _mm512_fmadd_ps(w, bytemuck::cast(with[k]), *sum);
            }
        }
    }
    let mut all = [_mm512_setzero_ps(); LANES];
    for (r, sums) in sums.into_iter().enumerate() {
        for (j, sum) in sums.into_iter().enumerate() {
            all[R * j + r] = sum;
        }
    }
    lanes(&all)
}

/// The sum of the numbers of each vector, in a lane for each.
#[target_feature(enable = "avx512f")]
#[inline]
fn lanes(vectors: &[__m512; LANES]) -> __m512 {
    let v = |i: usize| _mm512_castps_si512(vectors[i]);
    // Lanes `q` to `q + 3`, in each 128 bits for a quarter of the numbers.
    let four = |q: usize| {
        let [a, b, c, d]: [__m512; 4] = bytemuck::cast(fours([v(q), v(q + 1), v(q + 2), v(q + 3)]));
        _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))
    };
    let halve = |a, b| {
        let (even, odd) = (_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
        _mm512_add_ps(even, odd)
    };
    halve(halve(four(0), four(4)), halve(four(8), four(12)))
}

/// A number of each column of a panel.
pub(super) type PanelRow = [[f32; LANES]; 2];

/// Unpacks [`WIDTH`] rows of the matrix to the columns of a panel.
#[target_feature(enable = "avx512f,f16c")]
fn unpack(rows: &[&[u8]; WIDTH], to: &mut [PanelRow]) {
    for (k, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        for half in 0..2 {
            let mut columns = [_mm512_setzero_ps(); LANES];
            for (column, row) in columns.iter_mut().zip(&rows[half * LANES..]) {
                fetch(&row[2 * LANES * k..], row.len() * LANES); // the rows that come next
                let halves: __m256i = bytemuck::pod_read_unaligned(&row[2 * LANES * k..][..2 * LANES]);
                *column = _mm512_cvtph_ps(halves);
            }
            for (to, row) in to.iter_mut().zip(transpose(&columns)) {
                to[half] = bytemuck::cast(row);
            }
        }
    }
}

/// From 16 columns to 16 rows.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn transpose(columns: &[__m512; LANES]) -> [__m512; LANES] {
    let c = |i: usize| _mm512_castps_si512(columns[i]);
    // Rows 4 * lane + i of four columns, for each lane.
    let four = |q: usize| fours([c(q), c(q + 1), c(q + 2), c(q + 3)]);
    let fours = [four(0), four(4), four(8), four(12)];
    let mut out = *columns;
    for i in 0..4 {
        let [a, b, c, d] = [fours[0][i], fours[1][i], fours[2][i], fours[3][i]];
        let even = [_mm512_shuffle_i32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d)];
        let odd = [_mm512_shuffle_i32x4::<0b11_01_11_01>(a, b), _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d)];
        // Lanes 0 and 2 of each are in `even`, lanes 1 and 3 in `odd`.
        out[i] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0b10_00_10_00>(even[0], even[1]));
        out[8 + i] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0b11_01_11_01>(even[0], even[1]));
        out[4 + i] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0b10_00_10_00>(odd[0], odd[1]));
        out[12 + i] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0b11_01_11_01>(odd[0], odd[1]));
    }
    out
}

/// The products of `R` rows of activations and a panel.
#[target_feature(enable = "avx512f")]
#[inline]
fn tile<const R: usize>(mut rows: [&[f32]; R], panel: &[PanelRow]) -> [[__m512; 2]; R] {
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    for (k, numbers) in panel.iter().enumerate() {
        let [a, b]: [__m512; 2] = bytemuck::cast(*numbers);
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = _mm512_set1_ps(row[k]);
            *sums = [_mm512_fmadd_ps(a, x, sums[0]), _mm512_fmadd_ps(b, x, sums[1])];
        }
    }
    sums
}
