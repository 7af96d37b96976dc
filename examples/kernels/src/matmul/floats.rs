//! Products with matrices of floats. Activations and sums are `f32`.

use std::cell::RefCell;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use ggml::{
    DType,
    ops::{CustomOp, CustomOptions, Operands},
};
use pulp::NullaryFnOnce;

use super::float_rows::{FEW, Rows, with_rows};
use super::panel::HALF;
use super::set::Set;
use super::{Out, WIDTH, resize, weights};
use crate::panels::Row;

/// The numbers of all rows of activations that are multiplied at a time, where there are few: they stay in the nearest cache.
const NEAR: usize = 4096;

/// The rows of a panel that stay in the nearest cache, with the rows of activations that are multiplied.
pub(super) const DEEP: usize = 256;

/// A type of floats.
pub(crate) trait Float: Send + Sync + 'static {
    const DTYPE: DType;
    /// The bytes of a vector.
    type Bytes<S: Set>: Pod;

    /// A vector from bytes.
    fn load<S: Set>(s: S, bytes: &Self::Bytes<S>) -> S::Floats;
}

pub(crate) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Float for F32 {
    const DTYPE: DType = DType::F32;
    type Bytes<S: Set> = S::Bytes4;

    #[inline(always)]
    fn load<S: Set>(_: S, bytes: &S::Bytes4) -> S::Floats {
        bytemuck::cast(*bytes)
    }
}

impl Float for F16 {
    const DTYPE: DType = DType::F16;
    type Bytes<S: Set> = S::Bytes2;

    #[inline(always)]
    fn load<S: Set>(s: S, bytes: &S::Bytes2) -> S::Floats {
        s.halves(bytes)
    }
}

impl Float for Bf16 {
    const DTYPE: DType = DType::BF16;
    type Bytes<S: Set> = S::Bytes2;

    /// They are the upper halves of `f32`.
    #[inline(always)]
    fn load<S: Set>(_: S, bytes: &S::Bytes2) -> S::Floats {
        let mut all = [0_u32; 16];
        for (to, bytes) in all.iter_mut().zip(bytemuck::bytes_of(bytes).as_chunks().0) {
            *to = u32::from(u16::from_le_bytes(*bytes)) << 16;
        }
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&all[..S::LANES]))
    }
}

/// Memory for what is computed on the way.
#[derive(Default)]
pub(super) struct FloatScratch {
    panel: Vec<Row>,
    sums: Vec<Row>,
    /// Rows of activations, in parts.
    pub(super) parts: Vec<f32>,
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<FloatScratch> = RefCell::default();
}

/// The operation for matrices of a type. Each task computes some columns of all rows, so that the matrix is read once.
pub(super) fn operation<S: Set, T: Float>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        multiply::<S, T>(s, Out::new(out), &operands);
    })
}

/// Computes columns of the product.
pub(super) fn multiply<S: Set, T: Float>(s: S, mut out: Out<'_>, operands: &Operands<'_>) {
    let x = operands.rows::<f32>(1);
    let [_, n, ..] = x.shape();
    let row = |i| x.row([i, 0, 0]);
    SCRATCH.with_borrow_mut(|scratch| {
        with_rows(n, row, scratch, |rows, scratch| {
            out.each(|part, put| product::<S, T>(s, &weights(operands, part, 0), rows, scratch, put));
        });
    });
}

/// The products of columns and rows of activations. Matrices stay packed where the rows are few.
pub(super) fn product<S: Set, T: Float>(
    s: S,
    columns: &[&[u8]; WIDTH],
    Rows { n, depth, parts }: Rows<'_>,
    scratch: &mut FloatScratch,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    if n <= FEW {
        let mut all = [parts[0]; FEW];
        all[..n].copy_from_slice(parts);
        // As many sums as registers hold.
        return match n {
            1 => few::<S, T, 8, 1>(s, columns, &all, n, put),
            2 => few::<S, T, 4, 2>(s, columns, &all, n, put),
            3 | 4 if S::LANES == HALF => few::<S, T, 4, 4>(s, columns, &all, n, put),
            3 | 4 => few::<S, T, 2, 4>(s, columns, &all, n, put),
            _ if S::LANES == HALF => few::<S, T, 2, 8>(s, columns, &all, n, put),
            _ => few::<S, T, 1, 8>(s, columns, &all, n, put),
        };
    }
    let deep = DEEP.min(depth);
    let (panel, sums) = (resize(&mut scratch.panel, deep), resize(&mut scratch.sums, n));
    sums.fill(Row::zeroed());
    for (from, rows) in (0..depth).step_by(deep).zip(parts.chunks_exact(n)) {
        let panel = &mut panel[..deep.min(depth - from)];
        s.run(UnpackFloats::<S, T>::new(s, columns, from, panel));
        tiles(s, rows, panel, sums);
    }
    for (i, sums) in sums.iter().enumerate() {
        put(i, &sums.0);
    }
}

