//! Products with matrices in blocks of integers.

use std::cell::RefCell;
use std::marker::PhantomData;

use bytemuck::Zeroable;
use ggml::ops::{CustomOp, CustomOptions, Operands};
use pulp::NullaryFnOnce;

use super::activations::{self, BLOCK, Block};
use super::few_rows::FewRows;
use super::panel::{self, HALF, Panel};
use super::set::Set;
use super::types::{self, EIGHT, Eight, Type, each_block};
use super::{Out, WIDTH, resize, weights};
use crate::panels::Row;

/// Up to so many rows of activations, a matrix is unpacked by parts.
const SEVERAL: usize = 16;
/// The blocks of such a part, of which depths are multiples.
const PART: usize = 8;
/// Of the columns that a few rows of activations are multiplied by at a time, the pairs whose halves share vectors.
const PAIRS: usize = EIGHT / 2;
/// How far ahead of their use weights of long rows are fetched, in bytes: rows are read one by one, and the next rows follow.
const AHEAD: usize = 1024;
/// Eight rows of at most so many bytes are fetched as a whole while the eight before them are multiplied.
const SHORT: usize = 1024;

/// Memory for what is computed on the way.
#[derive(Default)]
struct BlockScratch {
    blocks: Vec<Block>,
    panel: Vec<Panel>,
    sums: Vec<Row>,
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<BlockScratch> = RefCell::default();
}

/// The operation for matrices of a type. Each task computes some columns of all rows, so that the matrix is read once.
pub(super) fn operation<S: Set, T: Type>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| multiply::<S, T>(s, Out::new(out), &operands, scratch));
    })
}

/// Computes columns of the product.
fn multiply<S: Set, T: Type>(s: S, mut out: Out<'_>, operands: &Operands<'_>, scratch: &mut BlockScratch) {
    let x = operands.rows::<f32>(1);
    let [depth, rows, ..] = x.shape();
    let few = FewRows::new(operands, 0, rows, |i| (x.row([i, 0, 0]), i));
    if few.is_some_and(|few| s.multiply_few::<T>(&mut out, &few)) {
        return;
    }
    let BlockScratch { blocks, panel, sums } = scratch;
    let n = depth / BLOCK;
    let blocks = resize(blocks, rows * n);
    for (i, to) in blocks.chunks_exact_mut(n).enumerate() {
        activations::quantise(s, x.row([i, 0, 0]), T::HALVES, to);
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
            1 => few::<_, T, 1>(s, columns, blocks, put),
            2 => few::<_, T, 2>(s, columns, blocks, put),
            3 | 4 => few::<_, T, 4>(s, columns, blocks, put),
            _ => few::<_, T, 8>(s, columns, blocks, put),
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
        panel::unpack::<_, T>(self.s.short(), self.columns, self.first, ahead, self.panel);
    }
}

/// The products of up to `N` rows of activations.
fn few<S: Set, T: Type, const N: usize>(
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
    let sums = s.run(Few::<S, T, N> { s, columns, rows, dtype: PhantomData });
    sums.iter().enumerate().take(blocks.len() / n).for_each(|(i, sums)| put(i, sums));
}

/// Eight rows of the matrix are read at a time, once, and multiplied by all rows of activations. Long ones are far apart: memory
/// is read faster at several places at once.
struct Few<'a, S, T: Type, const N: usize> {
    s: S,
    columns: &'a [&'a [T::Unit]; WIDTH],
    rows: [&'a [Block]; N],
    dtype: PhantomData<T>,
}

impl<S: Set, T: Type, const N: usize> NullaryFnOnce for Few<'_, S, T, N> {
    type Output = [[f32; WIDTH]; N];

    #[inline(always)]
    fn call(self) -> Self::Output {
        const TIMES: usize = WIDTH / EIGHT;
        let row = size_of_val(self.columns[0]);
        let mut all = [[0.0; WIDTH]; N];
        for i in 0..TIMES {
            let (first, apart) = if row <= SHORT { (i * EIGHT, 1) } else { (i, TIMES) };
            let mut columns = [self.columns[first]; EIGHT];
            for (c, column) in columns.iter_mut().enumerate() {
                *column = self.columns[first + c * apart];
            }
            // Behind the last column at each place come the first ones of the next `WIDTH` columns.
            let next = if i + 1 < TIMES { 0 } else { (WIDTH - TIMES) * row };
            let sums = dot::<S, T, N>(self.s, columns, self.rows, next);
            for (all, sums) in all.iter_mut().zip(sums) {
                for (c, sum) in sums.into_iter().enumerate() {
                    all[first + c * apart] = sum;
                }
            }
        }
        all
    }
}

