//! Products of many rows with matrices of `f16` and `bf16`, as integers of 16 bits: an instruction adds 16 products of them in pairs, where one
//! of floats adds 8. And with matrices whose numbers have 8 bits, where products of bytes would have to be limited.

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, each_largest, factor, largest};
use super::floats::{self, Float};
use super::panel::{self, FOUR, HALF, Panel};
use super::set::{Set, compiled};
use super::types::{self, EIGHT, Type};
use super::{DEPTH, Put, Row, WIDTH, add_to_rows, resize};
use crate::math::WHOLE;

/// The largest number of columns of floats.
const MOST_OF_COLUMNS: f32 = 16383.0;

/// The blocks of a part.
const BLOCKS: usize = DEPTH / BLOCK;
/// What changes the sign of bytes, to which 128 was added.
const OFFSET: u32 = 0x8080_8080;

/// The pairs of a block.
const PAIRS: usize = BLOCK / 2;
/// The pairs that are multiplied without a branch.
const STEP: usize = 4;
/// The rows that lie together.
const ROWS: usize = 2;

/// Pairs of some rows of activations, times scales.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Words {
    pairs: [[i32; ROWS]; PAIRS],
    /// NaN or infinite if one of the values is.
    scales: [f32; ROWS],
}

/// What is multiplied by a panel.
pub(super) type WordsPart = [Words; BLOCKS];

/// What columns are made of.
pub(super) trait Of {
    /// The largest number of rows. The sum of the products of those that share a scale fits in 32 bits.
    const MOST: f32;
    /// The blocks of a row that share a scale.
    const SUMMED: usize;
    /// Whether columns have scales for as many. Otherwise there is one for a part.
    const SCALES: bool;
}

/// `f16` and `bf16`.
pub(super) struct Floats;
/// Blocks with a scale in each.
pub(super) struct Blocks;
/// Blocks that share a scale, by whose small integers numbers are multiplied.
pub(super) struct Units;

impl Of for Floats {
    const MOST: f32 = 4095.0;
    const SUMMED: usize = 1;
    const SCALES: bool = false;
}

/// Rows are rounded as ggml does it.
impl Of for Blocks {
    const MOST: f32 = 127.0;
    const SUMMED: usize = 1;
    const SCALES: bool = true;
}

impl Of for Units {
    const MOST: f32 = 127.0;
    const SUMMED: usize = BLOCKS;
    const SCALES: bool = true;
}

/// Rounds rows: the first parts of all, then the next of all, and so on. (The last row is repeated.)
pub(super) fn round<'a, 'b, S: Set, F: Of>(
    s: S,
    n: usize,
    row: impl Fn(usize) -> &'a [f32],
    to: &'b mut Vec<WordsPart>,
) -> &'b [WordsPart] {
    let together = n.div_ceil(ROWS);
    let ahead = size_of_val(row(0)) * ROWS; // the rows that come next
    let to = resize(to, together * row(0).len() / DEPTH);
    for i in 0..together {
        let rows: [&[f32]; ROWS] = std::array::from_fn(|r| row((i * ROWS + r).min(n - 1)));
        let to = to.iter_mut().skip(i).step_by(together);
        compiled!(s, {
            for (to, from) in to.zip((0..).step_by(DEPTH)) {
                // One row after the other: of both at once, the compiler takes numbers of each one by one.
                let mut all = [[(0.0, [0; PAIRS]); ROWS]; BLOCKS];
                for (r, row) in rows.iter().enumerate() {
                    let blocks = row[from..].as_chunks::<BLOCK>().0;
                    for (to, from) in all.chunks_exact_mut(F::SUMMED).zip(blocks.chunks_exact(F::SUMMED)) {
                        let largest = largest(from.as_flattened().as_chunks::<EIGHT>().0.iter().copied());
                        for (to, from) in to.iter_mut().zip(from) {
                            types::fetch(s, from, ahead);
                            to[r] = (largest / F::MOST, rounded(from, factor(largest, F::MOST)));
                        }
                    }
                }
                for (to, [(a, first), (b, second)]) in to.iter_mut().zip(&all) {
                    to.scales = [*a, *b];
                    for ((to, first), second) in to.pairs.iter_mut().zip(first).zip(second) {
                        *to = [*first, *second];
                    }
                }
            }
        });
    }
    to
}