/// The products of up to `N` rows of activations, `C` columns at a time. The columns are far apart: memory is read faster at
/// several places at once.
fn few<S: Set, T: Float, const C: usize, const N: usize>(
    s: S,
    columns: &[&[u8]; WIDTH],
    rows: &[&[f32]; FEW],
    n: usize,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let sums = s.run(FewFloats::<S, T, C, N> { s, columns, rows, dtype: PhantomData });
    sums.iter().enumerate().take(n).for_each(|(i, sums)| put(i, sums));
}

struct FewFloats<'a, S, T, const C: usize, const N: usize> {
    s: S,
    columns: &'a [&'a [u8]; WIDTH],
    rows: &'a [&'a [f32]; FEW],
    dtype: PhantomData<T>,
}

impl<S: Set, T: Float, const C: usize, const N: usize> NullaryFnOnce for FewFloats<'_, S, T, C, N> {
    type Output = [[f32; WIDTH]; N];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { s, columns, rows, .. } = self;
        let apart = const { WIDTH / C };
        let columns = columns.map(vectors::<T::Bytes<S>, _>);
        let mut x: [&[S::Bytes4]; N] = [&[]; N];
        for (x, row) in x.iter_mut().zip(rows) {
            *x = vectors(row);
        }
        let n = x[0].len();
        let mut all = [[0.0; WIDTH]; N];
        for from in (0..n).step_by(NEAR / N / S::LANES) {
            let part = from..n.min(from + NEAR / N / S::LANES);
            let mut some: [&[S::Bytes4]; N] = [&[]; N];
            for (some, x) in some.iter_mut().zip(x) {
                *some = &x[part.clone()];
            }
            for i in 0..apart {
                // Behind the last column at each place come the first ones of the next `WIDTH` columns.
                let next = if i + 1 < apart { 1 } else { 1 + WIDTH - apart };
                let mut several: [&[T::Bytes<S>]; C] = [&[]; C];
                for (c, column) in several.iter_mut().enumerate() {
                    *column = &columns[i + c * apart][part.clone()];
                }
                let sums = dot::<S, T, C, N>(s, several, some, next * size_of_val(columns[0]));
                for (all, sums) in all.iter_mut().zip(sums) {
                    for (c, sum) in sums.into_iter().enumerate() {
                        all[i + c * apart] += sum;
                    }
                }
            }
        }
        all
    }
}

/// Numbers, as many at a time as a vector has.
#[inline(always)]
fn vectors<To: Pod, From: Pod>(row: &[From]) -> &[To] {
    let bytes: &[u8] = bytemuck::cast_slice(row);
    bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<To>() * size_of::<To>()])
}

/// The products of some columns, for each row of activations. What lies `ahead` bytes behind the columns is fetched.
#[inline(always)]
fn dot<S: Set, T: Float, const C: usize, const N: usize>(
    s: S,
    mut columns: [&[T::Bytes<S>]; C],
    mut rows: [&[S::Bytes4]; N],
    ahead: usize,
) -> [[f32; C]; N] {
    // Tells the compiler that all indices are in bounds.
    let n = rows[0].len();
    for column in &mut columns {
        *column = &column[..n];
    }
    for row in &mut rows {
        *row = &row[..n];
    }
    let mut sums = [[S::Floats::zeroed(); C]; N];
    for k in 0..n {
        for (c, column) in columns.iter().enumerate() {
            s.fetch(&column[k], ahead);
            let w = T::load(s, &column[k]);
            for (sums, row) in sums.iter_mut().zip(rows) {
                sums[c] = s.mul_add(w, bytemuck::cast(row[k]), sums[c]);
            }
        }
    }
    let mut all = [[0.0; C]; N];
    for (all, sums) in all.iter_mut().zip(sums) {
        for (all, sum) in all.iter_mut().zip(sums) {
            *all = s.sum(sum);
        }
    }
    all
}

/// Unpacks [`WIDTH`] rows of the matrix to the columns of a panel.
pub(crate) struct UnpackFloats<'a, S, T> {
    s: S,
    columns: &'a [&'a [u8]; WIDTH],
    from: usize,
    panel: &'a mut [Row],
    dtype: PhantomData<T>,
}

impl<'a, S, T> UnpackFloats<'a, S, T> {
    /// Unpacks as many numbers of each row, from `from` on, as the panel is deep.
    pub(crate) fn new(s: S, columns: &'a [&'a [u8]; WIDTH], from: usize, panel: &'a mut [Row]) -> Self {
        Self { s, columns, from, panel, dtype: PhantomData }
    }
}

impl<S: Set, T: Float> NullaryFnOnce for UnpackFloats<'_, S, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { s, columns, from, panel, .. } = self;
        let deep = panel.len();
        let panel = strips::<S>(panel);
        for (at, rows) in columns.chunks_exact(S::LANES).enumerate() {
            for k in 0..deep / S::LANES {
                let mut square = S::Square::zeroed();
                for (to, row) in bytemuck::cast_slice_mut(std::slice::from_mut(&mut square)).iter_mut().zip(rows) {
                    let bytes = &vectors::<T::Bytes<S>, _>(row)[from / S::LANES + k];
                    s.fetch(bytes, row.len() * HALF); // the rows that come next
                    let numbers: S::Floats = T::load(s, bytes);
                    *to = numbers;
                }
                let square = s.transpose(square);
                let rows: &[S::Floats] = bytemuck::cast_slice(std::slice::from_ref(&square));
                let to = &mut panel[at / 2 * deep + k * S::LANES..][..S::LANES];
                for (to, numbers) in to.iter_mut().zip(rows) {
                    to[at % 2] = *numbers;
                }
            }
        }
    }
}