/// The products of eight columns, for each row of activations. What comes behind long ones lies `next` bytes farther.
#[inline(always)]
fn dot<S: Set, T: Type, const N: usize>(
    s: S,
    mut columns: [&[T::Unit]; EIGHT],
    rows: [&[Block]; N],
    next: usize,
) -> [[f32; EIGHT]; N] {
    const { assert!(S::LANES == EIGHT, "a lane for each column") };
    let (n, row, size) = (columns[0].len(), size_of_val(columns[0]), size_of::<T::Unit>());
    for column in &mut columns {
        *column = &column[..n];
    }
    let mut sums = [S::Floats::zeroed(); N];
    for u in 0..n {
        let mut parts: [&[Block]; N] = [&[]; N];
        for (part, row) in parts.iter_mut().zip(rows) {
            *part = &row[u * T::BLOCKS..][..T::BLOCKS];
        }
        let ahead = if u + AHEAD / size < n { AHEAD } else { AHEAD + next };
        let mut units = [&columns[0][u]; EIGHT];
        for (unit, column) in units.iter_mut().zip(columns) {
            *unit = &column[u];
            for line in (0..if row <= SHORT { 0 } else { size }).step_by(64) {
                s.fetch(*unit, ahead + line);
            }
        }
        for line in (0..if row <= SHORT { EIGHT * size } else { 0 }).step_by(64) {
            s.fetch(units[0], EIGHT * row + (EIGHT - 1) * u * size + line);
        }
        let facts = T::facts(s, units);
        each_block!(T, B => { add::<S, T, B, N>(s, units, T::scales::<B>(&facts), parts, &mut sums); });
    }
    let mut all = [[0.0; EIGHT]; N];
    for (all, sums) in all.iter_mut().zip(sums) {
        all.copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(&sums)));
    }
    all
}

/// Adds the products of a block of each column, and their offsets.
#[inline(always)]
fn add<S: Set, T: Type, const B: usize, const N: usize>(
    s: S,
    units: [&T::Unit; EIGHT],
    scales: [Eight; 2],
    parts: [&[Block]; N],
    sums: &mut [S::Floats; N],
) {
    let offset = types::offset::<S, T>();
    let [scales, others]: [S::Floats; 2] = scales.map(|x| bytemuck::pod_read_unaligned(bytemuck::bytes_of(&x)));
    let mut numbers = [[s.ints(0); PAIRS]; 2];
    for p in 0..PAIRS {
        [numbers[0][p], numbers[1][p]] = types::pair::<S, T, B>(s, [units[p], units[p + PAIRS]]);
    }
    for (sum, part) in sums.iter_mut().zip(parts) {
        let x = &part[B];
        let halves = s.twice(&x.numbers);
        let scale = s.floats(x.scale);
        let starts = if offset == 0 { [0; 2] } else { x.starts(offset, T::HALVES) };
        if T::HALVES == 2 {
            for (h, scales) in [scales, others].into_iter().enumerate() {
                let mut whole = [s.ints(0); PAIRS];
                for (whole, numbers) in whole.iter_mut().zip(numbers[h]) {
                    *whole = s.end(*whole, s.dot(T::BITS, s.begin(*whole), numbers, halves[h]));
                }
                let whole = s.convert(s.eight(s.ints(starts[h]), whole));
                *sum = s.mul_add(whole, s.mul(scales, scale), *sum);
            }
        } else {
            let mut whole = [s.ints(0); PAIRS];
            for (p, whole) in whole.iter_mut().enumerate() {
                let mut products = s.dot(T::BITS, s.begin(*whole), numbers[0][p], halves[0]);
                if S::most(T::BITS) == 1 {
                    *whole = s.end(*whole, products);
                    products = s.begin(*whole);
                }
                *whole = s.end(*whole, s.dot(T::BITS, products, numbers[1][p], halves[1]));
            }
            let whole = s.convert(s.eight(s.ints(starts[0]), whole));
            *sum = s.mul_add(whole, s.mul(scales, scale), *sum);
        }
        if T::OFFSETS {
            *sum = s.mul_sub(others, s.floats(x.total), *sum);
        }
    }
}