/// Pairs of numbers times a factor.
#[inline(always)]
fn rounded(from: &[f32; BLOCK], by: f32) -> [i32; PAIRS] {
    let mut words = [0; BLOCK];
    for (to, x) in words.iter_mut().zip(from) {
        *to = whole(x * by);
    }
    bytemuck::cast(words)
}

/// The nearest integer.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are the number")]
#[inline(always)]
fn whole(x: f32) -> u16 {
    (x + WHOLE).to_bits() as u16
}

/// Scales of columns: the first ones, or those of as many blocks as share one.
type Scales = [Row; BLOCKS];

/// How many rows were rounded, and these.
type Rounded<'a> = (usize, &'a [WordsPart]);

/// The products of columns of floats and rows of activations.
pub(super) fn of_floats<S: Set, T: Float>(
    s: S,
    columns: &[&[u8]; WIDTH],
    rows: Rounded<'_>,
    scratch: (&mut Vec<Row>, &mut Vec<Row>),
    put: Put<'_>,
) {
    let unpack = |from, panel: &mut [Row]| {
        floats::unpack::<S, T>(s, columns, from, panel);
        compiled!(s, shrink(panel))
    };
    product::<S, Floats>(s, rows, scratch, unpack, put);
}

/// The products of columns of blocks, whose numbers have 8 bits, and rows of activations.
pub(super) fn of_blocks<S: Set, T: Type, F: Of>(
    s: S,
    columns: &[&[T::Unit]; WIDTH],
    rows: Rounded<'_>,
    (blocks, panel, sums): (&mut Vec<Panel>, &mut Vec<Row>, &mut Vec<Row>),
    put: Put<'_>,
) {
    let blocks = resize(blocks, BLOCKS);
    let unpack = |from, panel: &mut [Row]| {
        panel::unpack::<S, T>(s, columns, from / BLOCK / T::BLOCKS, blocks);
        let blocks = &*blocks;
        compiled!(s, widen::<T>(blocks, panel))
    };
    product::<S, F>(s, rows, (panel, sums), unpack, put);
}

/// The products of rows and panels, which are unpacked from a number on.
fn product<S: Set, F: Of>(
    s: S,
    (n, rows): Rounded<'_>,
    (panel, sums): (&mut Vec<Row>, &mut Vec<Row>),
    mut unpack: impl FnMut(usize, &mut [Row]) -> Scales,
    put: Put<'_>,
) {
    let (panel, sums) = (resize(panel, DEPTH), resize(sums, n));
    sums.fill(Row::zeroed());
    for (rows, from) in rows.chunks_exact(n.div_ceil(ROWS)).zip((0..).step_by(DEPTH)) {
        let scales = unpack(from, panel);
        let (panel, sums) = (&*panel, &mut *sums);
        compiled!(s, {
            // As many sums as registers hold.
            if S::LANES == HALF {
                tiles::<S, F, 4, 2>(s, rows, (panel, &scales), sums);
            } else {
                tiles::<S, F, 1, 4>(s, rows, (panel, &scales), sums);
            }
        });
    }
    sums.iter().enumerate().for_each(|(i, sums)| put(i, &sums.0));
}

/// Rounds the numbers of a panel, of which the first half has pairs then, and returns the scales of its columns.
#[inline(always)]
fn shrink(panel: &mut [Row]) -> Scales {
    let most = each_largest(panel.iter().map(|row| row.0));
    let (mut by, mut scales) = ([0.0; WIDTH], Scales::zeroed());
    for ((by, scale), most) in by.iter_mut().zip(&mut scales[0].0).zip(most) {
        (*by, *scale) = (factor(most, MOST_OF_COLUMNS), most / MOST_OF_COLUMNS);
    }
    for k in 0..panel.len() / 2 {
        let [a, b] = [panel[2 * k].0, panel[2 * k + 1].0];
        for i in 0..WIDTH {
            panel[k].0[i] = f32::from_bits(u32::from(whole(a[i] * by[i])) | u32::from(whole(b[i] * by[i])) << 16);
        }
    }
    scales
}

