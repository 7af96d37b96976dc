//! Products of many rows of activations: the matrix is unpacked to panels of columns, in which instructions read it.

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, Block, largest};
use super::set::{Set, compiled};
use super::types::{self, EIGHT, Eight, Scaling, TwoQ8_0, Type, each_block, signed_byte};
use super::{Row, WIDTH, add_to_rows};

/// Half of a panel's columns.
pub(crate) const HALF: usize = WIDTH / 2;
/// The numbers in a lane.
pub(super) const FOUR: usize = 4;
/// The lanes of a block.
const QUADS: usize = BLOCK / FOUR;

/// The block of a unit that has the factors of offsets.
const OFFSETS_AT: usize = 5;

/// Four numbers of each column.
type Quad = [[[u8; FOUR]; HALF]; 2];

/// A block of each column.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(crate) struct Panel {
    pub(super) numbers: [Quad; QUADS],
    pub(super) scales: [[f32; HALF]; 2],
    /// The offsets, or the scales of the second halves of blocks; or the factors of [`scales`] and, where [`types::pairs`], of an even
    /// block the offsets of it and the next, or what cancels those of their numbers. The factors of offsets are in block [`OFFSETS_AT`].
    pub(super) others: [[f32; HALF]; 2],
}

/// Unpacks units of a matrix, from unit `first` of each row on.
pub(super) fn unpack<S: Set, T: Type>(s: S, rows: &[&[T::Unit]; WIDTH], first: usize, to: &mut [Panel]) {
    const { assert!(S::Short::LANES == QUADS, "a vector is a block") };
    let (s, ahead) = (s.short(), size_of_val(rows[0]) * HALF); // the rows that come next
    compiled!(s, {
        for (at, rows) in rows.as_chunks::<QUADS>().0.iter().enumerate() {
            for (u, to) in to.chunks_exact_mut(T::BLOCKS).enumerate() {
                let units = types::units::<_, T>(s, *rows, first + u, ahead);
                let facts = T::facts(s, units);
                each_block!(T, B => {
                    let [scales, others] = scales::<S::Short, T, B>(&facts);
                    to[B].scales.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(&scales);
                    to[B].others.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(&others);
                    for (to, quad) in to[B].numbers.iter_mut().zip(s.quads(types::quads::<_, T, B>(s, units))) {
                        let columns = bytemuck::cast_slice(std::slice::from_ref(&quad));
                        to.as_flattened_mut()[at * QUADS..][..QUADS].copy_from_slice(columns);
                    }
                });
            }
        }
    });
}

/// What is scales and others of a block; where products are summed as integers, the scales of both halves, as the bits of floats, 16 of
/// each, and the factors of all.
#[inline(always)]
fn scales<S: Set, T: Type, const B: usize>((factors, integers): &Scaling) -> [Eight; 2] {
    let mut scales = [0.0; EIGHT];
    if !types::whole::<S, T>() {
        return T::scales::<B>(&(*factors, *integers));
    }
    let mut others = factors[usize::from(T::OFFSETS && B == OFFSETS_AT)];
    for i in 0..EIGHT {
        let [first, second] = integers.map(|words| signed_byte(words[B / 4][i], B % 4));
        scales[i] = two(first, if T::HALVES == 2 { second } else { first });
        if types::pairs::<S, T>() && B.is_multiple_of(2) {
            let (list, by) = if T::OFFSETS { (1, 1) } else { (0, -types::offset::<S, T>()) };
            let [this, next] = [0, 1].map(|next| signed_byte(integers[list][B / 4][i], B % 4 + next));
            others[i] = two(this * by, next * by);
        }
    }
    [scales, others]
}

/// Two integers of 16 bits as the bits of a float.
#[inline(always)]
fn two(first: i32, second: i32) -> f32 {
    f32::from_bits((first & 0xffff | second << 16).cast_unsigned())
}

/// Makes integers of the scales of blocks, which are summed before they are multiplied by one factor. They have 8 bits, as weights do.
#[expect(clippy::cast_possible_truncation, reason = "sizes up to 255")]
pub(super) fn join_scales(blocks: &mut [Panel]) {
    for i in 0..WIDTH {
        let factor = largest(blocks.iter().map(|block| [block.scales.as_flattened()[i]])) / 255.0;
        let mut whole = [0; TwoQ8_0::BLOCKS];
        for (block, whole) in blocks.iter_mut().zip(&mut whole) {
            let scale = &mut block.scales.as_flattened_mut()[i];
            *whole = (*scale / factor).round() as i32;
            *scale = two(*whole, *whole);
            block.others.as_flattened_mut()[i] = factor;
        }
        blocks[0].others.as_flattened_mut()[i] = two(whole[0] * -128, whole[1] * -128);
    }
}

