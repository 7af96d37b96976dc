//! What rows of queries add up to over a tile.

use std::ops::Range;

use bytemuck::Zeroable;

use super::tile::{KEYS, PANELS, Seen, Tile, added, halves};
use super::{How, QueryPart, Scratch};
use crate::math;
use crate::matmul::{Row, Set, WIDTH, pack, resize, tiles};

/// The largest score of a row so far, and the sum of the weights, relative to that score's.
#[derive(Debug, Clone, Copy, Zeroable)]
pub(super) struct Sum {
    pub(super) most: f32,
    pub(super) weights: f32,
}

/// Memory for the products of some rows.
#[derive(Default)]
pub(super) struct Products {
    scores: Vec<Row>,
    weights: Vec<[f32; KEYS]>,
    /// What is multiplied, packed: queries, then weights.
    packed: Vec<f32>,
}

/// A tile of so many keys from one on, and what each token sees of it.
#[derive(Clone, Copy)]
pub(super) struct SeenTile<'a> {
    pub(super) tile: &'a Tile,
    pub(super) seen: &'a [Seen],
    pub(super) keys: (usize, usize),
}

impl Products {
    /// Adds a tile's values times weights to the results of some rows.
    pub(super) fn add<S: Set>(
        &mut self,
        s: S,
        (how, part): (How, QueryPart<'_>),
        seen_tile: SeenTile<'_>,
        (rows, queries): (Range<usize>, &[&[f32]]),
        (sums, all): (&mut [Sum], &mut [Row]),
    ) {
        let (n, of_all, tile) = (rows.len(), sums.len(), seen_tile.tile);
        // What none of them sees isn't multiplied.
        let end = rows.clone().map(|i| seen_tile.seen[i / part.heads].end).max().map_or(0, usize::from);
        if end == 0 {
            return;
        }
        let size = how.sizes[0];
        let scores = &mut resize(&mut self.scores, PANELS * n)[..end.div_ceil(WIDTH) * n];
        scores.fill(Row::zeroed());
        let packed = pack::<S>((n, size), |i| queries[rows.start + i], &mut self.packed);
        for (scores, keys) in scores.chunks_exact_mut(n).zip(tile.keys.chunks_exact(size)) {
            tiles(s, packed, (keys, 0), scores);
        }
        let weights = resize(&mut self.weights, n);
        s.run(|| weigh(s, (how, part), seen_tile, (rows.clone(), scores), weights, (sums, all)));
        if !tile.finite {
            for (i, weights) in rows.zip(weights) {
                tile.add_seen(&weights[..end], |panel, column, x| all[panel * of_all + i].0[column] += x);
            }
            return;
        }
        let packed = pack::<S>((n, end), |i| &weights[i][..end], &mut self.packed);
        for (values, all) in tile.values.chunks_exact(KEYS).zip(all.chunks_exact_mut(of_all)) {
            tiles(s, packed, (values, 0), &mut all[rows.clone()]);
        }
    }
}

/// Makes scores weights, and multiplies earlier results by what is left of them.
#[inline(always)]
fn weigh<S: Set>(
    s: S,
    (how, part): (How, QueryPart<'_>),
    SeenTile { seen, keys, .. }: SeenTile<'_>,
    (rows, scores): (Range<usize>, &[Row]),
    weights: &mut [[f32; KEYS]],
    (sums, all): (&mut [Sum], &mut [Row]),
) {
    let (n, of_all) = (rows.len(), sums.len());
    for ((j, i), weights) in rows.enumerate().zip(weights) {
        let weights = &mut weights[..scores.len() / n * WIDTH];
        for (to, scores) in weights.as_chunks_mut::<WIDTH>().0.iter_mut().zip(scores.chunks_exact(n)) {
            to.iter_mut().zip(scores[j].0).for_each(|(to, x)| *to = x * how.scale);
        }
        if how.cap != 0.0 {
            for x in weights.iter_mut() {
                *x = how.cap * math::tanh(*x);
            }
        }
        let token = i / part.heads;
        if seen[token].all {
            weights[seen[token].end.into()..].fill(f32::NEG_INFINITY);
        } else {
            let mut numbers = [0.0; KEYS];
            halves(s, bytemuck::cast_slice(&added(part.mask, [token, part.batch], keys)), &mut numbers);
            // A hidden score doesn't matter, even if it is NaN.
            for (x, added) in weights.iter_mut().zip(numbers) {
                *x = if added == f32::NEG_INFINITY { added } else { *x + added };
            }
        }
        let sum = &mut sums[i];
        let most = math::max(weights).max(sum.most);
        // Of rows whose scores are all negative infinity, nothing is left.
        let from = if most == f32::NEG_INFINITY { 0.0 } else { most };
        for x in weights.iter_mut() {
            *x = math::exp(*x - from);
        }
        let factor = if sum.weights == 0.0 { 1.0 } else { math::exp(sum.most - from) };
        *sum = Sum { most, weights: sum.weights * factor + math::sum(weights, |x| x) };
        if factor.to_bits() != 1.0_f32.to_bits() {
            for row in all[i..].iter_mut().step_by(of_all) {
                row.0.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }
}

/// Stores the result of row `i` of `n`, after the sink's part of the sum.
pub(super) fn finish(
    scratch: &Scratch,
    n: usize,
    i: usize,
    sink: Option<f32>,
    size: usize,
    mut put: impl FnMut(&[f32]),
) {
    let Sum { most, weights } = scratch.sums[i];
    let (mut total, mut by) = (weights, 1.0);
    if let Some(sink) = sink {
        let largest = most.max(sink);
        by = (most - largest).exp();
        total = total * by + (sink - largest).exp();
    }
    // A row that sees nothing is zeros.
    let by = if total == 0.0 { 0.0 } else { by / total };
    for (row, from) in scratch.all[i..].iter().step_by(n).zip((0..size).step_by(WIDTH)) {
        put(&row.0.map(|x| x * by)[..WIDTH.min(size - from)]);
    }
}
