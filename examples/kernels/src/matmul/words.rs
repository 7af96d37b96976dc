//! Products of many rows with matrices of `f16` and `bf16`, as integers of 16 bits: an instruction adds 16 products of them in pairs, where one
//! of floats adds 8.

use bytemuck::{Pod, Zeroable};

use super::activations::{BLOCK, each_largest, factor, largest};
use super::floats::{self, Float};
use super::panel::HALF;
use super::set::{Set, compiled};
use super::types::{self, EIGHT};
use super::{DEPTH, Put, Row, WIDTH, add_to_rows, resize};
use crate::math::WHOLE;

/// The largest numbers. The sum of the products of [`BLOCK`] of them fits in 32 bits.
const MOST_OF_ROWS: f32 = 4095.0;
const MOST_OF_COLUMNS: f32 = 16383.0;

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
pub(super) type WordsPart = [Words; DEPTH / BLOCK];

/// Rounds rows: the first parts of all, then the next of all, and so on. (The last row is repeated.)
pub(super) fn round<'a, 'b, S: Set>(
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
                let mut all = [[(0.0, [0; PAIRS]); ROWS]; DEPTH / BLOCK];
                for (r, row) in rows.iter().enumerate() {
                    for (to, from) in all.iter_mut().zip(row[from..].as_chunks().0) {
                        types::fetch(s, from, ahead);
                        to[r] = rounded(from);
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

/// A scale and pairs.
#[inline(always)]
fn rounded(from: &[f32; BLOCK]) -> (f32, [i32; PAIRS]) {
    let most = largest(from.as_chunks::<EIGHT>().0.iter().copied());
    let by = factor(most, MOST_OF_ROWS);
    let mut words = [0; BLOCK];
    for (to, x) in words.iter_mut().zip(from) {
        *to = whole(x * by);
    }
    (most / MOST_OF_ROWS, bytemuck::cast(words))
}

/// The nearest integer.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are the number")]
#[inline(always)]
fn whole(x: f32) -> u16 {
    (x + WHOLE).to_bits() as u16
}

/// The products of columns and `n` rows of activations.
pub(super) fn product<S: Set, T: Float>(
    s: S,
    columns: &[&[u8]; WIDTH],
    (n, rows): (usize, &[WordsPart]),
    (panel, sums): (&mut Vec<Row>, &mut Vec<Row>),
    put: Put<'_>,
) {
    let (panel, sums) = (resize(panel, DEPTH), resize(sums, n));
    sums.fill(Row::zeroed());
    for (rows, from) in rows.chunks_exact(n.div_ceil(ROWS)).zip((0..).step_by(DEPTH)) {
        floats::unpack::<S, T>(s, columns, from, panel);
        let (panel, sums) = (&mut *panel, &mut *sums);
        compiled!(s, {
            let scales = shrink(panel);
            // As many sums as registers hold.
            if S::LANES == HALF {
                tiles::<S, 4, 2>(s, rows, (panel, &scales), sums);
            } else {
                tiles::<S, 1, 4>(s, rows, (panel, &scales), sums);
            }
        });
    }
    sums.iter().enumerate().for_each(|(i, sums)| put(i, &sums.0));
}

/// Rounds the numbers of a panel, of which the first half has pairs then, and returns the scales of its columns.
#[inline(always)]
fn shrink(panel: &mut [Row]) -> Row {
    let most = each_largest(panel.iter().map(|row| row.0));
    let (mut by, mut scales) = ([0.0; WIDTH], Row::zeroed());
    for ((by, scale), most) in by.iter_mut().zip(&mut scales.0).zip(most) {
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

/// Adds the products of rows and a panel of `V` vectors of columns, `P` times [`ROWS`] rows at a time.
#[inline(always)]
fn tiles<S: Set, const P: usize, const V: usize>(
    s: S,
    rows: &[WordsPart],
    (panel, scales): (&[Row], &Row),
    to: &mut [Row],
) {
    let panel: &[[S::Ints; V]] = bytemuck::cast_slice::<_, S::Ints>(panel).as_chunks().0;
    let scales: &[[S::Floats; V]] = bytemuck::cast_slice::<_, S::Floats>(&scales.0).as_chunks().0;
    for (rows, to) in rows.chunks(P).zip(to.chunks_mut(P * ROWS)) {
        let rows: [&WordsPart; P] = std::array::from_fn(|p| &rows[p.min(rows.len() - 1)]);
        let sums = tile::<S, P, V>(s, rows, panel);
        for (sums, to) in sums.into_iter().zip(to.chunks_mut(ROWS)) {
            add_to_rows(s, sums, scales[0], (to, 0));
        }
    }
}

/// The sums of the products of rows and a panel.
#[inline(always)]
fn tile<S: Set, const P: usize, const V: usize>(
    s: S,
    rows: [&WordsPart; P],
    panel: &[[S::Ints; V]],
) -> [[[S::Floats; V]; ROWS]; P] {
    let mut sums = [[[S::Floats::zeroed(); V]; ROWS]; P];
    for (b, panel) in panel.as_chunks::<PAIRS>().0.iter().enumerate().take(DEPTH / BLOCK) {
        let mut products = [[[s.ints(0); V]; ROWS]; P];
        let mut steps = panel.as_chunks::<STEP>().0.iter().zip((0..).step_by(STEP));
        if let Some(step) = steps.next() {
            add(s, step, rows.map(|rows| &rows[b]), &mut products); // to zeros, which takes no instruction of AVX2
        }
        for step in steps {
            add(s, step, rows.map(|rows| &rows[b]), &mut products);
        }
        for ((sums, products), rows) in sums.iter_mut().zip(products).zip(rows) {
            for ((sums, products), scale) in sums.iter_mut().zip(products).zip(rows[b].scales) {
                for (sum, product) in sums.iter_mut().zip(products) {
                    *sum = s.mul_add(s.convert(product), s.floats(scale), *sum);
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