/// Adds the products of rows of activations, `n` blocks each, and a panel, whose first block is `from` of the rows. Beside it is how many
/// panels further lies what is fetched.
pub(super) fn multiply<S: Set, T: Type>(
    s: S,
    (blocks, n, from): (&[Block], usize, usize),
    panel: (&[Panel], usize),
    sums: &mut [Row],
) {
    compiled!(s, {
        match (S::PAIRS, S::LANES == HALF || S::most(T::BITS) == 1) {
            (true, _) => tiles::<S, T, 6, 1>(s, (blocks, n, from), panel, sums),
            (_, true) => tiles::<S, T, 4, 2>(s, (blocks, n, from), panel, sums),
            _ => tiles::<S, T, 3, 2>(s, (blocks, n, from), panel, sums),
        }
    });
}

/// `R` rows and `V` vectors of columns at a time.
#[inline(always)]
fn tiles<S: Set, T: Type, const R: usize, const V: usize>(
    s: S,
    (blocks, n, from): (&[Block], usize, usize),
    (panel, ahead): (&[Panel], usize),
    all: &mut [Row],
) {
    let turns = WIDTH / S::LANES / V * all.len().div_ceil(R);
    let mut turn = if ahead > 0 { 0 } else { usize::MAX };
    for at in 0..WIDTH / S::LANES / V {
        for (i, all) in all.chunks_mut(R).enumerate() {
            let (rows, panel) = ((&blocks[i * R * n..], n, from), (panel, turn, turns, ahead));
            if all.len() > 2 {
                tile::<S, T, R, V>(s, rows, panel, at, all);
            } else {
                tile::<S, T, 2, V>(s, rows, panel, at, all);
            }
            turn = turn.saturating_add(1);
        }
    }
}

/// Vectors from `V * at` on of a block's quad `i`, or behind the quads of its scales, or of others. (They are aligned for all vectors,
/// which the compiler can see here.)
#[inline(always)]
pub(super) fn vectors<S: Set, To: Pod, const V: usize>(block: &Panel, i: usize, at: usize) -> [To; V] {
    bytemuck::cast_slice(std::slice::from_ref(block)).as_chunks().0[i * (WIDTH / S::LANES / V) + at]
}

/// Adds the products of up to `R` rows of activations and a panel's vectors from `V * at` on. The rows that come next are fetched.
#[inline(always)]
fn tile<S: Set, T: Type, const R: usize, const V: usize>(
    s: S,
    (blocks, n, from): (&[Block], usize, usize),
    (panel, turn, turns, ahead): (&[Panel], usize, usize, usize),
    at: usize,
    all: &mut [Row],
) {
    assert!(at < WIDTH / S::LANES / V, "vectors of a panel");
    let rows: [&[Block]; R] = std::array::from_fn(|i| &blocks[i.min(all.len() - 1) * n + from..][..panel.len()]);
    let mut sums = [[S::Floats::zeroed(); V]; R];
    let mut products = [[s.ints(0); V]; R];
    let mut offsets = products;
    // An index tells the compiler that it is in bounds of the rows, too.
    for i in 0..panel.len() {
        let block = &panel[i];
        let lines: &[[u8; 64]] = bytemuck::cast_slice(std::slice::from_ref(block));
        for line in (turn..lines.len()).step_by(turns) {
            s.fetch(&lines[line], ahead * size_of::<Panel>());
        }
        let mut x = [&rows[0][i]; R];
        for (x, row) in x.iter_mut().zip(rows) {
            *x = &row[i];
            if T::FETCHED {
                s.fetch(*x, R * n * size_of::<Block>());
            }
        }
        if i % types::together::<S, T>() == 0 {
            products = [[s.ints(0); V]; R];
            offsets = products;
        }
        if types::pairs::<S, T>() && i.is_multiple_of(2) || types::whole::<S, T>() && T::HALVES == 2 {
            let mut by: [S::Ints; V] = vectors::<S, _, V>(block, QUADS + 2 - T::HALVES, at);
            if T::HALVES == 2 {
                for x in bytemuck::cast_slice_mut::<_, i16>(&mut by) {
                    *x = x.wrapping_mul(i16::try_from(-types::offset::<S, T>()).unwrap_or_default());
                }
            }
            let to = if T::OFFSETS { &mut offsets } else { &mut products };
            for (to, x) in to.iter_mut().zip(x) {
                for v in 0..V {
                    to[v] = s.end(to[v], s.ints(x.sums), by[v]);
                }
            }
        }
        if T::HALVES == 1 {
            part::<S, T, R, V, QUADS, 0>(s, block, at, x, &mut products, &mut sums);
        } else {
            part::<S, T, R, V, { QUADS / 2 }, 0>(s, block, at, x, &mut products, &mut sums);
            part::<S, T, R, V, { QUADS / 2 }, 1>(s, block, at, x, &mut products, &mut sums);
        }
        if types::whole::<S, T>() && (i + 1) % types::together::<S, T>() == 0 {
            scaled(s, vectors::<S, _, V>(block, QUADS + 1, at), x, &products, &mut sums);
            if T::OFFSETS {
                let factors = vectors::<S, _, V>(&panel[i - i % T::BLOCKS + OFFSETS_AT], QUADS + 1, at);
                scaled(s, factors, x, &offsets, &mut sums);
            }
        } else if T::OFFSETS && !types::whole::<S, T>() {
            let offsets: [S::Floats; V] = vectors::<S, _, V>(block, QUADS + 1, at);
            for (sums, x) in sums.iter_mut().zip(x) {
                for v in 0..V {
                    sums[v] = s.mul_add(offsets[v], s.floats(x.total), sums[v]);
                }
            }
        }
    }
    add_to_rows(s, sums, [s.floats(1.0); V], (all, at));
}

