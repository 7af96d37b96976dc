//! Products of many rows of activations: the matrix is unpacked to panels of columns, in which instructions read it.

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, Block};
use super::set::{Set, compiled};
use super::types::{self, Type, each_block};
use super::{Row, WIDTH, parts};

/// Half of a panel's columns.
pub(crate) const HALF: usize = WIDTH / 2;
/// The values in a lane of an instruction.
const FOUR: usize = 4;
/// The lanes of a block.
const QUADS: usize = BLOCK / FOUR;

/// Four numbers of each column.
pub(super) type Quad = [[[u8; FOUR]; HALF]; 2];

/// A block of each column.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(crate) struct Panel {
    pub(super) numbers: [Quad; QUADS],
    pub(super) scales: [[f32; HALF]; 2],
    /// The offsets, or the scales of the second halves of blocks, or what sums begin with, as the bits of integers.
    pub(super) others: [[f32; HALF]; 2],
}

/// Unpacks units of a matrix, from unit `first` of each row on. What comes next lies `ahead` bytes behind.
#[inline(always)]
pub(super) fn unpack<S: Set, T: Type>(s: S, rows: &[&[T::Unit]; WIDTH], first: usize, ahead: usize, to: &mut [Panel]) {
    const { assert!(S::LANES == QUADS, "a vector is a block") };
    let n = to.len() / T::BLOCKS;
    for (at, rows) in rows.as_chunks::<QUADS>().0.iter().enumerate() {
        for (u, to) in to.chunks_exact_mut(T::BLOCKS).enumerate().take(n) {
            let units = types::units::<S, T>(s, *rows, first + u, Some(ahead));
            let facts = T::facts(s, units);
            each_block!(T, B => {
                let [scales, others] = T::scales::<B>(&facts);
                to[B].scales.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(&scales);
                to[B].others.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(&others);
            });
            each_block!(T, B => { transpose::<S, T, B>(s, rows, first + u, at, &mut to[B]); });
        }
    }
}

/// Whether products take the ones' complement of activations where weights are negative.
const fn flips<S: Set, T: Type>() -> bool {
    T::BITS == 8 && S::FLIPS
}

/// The sum of the sizes of all negative bytes.
#[inline(always)]
fn negatives<S: Set>(s: S, mut bytes: S::Ints) -> i32 {
    for x in bytemuck::cast_slice_mut::<_, i8>(std::slice::from_mut(&mut bytes)) {
        *x = (*x).min(0);
    }
    let [first, second] = s.sums_of_bytes(bytes);
    -(first + second)
}

/// Unpacks a block of a vector's columns.
#[inline(always)]
fn transpose<S: Set, T: Type, const B: usize>(
    s: S,
    rows: &[&[T::Unit]; QUADS],
    unit: usize,
    at: usize,
    panel: &mut Panel,
) {
    let mut square = S::Square::zeroed();
    for (i, (to, row)) in bytemuck::cast_slice_mut(std::slice::from_mut(&mut square)).iter_mut().zip(rows).enumerate() {
        *to = types::numbers::<S, T, B>(s, &row[unit]);
        if flips::<S, T>() {
            panel.others.as_flattened_mut()[at * QUADS + i] = f32::from_bits(negatives(s, *to).cast_unsigned());
        }
    }
    let columns: [[[u8; FOUR]; QUADS]; QUADS] = bytemuck::cast(s.quads(square));
    for (to, columns) in panel.numbers.iter_mut().zip(columns) {
        to.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(&columns);
    }
}

/// Adds the products of rows of activations, `n` blocks each, and a panel, whose first block is `from` of the rows.
pub(super) fn multiply<S: Set, T: Type>(
    s: S,
    (blocks, n, from): (&[Block], usize, usize),
    panel: &[Panel],
    sums: &mut [Row],
) {
    compiled!(s, {
        if S::LANES == HALF {
            tiles::<S, T, 4, 2>(s, (blocks, n, from), panel, sums);
        } else if S::PAIRS {
            tiles::<S, T, 6, 1>(s, (blocks, n, from), panel, sums);
        } else {
            tiles::<S, T, 3, 2>(s, (blocks, n, from), panel, sums);
        }
    });
}

/// `R` rows and `V` vectors of columns at a time.
#[inline(always)]
fn tiles<S: Set, T: Type, const R: usize, const V: usize>(
    s: S,
    (blocks, n, from): (&[Block], usize, usize),
    panel: &[Panel],
    all: &mut [Row],
) {
    let last = all.len() - 1;
    for at in 0..WIDTH / S::LANES / V {
        for first in (0..all.len()).step_by(R) {
            let mut rows: [&[Block]; R] = [&[]; R];
            let mut sums = [[S::Floats::zeroed(); V]; R];
            for i in 0..R {
                let row = (first + i).min(last);
                rows[i] = &blocks[row * n + from..][..panel.len()];
                sums[i] = vectors(&all[row].0)[at];
            }
            let sums = tile::<S, T, R, V>(s, (rows, R * n), panel, at, sums);
            for (all, sums) in all[first..].iter_mut().zip(sums) {
                all.0[at * V * S::LANES..][..V * S::LANES].copy_from_slice(bytemuck::cast_slice(&sums));
            }
        }
    }
}