/// Pairs of the numbers of blocks, and the scales of these or of all.
#[inline(always)]
fn widen<T: Type>(blocks: &[Panel], to: &mut [Row]) -> Scales {
    let mut scales = Scales::zeroed();
    if T::INTEGERS {
        scales[0] = bytemuck::cast(blocks[1].others); // the factor of all
    } else {
        for (to, block) in scales.iter_mut().zip(blocks) {
            *to = bytemuck::cast(block.scales);
        }
    }
    for (block, to) in blocks.iter().zip(to.chunks_exact_mut(PAIRS)) {
        let integers: &[f32; WIDTH] = bytemuck::cast_ref(&block.scales);
        for (to, quad) in to.as_chunks_mut().0.iter_mut().zip(&block.numbers) {
            let quad: &[u32; WIDTH] = bytemuck::cast_ref(quad);
            let [first, second]: &mut [Row; FOUR / 2] = to;
            for i in 0..WIDTH {
                let by = if T::INTEGERS { integers[i].to_bits().cast_signed() << 16 >> 16 } else { 1 };
                let number = |at| (types::signed_byte(quad[i] ^ OFFSET, at) * by).cast_unsigned();
                let pair = |at| f32::from_bits(number(at) & 0xffff | number(at + 1) << 16);
                (first.0[i], second.0[i]) = (pair(0), pair(2));
            }
        }
    }
    scales
}

/// Adds the products of rows and a panel of `V` vectors of columns, `P` times [`ROWS`] rows at a time.
#[inline(always)]
fn tiles<S: Set, F: Of, const P: usize, const V: usize>(
    s: S,
    rows: &[WordsPart],
    (panel, scales): (&[Row], &Scales),
    to: &mut [Row],
) {
    let panel: &[[S::Ints; V]] = bytemuck::cast_slice::<_, S::Ints>(panel).as_chunks().0;
    let scales: &[[S::Floats; V]] = bytemuck::cast_slice::<_, S::Floats>(scales).as_chunks().0;
    let by = if F::SCALES { [s.floats(1.0); V] } else { scales[0] };
    for (rows, to) in rows.chunks(P).zip(to.chunks_mut(P * ROWS)) {
        let rows: [&WordsPart; P] = std::array::from_fn(|p| &rows[p.min(rows.len() - 1)]);
        let sums = tile::<S, F, P, V>(s, rows, panel, scales);
        for (sums, to) in sums.into_iter().zip(to.chunks_mut(ROWS)) {
            add_to_rows(s, sums, by, (to, 0));
        }
    }
}

/// The sums of the products of rows and a panel.
#[inline(always)]
fn tile<S: Set, F: Of, const P: usize, const V: usize>(
    s: S,
    rows: [&WordsPart; P],
    panel: &[[S::Ints; V]],
    scales: &[[S::Floats; V]],
) -> [[[S::Floats; V]; ROWS]; P] {
    let mut sums = [[[S::Floats::zeroed(); V]; ROWS]; P];
    let mut products = [[[s.ints(0); V]; ROWS]; P];
    for (b, panel) in panel.as_chunks::<PAIRS>().0.iter().enumerate().take(BLOCKS) {
        if b % F::SUMMED == 0 {
            products = [[[s.ints(0); V]; ROWS]; P];
        }
        let mut steps = panel.as_chunks::<STEP>().0.iter().zip((0..).step_by(STEP));
        if let Some(step) = steps.next() {
            add(s, step, rows.map(|rows| &rows[b]), &mut products); // to zeros, which takes no instruction of AVX2
        }
        for step in steps {
            add(s, step, rows.map(|rows| &rows[b]), &mut products);
        }
        if (b + 1) % F::SUMMED != 0 {
            continue;
        }
        let columns = scales[b / F::SUMMED];
        for ((sums, products), rows) in sums.iter_mut().zip(products).zip(rows) {
            for ((sums, products), scale) in sums.iter_mut().zip(products).zip(rows[b].scales) {
                for ((sum, product), by) in sums.iter_mut().zip(products).zip(columns) {
                    let x = s.convert(product);
                    *sum = s.mul_add(if F::SCALES { s.mul(x, by) } else { x }, s.floats(scale), *sum);
                }
            }
        }
    }
    sums
}

/// Adds the products of some pairs, from one on, of each row and of each column.
#[inline(always)]
fn add<S: Set, const P: usize, const V: usize>(
    s: S,
    (panel, first): (&[[S::Ints; V]; STEP], usize),
    rows: [&Words; P],
    to: &mut [[[S::Ints; V]; ROWS]; P],
) {
    for (w, k) in panel.iter().zip(first..) {
        for (to, rows) in to.iter_mut().zip(rows) {
            let pairs = &rows.pairs[k];
            let x = [s.ints(pairs[0]), s.ints(pairs[1])];
            for (v, w) in w.iter().enumerate() {
                (to[0][v], to[1][v]) = (s.words(to[0][v], *w, x[0]), s.words(to[1][v], *w, x[1]));
            }
        }
    }
}
