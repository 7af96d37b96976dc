//! Products with matrices in blocks of integers.

use std::cell::RefCell;
use std::marker::PhantomData;

use bytemuck::Zeroable;
use ggml::ops::{CustomOp, CustomOptions, Operands};
use pulp::NullaryFnOnce;

use super::activations::{self, BLOCK, Block};
use super::panel::{self, HALF, Panel};
use super::set::Set;
use super::types::{self, Type, each_block};
use super::{Out, WIDTH, resize, weights};
use crate::panels::Row;

/// Up to so many rows of activations, a matrix is unpacked by parts.
const SEVERAL: usize = 16;
/// The blocks of such a part, of which depths are multiples.
const PART: usize = 8;
/// How far ahead of their use weights are fetched, in bytes: rows are read one by one, and the next rows follow.
const AHEAD: usize = 1024;

/// Memory for what is computed on the way.
#[derive(Default)]
struct Scratch {
    blocks: Vec<Block>,
    panel: Vec<Panel>,
    sums: Vec<Row>,
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The operation for matrices of a type. Each task computes some columns of all rows, so that the matrix is read once.
pub(super) fn operation<S: Set, T: Type>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| multiply::<S, T>(s, Out::new(out), &operands, scratch));
    })
}

/// Computes columns of the product.
fn multiply<S: Set, T: Type>(s: S, mut out: Out<'_>, operands: &Operands<'_>, scratch: &mut Scratch) {
    let Scratch { blocks, panel, sums } = scratch;
    let x = operands.rows::<f32>(1);
    let [depth, rows, ..] = x.shape();
    let n = depth / BLOCK;
    let blocks = resize(blocks, rows * n);
    for (i, to) in blocks.chunks_exact_mut(n).enumerate() {
        activations::quantise(s, x.row([i, 0, 0]), T::HALVES, to);
    }
    if rows <= s.few::<T>() && s.multiply_few::<T>(&mut out, operands, blocks) {
        return;
    }
    out.each(|part, put| {
        product::<S, T>(s, &weights(operands, part, 0).map(bytemuck::cast_slice), blocks, (panel, sums), put);
    });
}

/// The products of columns and rows of activations. Matrices stay packed where the rows are few.
pub(super) fn product<S: Set, T: Type>(
    s: S,
    columns: &[&[T::Unit]; WIDTH],
    blocks: &[Block],
    (panel, sums): (&mut Vec<Panel>, &mut Vec<Row>),
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let n = columns[0].len() * T::BLOCKS;
    let rows = blocks.len() / n;
    if rows <= s.few::<T>() {
        let s = s.short();
        return match rows {
            1 => few::<_, T, 2, 1>(s, columns, blocks, put),
            2 => few::<_, T, 2, 2>(s, columns, blocks, put),
            3 | 4 => few::<_, T, 1, 4>(s, columns, blocks, put),
            _ => few::<_, T, 1, 8>(s, columns, blocks, put),
        };
    }
    let deep = if rows <= SEVERAL { PART } else { S::DEEP.min(n) };
    let (panel, sums) = (resize(panel, deep), resize(sums, rows));
    sums.fill(Row::zeroed());
    for from in (0..n).step_by(deep) {
        let panel = &mut panel[..deep.min(n - from)];
        s.run(Unpack::<S, T> { s, columns, first: from / T::BLOCKS, panel });
        panel::multiply::<S, T>(s, (blocks, n, from), panel, sums);
    }
    for (i, sums) in sums.iter().enumerate() {
        put(i, &sums.0);
    }
}

/// Unpacks the units of a panel, from `first` on.
pub(super) struct Unpack<'a, S, T: Type> {
    pub(super) s: S,
    pub(super) columns: &'a [&'a [T::Unit]; WIDTH],
    pub(super) first: usize,
    pub(super) panel: &'a mut [Panel],
}

impl<S: Set, T: Type> NullaryFnOnce for Unpack<'_, S, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let ahead = size_of_val(self.columns[0]) * HALF; // the rows that come next
        self.s.unpack::<T>(self.columns, self.first, ahead, self.panel);
    }
}