/// Vectors, `V` at a time.
#[inline(always)]
pub(super) fn vectors<From: Pod, To: Pod, const V: usize>(numbers: &[From]) -> &[[To; V]] {
    bytemuck::cast_slice(numbers).as_chunks().0
}

/// Adds the products of `R` rows of activations and a panel's vectors from `V * at` on. The rows that come next lie `next`
/// blocks behind.
#[inline(always)]
fn tile<S: Set, T: Type, const R: usize, const V: usize>(
    s: S,
    (rows, next): ([&[Block]; R], usize),
    panel: &[Panel],
    at: usize,
    mut sums: [[S::Floats; V]; R],
) -> [[S::Floats; V]; R] {
    let rows = parts(rows, 0..panel.len());
    assert!(at < WIDTH / S::LANES / V, "vectors of a panel");
    let offset = types::offset::<S, T>();
    for (i, block) in panel.iter().enumerate() {
        for row in rows {
            s.fetch(&row[i], next * size_of::<Block>());
        }
        for half in 0..T::HALVES {
            let mut whole = [[s.ints(0); V]; R];
            if flips::<S, T>() {
                whole = [vectors(block.others.as_flattened())[at]; R];
            } else if offset != 0 {
                for (whole, row) in whole.iter_mut().zip(rows) {
                    *whole = [s.ints(row[i].starts(offset, T::HALVES)[half]); V];
                }
            }
            if T::HALVES == 1 {
                part::<S, R, V, QUADS>(s, T::BITS, (block, half, at), (rows, i), &mut whole);
            } else {
                part::<S, R, V, { QUADS / 2 }>(s, T::BITS, (block, half, at), (rows, i), &mut whole);
            }
            let scales = if half == 0 { &block.scales } else { &block.others };
            let scales: [S::Floats; V] = vectors(scales.as_flattened())[at];
            for ((sums, whole), row) in sums.iter_mut().zip(whole).zip(rows) {
                let scale = s.floats(row[i].scale);
                for v in 0..V {
                    sums[v] = s.mul_add(s.convert(whole[v]), s.mul(scales[v], scale), sums[v]);
                }
            }
        }
        if T::OFFSETS {
            let offsets: [S::Floats; V] = vectors(block.others.as_flattened())[at];
            for (sums, row) in sums.iter_mut().zip(rows) {
                let total = s.floats(row[i].total);
                for v in 0..V {
                    sums[v] = s.mul_add(offsets[v], total, sums[v]);
                }
            }
        }
    }
    sums
}

/// Adds the products of one of a block's parts of `Q` quads.
#[inline(always)]
fn part<S: Set, const R: usize, const V: usize, const Q: usize>(
    s: S,
    bits: u32,
    (block, half, at): (&Panel, usize, usize),
    (rows, i): ([&[Block]; R], usize),
    sums: &mut [[S::Ints; V]; R],
) {
    let mut x = [&[[0; FOUR]; Q]; R];
    for (x, row) in x.iter_mut().zip(rows) {
        let all: &[[u8; FOUR]; QUADS] = bytemuck::cast_ref(&row[i].numbers);
        *x = &all.as_chunks().0[half];
    }
    s.add(bits, &block.numbers.as_chunks().0[half], at, x, sums);
}

/// [`Set::add`] by [`Set::dot_flipped`].
#[inline(always)]
pub(super) fn add<S: Set, const R: usize, const V: usize, const Q: usize>(
    s: S,
    bits: u32,
    quads: &[Quad; Q],
    at: usize,
    x: [&[[u8; FOUR]; Q]; R],
    sums: &mut [[S::Ints; V]; R],
) {
    let most = S::most(bits);
    for from in (0..Q).step_by(most) {
        let mut products = [[s.ints(0); V]; R];
        for (products, sums) in products.iter_mut().zip(&*sums) {
            for v in 0..V {
                products[v] = s.begin(sums[v]);
            }
        }
        for k in from..from + most.min(Q) {
            let numbers: [S::Ints; V] = vectors(quads[k].as_flattened())[at];
            for (products, x) in products.iter_mut().zip(x) {
                let x = s.ints(i32::from_ne_bytes(x[k]));
                for v in 0..V {
                    products[v] = s.in_turn(s.dot_flipped(bits, products[v], numbers[v], x));
                }
            }
        }
        for (sums, products) in sums.iter_mut().zip(products) {
            for v in 0..V {
                sums[v] = s.end(sums[v], products[v]);
            }
        }
    }
}
