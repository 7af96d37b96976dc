//! What rows of queries add up to over a tile.

use bytemuck::Zeroable;

use super::tile::{KEYS, PANELS, Seen, Tile};
use super::{How, QueryPart, ROWS, Scratch};
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
    sums: Vec<Row>,
    /// What is multiplied, packed: queries, then weights.
    rows: Vec<f32>,
}

impl Products {
    /// Adds a tile's values times weights to the results of some rows.
    pub(super) fn add<S: Set>(
        &mut self,
        s: S,
        (how, part): (How, QueryPart),
        tile: &Tile,
        (some, queries, seen): (&[usize], &[f32], &[Seen]),
        (sums, all): (&mut [Sum], &mut [Row]),
    ) {
        let (n, heads) = (some.len(), part.heads);
        // What none of them sees isn't multiplied.
        let end = some.iter().map(|i| seen[i / heads].end).max().unwrap_or(0);
        let (rows, size) = (&mut self.rows, how.sizes[0]);
        let queries = pack::<S>((n, size), |i| &queries[some[i] * size..][..size], rows);
        let scores = &mut resize(&mut self.scores, PANELS * n)[..end.div_ceil(WIDTH) * n];
        scores.fill(Row::zeroed());
        for (scores, keys) in scores.chunks_exact_mut(n).zip(tile.keys.chunks_exact(size)) {
            tiles(s, queries, (keys, 0), scores);
        }
        let weights = resize(&mut self.weights, n);
        let mut factors = [0.0; ROWS];
        let factors = &mut factors[..n];
        s.run(|| weigh((how.cap, heads), scores, (some, seen), sums, weights, factors));
        let rows_of_all = sums.len();
        s.run(|| scale(some, factors, rows_of_all, all));
        if !tile.finite {
            for (i, weights) in some.iter().zip(weights) {
                tile.add_seen(&weights[..end], |panel, column, x| all[panel * rows_of_all + i].0[column] += x);
            }
            return;
        }
        let rows = pack::<S>((n, end), |i| &weights[i][..end], &mut self.rows);
        for (values, all) in tile.values.chunks_exact(KEYS).zip(all.chunks_exact_mut(rows_of_all)) {
            let products = resize(&mut self.sums, n);
            products.fill(Row::zeroed());
            tiles(s, rows, (values, 0), products);
            s.run(|| add(some, products, all));
        }
    }
}

/// Multiplies results by factors.
#[inline(always)]
fn scale(some: &[usize], factors: &[f32], rows_of_all: usize, all: &mut [Row]) {
    for all in all.chunks_exact_mut(rows_of_all) {
        for (i, factor) in some.iter().zip(factors) {
            if factor.to_bits() != 1.0_f32.to_bits() {
                for x in &mut all[*i].0 {
                    *x *= factor;
                }
            }
        }
    }
}

/// Makes scores weights, and says what earlier sums are multiplied by.
#[inline(always)]
fn weigh(
    (cap, heads): (f32, usize),
    scores: &[Row],
    (some, seen): (&[usize], &[Seen]),
    sums: &mut [Sum],
    weights: &mut [[f32; KEYS]],
    factors: &mut [f32],
) {
    let n = some.len();
    let width = scores.len() / n * WIDTH;
    for (j, (i, weights)) in some.iter().zip(weights).enumerate() {
        let weights = &mut weights[..width];
        for (panel, to) in weights.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            *to = scores[panel * n + j].0;
        }
        if cap != 0.0 {
            for x in weights.iter_mut() {
                *x = cap * math::tanh(*x);
            }
        }
        let seen = &seen[i / heads];
        if seen.all {
            weights[seen.end..].fill(f32::NEG_INFINITY);
        } else {
            // A hidden score doesn't matter, even if it is NaN.
            for (x, added) in weights.iter_mut().zip(&seen.added) {
                *x = if *added == f32::NEG_INFINITY { *added } else { *x + added };
            }
        }
        let sum = &mut sums[*i];
        let most = math::max(weights, 1.0).max(sum.most);
        // Of rows whose scores are all negative infinity, nothing is left.
        let from = if most == f32::NEG_INFINITY { 0.0 } else { most };
        for x in weights.iter_mut() {
            *x = math::exp(*x - from);
        }
        factors[j] = math::exp(sum.most - from);
        *sum = Sum { most, weights: sum.weights * factors[j] + math::sum(weights, |x| x) };
    }
}

/// Adds products to the results.
#[inline(always)]
fn add(some: &[usize], products: &[Row], all: &mut [Row]) {
    for (i, products) in some.iter().zip(products) {
        for (to, x) in all[*i].0.iter_mut().zip(&products.0) {
            *to += x;
        }
    }
}

/// Stores the result of row `i` of `n`, after the sink's part of the sum.
pub(super) fn finish(scratch: &Scratch, n: usize, i: usize, sink: Option<f32>, to: &mut [f32]) {
    let Sum { most, weights } = scratch.sums[i];
    let (mut total, mut by) = (weights, 1.0);
    if let Some(sink) = sink {
        let largest = most.max(sink);
        by = (most - largest).exp();
        total = total * by + (sink - largest).exp();
    }
    // A row that sees nothing is zeros.
    let by = if total == 0.0 { 0.0 } else { by / total };
    for (to, row) in to.chunks_mut(WIDTH).zip(scratch.all[i..].iter().step_by(n)) {
        for (to, x) in to.iter_mut().zip(&row.0) {
            *to = x * by;
        }
    }
}