/// The products of up to `N` rows of activations.
fn few<S: Set, T: Type, const C: usize, const N: usize>(
    s: S,
    columns: &[&[T::Unit]; WIDTH],
    blocks: &[Block],
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let n = columns[0].len() * T::BLOCKS;
    let mut rows: [&[Block]; N] = [&blocks[..n]; N];
    for (row, blocks) in rows.iter_mut().zip(blocks.chunks_exact(n)) {
        *row = blocks;
    }
    let sums = s.run(Few::<S, T, C, N> { s, columns, rows, dtype: PhantomData });
    sums.iter().enumerate().take(blocks.len() / n).for_each(|(i, sums)| put(i, sums));
}

/// Each row of the matrix is read once, `C` at a time, and multiplied by all rows of activations.
struct Few<'a, S, T: Type, const C: usize, const N: usize> {
    s: S,
    columns: &'a [&'a [T::Unit]; WIDTH],
    rows: [&'a [Block]; N],
    dtype: PhantomData<T>,
}

impl<S: Set, T: Type, const C: usize, const N: usize> NullaryFnOnce for Few<'_, S, T, C, N> {
    type Output = [[f32; WIDTH]; N];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let apart = const { WIDTH / C };
        let mut all = [[0.0; WIDTH]; N];
        for i in 0..apart {
            let mut columns = [self.columns[i]; C];
            for (c, column) in columns.iter_mut().enumerate() {
                *column = self.columns[i + c * apart];
            }
            let sums = dot::<S, T, C, N>(self.s, columns, self.rows);
            for (all, sums) in all.iter_mut().zip(sums) {
                for (c, sum) in sums.into_iter().enumerate() {
                    all[i + c * apart] = sum;
                }
            }
        }
        all
    }
}

/// The products of some columns, for each row of activations.
#[inline(always)]
fn dot<S: Set, T: Type, const C: usize, const N: usize>(
    s: S,
    mut columns: [&[T::Unit]; C],
    rows: [&[Block]; N],
) -> [[f32; C]; N] {
    let n = columns[0].len();
    for column in &mut columns {
        *column = &column[..n];
    }
    let mut sums = [[S::Floats::zeroed(); N]; C];
    let mut offsets = [[0.0; N]; C];
    for u in 0..n {
        let mut parts: [&[Block]; N] = [&[]; N];
        for (part, row) in parts.iter_mut().zip(rows) {
            *part = &row[u * T::BLOCKS..][..T::BLOCKS];
        }
        for (c, column) in columns.iter().enumerate() {
            let unit = &column[u];
            for line in (0..size_of::<T::Unit>()).step_by(64) {
                s.fetch(unit, AHEAD + line);
            }
            let scales = T::scales(s, unit);
            each_block!(T, B => { add::<S, T, B, N>(s, unit, [scales[0][B], scales[1][B]], parts, (&mut sums[c], &mut offsets[c])); });
        }
    }
    let mut all = [[0.0; C]; N];
    for j in 0..N {
        for c in 0..C {
            all[j][c] = s.sum(sums[c][j]) - offsets[c][j];
        }
    }
    all
}

/// Adds the products of a block, and its offsets.
#[inline(always)]
fn add<S: Set, T: Type, const B: usize, const N: usize>(
    s: S,
    unit: &T::Unit,
    [scale, other]: [f32; 2],
    parts: [&[Block]; N],
    (sums, offsets): (&mut [S::Floats; N], &mut [f32; N]),
) {
    let offset = types::offset::<S, T>();
    let numbers = types::numbers::<S, T, B>(s, unit);
    for (j, part) in parts.iter().enumerate() {
        let x = &part[B];
        let whole = if offset == 0 { s.ints(0) } else { s.starts(x.starts(offset, T::HALVES)) };
        let products = s.dot(T::BITS, s.begin(whole), numbers, bytemuck::cast(x.numbers));
        let whole = s.convert(s.end(whole, products));
        let scales =
            if T::HALVES == 1 { s.floats(scale * x.scale) } else { s.scales([scale * x.scale, other * x.scale]) };
        sums[j] = s.mul_add(whole, scales, sums[j]);
        if T::OFFSETS {
            offsets[j] += other * x.total;
        }
    }
}
