//! Horizontal positions of items: straight rows of nodes, the rest near their neighbours.
#![expect(clippy::indexing_slicing, reason = "indices of items, with vectors of a value for each")]

use super::layers::{Layers, mean};

/// How often positions are improved, downwards and upwards in turn; upwards last, to put leaves near their users.
const PASSES: usize = 4;

/// Places items with these half widths; returns their centres.
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

/// Each item's weight in conflicts: it grows steeply with the length of the straight row that the item is in, so that
/// long rows stay straight.
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

/// Items that were pushed together, and the offset of the first one from the start of the row.
struct Block {
    start: f64,
    weight: f64,
    items: usize,
}

/// Places a row's items as near as possible to their wished positions, in order and without overlaps: least squares, by
/// pooling neighbours that conflict.
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
            // Computed from the heavier block, whose position then has no rounding error.
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