/// Adds products times scales of columns and rows.
#[inline(always)]
fn scaled<S: Set, const R: usize, const V: usize>(
    s: S,
    scales: [S::Floats; V],
    x: [&Block; R],
    products: &[[S::Ints; V]; R],
    sums: &mut [[S::Floats; V]; R],
) {
    for ((sums, products), x) in sums.iter_mut().zip(products).zip(x) {
        let scale = s.floats(x.scale);
        for v in 0..V {
            sums[v] = s.mul_add(s.convert(products[v]), s.mul(scales[v], scale), sums[v]);
        }
    }
}

/// Adds the products of a part of a block, of `Q` quads.
#[inline(always)]
fn part<S: Set, T: Type, const R: usize, const V: usize, const Q: usize, const PART: usize>(
    s: S,
    block: &Panel,
    at: usize,
    x: [&Block; R],
    products: &mut [[S::Ints; V]; R],
    sums: &mut [[S::Floats; V]; R],
) {
    let mut rows = [&[[0; FOUR]; Q]; R];
    for r in 0..R {
        let all: &[[u8; FOUR]; QUADS] = bytemuck::cast_ref(&x[r].numbers);
        rows[r] = &all.as_chunks().0[PART];
        if !types::whole::<S, T>() {
            products[r] = [s.ints(x[r].starts::<S, T>()[PART]); V];
        }
    }
    if types::whole::<S, T>() {
        let mut scales: [S::Ints; V] = vectors::<S, _, V>(block, QUADS, at);
        if T::HALVES == 2 {
            for scales in &mut scales {
                *scales = s.both::<PART>(*scales);
            }
        }
        add(s, T::BITS, (block, PART, at), scales, rows, products);
    } else {
        s.add(T::BITS, (block, PART, at), rows, products);
        scaled(s, vectors::<S, _, V>(block, QUADS + PART, at), x, products, sums);
    }
}

/// [`Set::add`] by [`Set::dot`]; products of 16 bits are multiplied by others.
#[inline(always)]
pub(super) fn add<S: Set, const R: usize, const V: usize, const Q: usize>(
    s: S,
    bits: u32,
    (block, part, at): (&Panel, usize, usize),
    by: [S::Ints; V],
    x: [&[[u8; FOUR]; Q]; R],
    sums: &mut [[S::Ints; V]; R],
) {
    let most = S::most(bits).min(Q);
    // Where nothing is summed before it is multiplied, the rows follow each other, so that registers suffice for more of them.
    let together = if most == 1 { 1 } else { R };
    for from in (0..Q).step_by(most) {
        let first: [S::Ints; V] = vectors::<S, _, V>(block, part * Q + from, at); // read once for all rows
        for (sums, x) in sums.chunks_mut(together).zip(x.chunks(together)) {
            let mut products = [[s.ints(0); V]; R];
            for (products, sums) in products.iter_mut().zip(&*sums) {
                for v in 0..V {
                    products[v] = s.begin(sums[v]);
                }
            }
            for k in from..from + most {
                let numbers = if k == from { first } else { vectors::<S, _, V>(block, part * Q + k, at) };
                for (products, x) in products.iter_mut().zip(x) {
                    let x = s.ints(i32::from_ne_bytes(x[k]));
                    for v in 0..V {
                        products[v] = s.in_turn(s.dot(products[v], numbers[v], x));
                    }
                }
            }
            for (sums, products) in sums.iter_mut().zip(products) {
                for v in 0..V {
                    sums[v] = s.end(sums[v], products[v], by[v]);
                }
            }
        }
    }
}
