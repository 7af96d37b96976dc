//! Products with matrices of floats. Activations and sums are `f32`.

use std::cell::RefCell;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use ggml::{
    DType,
    ops::{CustomOp, CustomOptions, Operands},
};
use pulp::NullaryFnOnce;

use super::activations::BLOCK;
use super::panel::HALF;
use super::set::Set;
use super::{Out, WIDTH, resize, weights};
use crate::panels::Row;

/// Up to so many rows of activations, a matrix is not unpacked.
const FEW: usize = 8;
/// The numbers of all rows of activations that are multiplied at a time, where there are few: they stay in the nearest cache.
const NEAR: usize = 4096;

/// A type of floats.
pub(super) trait Float: Send + Sync + 'static {
    const DTYPE: DType;
    /// The bytes of a vector.
    type Bytes<S: Set>: Pod;

    /// A vector from bytes.
    fn load<S: Set>(s: S, bytes: &Self::Bytes<S>) -> S::Floats;
}

pub(super) struct F32;
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
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<FloatScratch> = RefCell::default();
}

/// The operation for matrices of a type. Each task computes some columns of all rows, so that the matrix is read once.
pub(super) fn operation<S: Set, T: Float>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| multiply::<S, T>(s, Out::new(out), &operands, scratch));
    })
}

/// Computes columns of the product.
fn multiply<S: Set, T: Float>(s: S, mut out: Out<'_>, operands: &Operands<'_>, scratch: &mut FloatScratch) {
    let x = operands.rows::<f32>(1);
    let [_, n, ..] = x.shape();
    let row = |i| x.row([i, 0, 0]);
    with_rows(n, row, |rows| {
        out.each(|part, put| product::<S, T>(s, &weights(operands, part, 0), rows, scratch, put));
    });
}

/// Calls a function with a list of rows, for which a few need no memory.
pub(super) fn with_rows<'a>(n: usize, row: impl Fn(usize) -> &'a [f32], f: impl FnOnce(&[&'a [f32]])) {
    if n > FEW {
        return f(&(0..n).map(row).collect::<Vec<_>>());
    }
    let mut rows = [row(0); FEW];
    rows.iter_mut().enumerate().take(n).for_each(|(i, to)| *to = row(i));
    f(&rows[..n]);
}

/// The products of columns and rows of activations. Matrices stay packed where the rows are few.
pub(super) fn product<S: Set, T: Float>(
    s: S,
    columns: &[&[u8]; WIDTH],
    rows: &[&[f32]],
    scratch: &mut FloatScratch,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let (n, depth) = (rows.len(), rows[0].len());
    if n <= FEW {
        let mut all = [rows[0]; FEW];
        all[..n].copy_from_slice(rows);
        return match n {
            1 => few::<S, T, 8, 1>(s, columns, &all, n, put),
            2 => few::<S, T, 4, 2>(s, columns, &all, n, put),
            3 | 4 => few::<S, T, 2, 4>(s, columns, &all, n, put),
            _ => few::<S, T, 1, 8>(s, columns, &all, n, put),
        };
    }
    let deep = deep::<S>(depth);
    let (panel, sums) = (resize(&mut scratch.panel, deep), resize(&mut scratch.sums, n));
    sums.fill(Row::zeroed());
    for from in (0..depth).step_by(deep) {
        let panel = &mut panel[..deep.min(depth - from)];
        s.run(UnpackFloats::<S, T> { s, columns, from, panel, dtype: PhantomData });
        tiles(s, rows, from, panel, sums);
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
struct UnpackFloats<'a, S, T> {
    s: S,
    columns: &'a [&'a [u8]; WIDTH],
    from: usize,
    panel: &'a mut [Row],
    dtype: PhantomData<T>,
}

impl<S: Set, T: Float> NullaryFnOnce for UnpackFloats<'_, S, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { s, columns, from, panel, .. } = self;
        for (k, to) in panel.chunks_exact_mut(S::LANES).enumerate() {
            for (at, rows) in columns.chunks_exact(S::LANES).enumerate() {
                let mut square = S::Square::zeroed();
                for (to, row) in bytemuck::cast_slice_mut(std::slice::from_mut(&mut square)).iter_mut().zip(rows) {
                    let bytes = &vectors::<T::Bytes<S>, _>(row)[from / S::LANES + k];
                    s.fetch(bytes, row.len() * HALF); // the rows that come next
                    let numbers: S::Floats = T::load(s, bytes);
                    *to = numbers;
                }
                let square = s.transpose(square);
                let rows: &[f32] = bytemuck::cast_slice(std::slice::from_ref(&square));
                for (to, numbers) in to.iter_mut().zip(rows.chunks_exact(S::LANES)) {
                    to.0[at * S::LANES..][..S::LANES].copy_from_slice(numbers);
                }
            }
        }
    }
}