/// A panel as strips of two vectors of columns, one strip after the other: what is multiplied at a time lies together, so that
/// it takes all places of the nearest cache.
#[inline(always)]
fn strips<S: Set>(panel: &mut [Row]) -> &mut [[S::Floats; 2]] {
    bytemuck::cast_slice_mut::<_, S::Floats>(panel).as_chunks_mut().0
}

/// Sets a number of a panel that is `deep` numbers deep.
pub(super) fn set<S: Set>(panel: &mut [Row], k: usize, column: usize, x: f32) {
    let (deep, width) = (panel.len(), 2 * S::LANES);
    let numbers: &mut [f32] = bytemuck::cast_slice_mut(panel);
    numbers[(column / width * deep + k) * width + column % width] = x;
}

/// Adds the products of rows, or parts of them, and a panel that is as deep, or deeper.
pub(crate) fn tiles<S: Set>(s: S, rows: &[&[f32]], panel: &[Row], sums: &mut [Row]) {
    // As many rows as registers hold; of the last ones, as few as there are.
    let most = if S::LANES == HALF { 12 } else { 6 };
    let whole = rows.len() / most * most;
    let ((rows, last_rows), (sums, last_sums)) = (rows.split_at(whole), sums.split_at_mut(whole));
    for (rows, sums) in [(rows, sums), (last_rows, last_sums)] {
        match rows.len() {
            0 => {}
            1 => s.run(FloatTiles::<S, 1> { s, rows, panel, sums }),
            2 => s.run(FloatTiles::<S, 2> { s, rows, panel, sums }),
            3 | 4 => s.run(FloatTiles::<S, 4> { s, rows, panel, sums }),
            _ if S::LANES == HALF => s.run(FloatTiles::<S, 12> { s, rows, panel, sums }),
            _ => s.run(FloatTiles::<S, 6> { s, rows, panel, sums }),
        }
    }
}

/// Adds the products of `R` rows and a strip of the panel at a time.
struct FloatTiles<'a, S, const R: usize> {
    s: S,
    rows: &'a [&'a [f32]],
    panel: &'a [Row],
    sums: &'a mut [Row],
}

impl<S: Set, const R: usize> NullaryFnOnce for FloatTiles<'_, S, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { s, rows: all_rows, panel, sums: all } = self;
        let last = all.len() - 1;
        let deep = all_rows[0].len();
        let numbers: &[[S::Floats; 2]] = bytemuck::cast_slice::<_, S::Floats>(panel).as_chunks().0;
        for (at, strip) in numbers.chunks_exact(panel.len()).enumerate() {
            let strip = &strip[..deep];
            for first in (0..all.len()).step_by(R) {
                let mut rows: [&[f32]; R] = [&[]; R];
                let mut next: [&[f32]; R] = [&[]; R];
                for i in 0..R {
                    let row = (first + i).min(last);
                    rows[i] = &all_rows[row][..deep];
                    next[i] = &all_rows[(row + R).min(last)][..deep];
                }
                let sums = tile::<S, R>(s, rows, next, strip);
                for (all, sums) in all[first..].iter_mut().zip(sums) {
                    let all: &mut [S::Floats] = bytemuck::cast_slice_mut(&mut all.0);
                    for (all, sum) in all[2 * at..].iter_mut().zip(sums) {
                        *all = s.mul_add(sum, s.floats(1.0), *all);
                    }
                }
            }
        }
    }
}

/// The numbers of a cache line.
const LINE: usize = 16;

/// The products of `R` rows and a strip. Fetches the next rows. (Sums that begin with others would be left in memory.)
#[inline(always)]
fn tile<S: Set, const R: usize>(
    s: S,
    mut rows: [&[f32]; R],
    mut next: [&[f32]; R],
    strip: &[[S::Floats; 2]],
) -> [[S::Floats; 2]; R] {
    // Tells the compiler that all indices are in bounds.
    for (row, next) in rows.iter_mut().zip(&mut next) {
        (*row, *next) = (&row[..strip.len()], &next[..strip.len()]);
    }
    let mut sums = [[S::Floats::zeroed(); 2]; R];
    for (k, numbers) in strip.iter().enumerate() {
        if k % LINE == 0 {
            for row in next {
                s.fetch(&row[k], 0);
            }
        }
        for (sums, row) in sums.iter_mut().zip(rows) {
            // A loop here would leave the sums in memory where there are many.
            let x = s.floats(row[k]);
            *sums = [s.mul_add(numbers[0], x, sums[0]), s.mul_add(numbers[1], x, sums[1])];
        }
    }
    sums
}
