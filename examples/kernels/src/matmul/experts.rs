//! Products with a matrix for each expert. Rows of activations are gathered by expert, and each matrix that is used is read once.

use std::cell::RefCell;

use ggml::ops::{CustomOp, CustomOptions, Operands};

use super::activations::{self, BLOCK, Block};
use super::blocks;
use super::few_rows::FewRows;
use super::float_rows;
use super::floats::{self, Float, FloatScratch};
use super::panel::Panel;
use super::set::Set;
use super::types::Type;
use super::{Out, resize, weights};
use crate::panels::Row;

/// An expert, and a row of the product that it computes.
type Picked = (usize, usize);

/// Lists the rows of the product by their experts.
fn pick(operands: &Operands<'_>, picked: &mut Vec<Picked>) {
    let ids = operands.rows::<i32>(2);
    let [used, tokens, ..] = ids.shape();
    // An index that no expert has is none of a row of the matrix either, where it panics.
    let expert = |row| usize::try_from(ids.at([row % used, row / used, 0, 0])).unwrap_or(usize::MAX);
    picked.clear();
    picked.extend((0..used * tokens).map(|row| (expert(row), row)));
    picked.sort_unstable();
}

/// Memory for what is computed on the way.
#[derive(Default)]
struct ExpertScratch {
    picked: Vec<Picked>,
    blocks: Vec<Block>,
    gathered: Vec<Block>,
    panel: Vec<Panel>,
    sums: Vec<Row>,
    floats: FloatScratch,
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<ExpertScratch> = RefCell::default();
}

/// The operation for matrices of blocks.
pub(super) fn blocks<S: Set, T: Type>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| multiply_blocks::<S, T>(s, Out::new(out), &operands, scratch));
    })
}

/// The operation for matrices of floats.
pub(super) fn floats<S: Set, T: Float>(s: S) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| multiply_floats::<S, T>(s, Out::new(out), &operands, scratch));
    })
}

fn multiply_blocks<S: Set, T: Type>(s: S, mut out: Out<'_>, operands: &Operands<'_>, scratch: &mut ExpertScratch) {
    let ExpertScratch { picked, blocks, gathered, panel, sums, .. } = scratch;
    pick(operands, picked);
    let x = operands.rows::<f32>(1);
    let [depth, several, tokens, _] = x.shape();
    let n = depth / BLOCK;
    let used = picked.len() / tokens;
    let mut is_quantised = false;
    for rows in picked.chunk_by(|a, b| a.0 == b.0) {
        let few = FewRows::new(operands, rows[0].0, rows.len(), |i| {
            let row = rows[i].1;
            (x.row([(row % used).min(several - 1), row / used, 0]), row)
        });
        if few.is_some_and(|few| s.multiply_few::<T>(&mut out, &few)) {
            continue;
        }
        let blocks = resize(blocks, several * tokens * n);
        if !is_quantised {
            for (i, to) in blocks.chunks_exact_mut(n).enumerate() {
                activations::quantise(s, x.row([i % several, i / several, 0]), T::HALVES, to);
            }
            is_quantised = true;
        }
        let gathered = resize(gathered, rows.len() * n);
        for (to, (_, row)) in gathered.chunks_exact_mut(n).zip(rows) {
            let from = row / used * several + (row % used).min(several - 1);
            to.copy_from_slice(&blocks[from * n..][..n]);
        }
        out.each(|part, put| {
            let columns = weights(operands, part, rows[0].0).map(bytemuck::cast_slice);
            blocks::product::<S, T>(s, &columns, gathered, (panel, sums), &mut |i, values| put(rows[i].1, values));
        });
    }
}

fn multiply_floats<S: Set, T: Float>(s: S, mut out: Out<'_>, operands: &Operands<'_>, scratch: &mut ExpertScratch) {
    let ExpertScratch { picked, floats, .. } = scratch;
    pick(operands, picked);
    let x = operands.rows::<f32>(1);
    let [_, several, tokens, _] = x.shape();
    let used = picked.len() / tokens;
    for picked in picked.chunk_by(|a, b| a.0 == b.0) {
        let row = |i: usize| x.row([(picked[i].1 % used).min(several - 1), picked[i].1 / used, 0]);
        float_rows::with_rows(picked.len(), row, floats, |rows, floats| {
            out.each(|part, put| {
                let columns = &weights(operands, part, picked[0].0);
                floats::product::<S, T>(s, columns, rows, floats, &mut |i, values| put(picked[i].1, values));
            });
        });
    }
}