/// The rows of a panel that stay in the nearest cache.
pub(super) fn deep<S: Set>(depth: usize) -> usize {
    S::DEEP.saturating_mul(BLOCK).min(depth)
}

/// Adds the products of rows of activations and a panel, whose first row is `from` of the activations.
pub(super) fn tiles<S: Set>(s: S, rows: &[&[f32]], from: usize, panel: &[Row], sums: &mut [Row]) {
    // As many rows as registers hold; of the last ones, as few as there are.
    let most = if S::LANES == HALF { 12 } else { 6 };
    let whole = rows.len() / most * most;
    let ((rows, last_rows), (sums, last_sums)) = (rows.split_at(whole), sums.split_at_mut(whole));
    for (rows, sums) in [(rows, sums), (last_rows, last_sums)] {
        match rows.len() {
            0 => {}
            1 => s.run(FloatTiles::<S, 1, 2> { s, rows, from, panel, sums }),
            2 => s.run(FloatTiles::<S, 2, 2> { s, rows, from, panel, sums }),
            3 | 4 => s.run(FloatTiles::<S, 4, 2> { s, rows, from, panel, sums }),
            _ if S::LANES == HALF => s.run(FloatTiles::<S, 12, 2> { s, rows, from, panel, sums }),
            _ => s.run(FloatTiles::<S, 6, 2> { s, rows, from, panel, sums }),
        }
    }
}

/// Adds the products of `R` rows and `V` vectors of columns at a time.
struct FloatTiles<'a, S, const R: usize, const V: usize> {
    s: S,
    rows: &'a [&'a [f32]],
    from: usize,
    panel: &'a [Row],
    sums: &'a mut [Row],
}

impl<S: Set, const R: usize, const V: usize> NullaryFnOnce for FloatTiles<'_, S, R, V> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { s, rows: all_rows, from, panel, sums: all } = self;
        let last = all.len() - 1;
        for at in 0..WIDTH / S::LANES / V {
            for first in (0..all.len()).step_by(R) {
                let mut rows: [&[f32]; R] = [&[]; R];
                let mut sums = [[S::Floats::zeroed(); V]; R];
                for i in 0..R {
                    let row = (first + i).min(last);
                    rows[i] = &all_rows[row][from..][..panel.len()];
                    sums[i] = vectors(&all[row].0).as_chunks().0[at];
                }
                let sums = tile::<S, R, V>(s, rows, panel, at, sums);
                for (all, sums) in all[first..].iter_mut().zip(sums) {
                    all.0[at * V * S::LANES..][..V * S::LANES].copy_from_slice(bytemuck::cast_slice(&sums));
                }
            }
        }
    }
}

/// Adds the products of `R` rows and a panel's vectors from `V * at` on.
#[inline(always)]
fn tile<S: Set, const R: usize, const V: usize>(
    s: S,
    mut rows: [&[f32]; R],
    panel: &[Row],
    at: usize,
    mut sums: [[S::Floats; V]; R],
) -> [[S::Floats; V]; R] {
    // Tells the compiler that all indices are in bounds.
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    assert!(at < WIDTH / S::LANES / V, "vectors of a row");
    for (k, numbers) in panel.iter().enumerate() {
        let numbers: [S::Floats; V] = vectors(&numbers.0).as_chunks().0[at];
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = s.floats(row[k]);
            for v in 0..V {
                sums[v] = s.mul_add(numbers[v], x, sums[v]);
            }
        }
    }
    sums
}
