//! Where in its layer each item lies: rows of nodes straight below each other, the rest near what it is joined to.
#![expect(clippy::indexing_slicing, reason = "indices of items, with vectors of a value for each")]

use super::layers::{Layers, mean};

/// Passes over all layers, downwards and upwards in turn. The last is upwards: leaves come to lie by their users.
const PASSES: usize = 4;

/// Places items that take `halves` to both sides; returns their middles.
pub(super) fn place(layers: &Layers, halves: &[f64]) -> Vec<f64> {
    let mut xs = vec![0.0; layers.items.len()];
    for row in &layers.rows {
        let width: f64 = row.iter().map(|&i| 2.0 * halves[i]).sum();
        let mut left = -width / 2.0;
        for &i in row {
            xs[i] = left + halves[i];
            left += 2.0 * halves[i];
        }
    }
    let weights = weights(layers);
    for pass in 0..PASSES {
        let down = pass % 2 == 0;
        for i in 0..layers.rows.len() {
            let row = &layers.rows[if down { i } else { layers.rows.len() - 1 - i }];
            let wishes: Vec<_> = (row.iter())
                .map(|&item| {
                    let it = &layers.items[item];
                    let (next, joined) = if down { (it.behind, &it.above) } else { (it.before, &it.below) };
                    let wish = next.map(|next| xs[next]).or_else(|| mean(joined, &xs));
                    wish.unwrap_or(xs[item])
                })
                .collect();
            settle(row, &wishes, halves, &weights, &mut xs);
        }
    }
    xs
}

/// How much each item's wish counts: the longer the row of nodes that it stands in, the more by far, so that it stays
/// straight.
fn weights(layers: &Layers) -> Vec<f64> {
    let mut weights = vec![1.0; layers.items.len()];
    for row in &layers.rows {
        for &first in row.iter().filter(|&&i| layers.items[i].behind.is_none()) {
            let chain = || std::iter::successors(Some(first), |&i| layers.items[i].before);
            let weight = chain().skip(1).take(9).fold(1.0, |weight, _| weight * 10.0);
            chain().for_each(|i| weights[i] = weight);
        }
    }
    weights
}

/// Items that were pushed together, and how far their first one is from where the row would begin.
struct Block {
    start: f64,
    weight: f64,
    items: usize,
}

/// Gives a row the places nearest to what was wished for, in its order and without overlaps: least squares, by pooling
/// neighbours that are in each other's way.
fn settle(row: &[usize], wishes: &[f64], halves: &[f64], weights: &[f64], xs: &mut [f64]) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut offset = 0.0;
    let mut offsets = Vec::with_capacity(row.len());
    for (&i, wish) in row.iter().zip(wishes) {
        offsets.push(offset + halves[i]);
        let mut block = Block { start: wish - offset - halves[i], weight: weights[i], items: 1 };
        offset += 2.0 * halves[i];
        while let Some(last) = blocks.pop_if(|last| last.start > block.start) {
            let weight = last.weight + block.weight;
            // As a step from the heavier one, whose place is not rounded away.
            let (heavy, light) = if last.weight > block.weight { (&last, &block) } else { (&block, &last) };
            let start = heavy.start + (light.start - heavy.start) * (light.weight / weight);
            block = Block { start, weight, items: last.items + block.items };
        }
        blocks.push(block);
    }
    let mut at = 0;
    for block in blocks {
        for _ in 0..block.items {
            xs[row[at]] = block.start + offsets[at];
            at += 1;
        }
    }
}
