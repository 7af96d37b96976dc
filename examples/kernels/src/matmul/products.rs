//! Products of rows of activations with a matrix, or with one for each expert. Rows are gathered by expert, and each matrix that is
//! used is read once.

use std::cell::RefCell;

use bytemuck::Pod;
use ggml::DType;
use ggml::ops::{CustomOp, CustomOptions, Operands, Rows};

use super::activations::{self, BLOCK, Block};
use super::blocks;
use super::floats::{self, DEEP, FEW, Float};
use super::panel::Panel;
use super::set::Set;
use super::several::SEVERAL;
use super::types::{self, Type};
use super::words::{self, Blocks, Of, Units, WordsPart};
use super::{Out, Put, Row, WIDTH, resize, weights};

/// What computes products with matrices of a type.
pub(super) type Operation = (DType, CustomOp<f32>);

/// A row of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Picked {
    expert: usize,
    row: usize,
    /// The row of activations that it is computed from.
    from: usize,
}

/// The rows of the product that one matrix computes.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    operands: &'a Operands<'a>,
    x: Rows<'a, f32>,
    pub(super) rows: &'a [Picked],
}

impl<'a> Group<'a> {
    /// Activations that a row is computed from.
    pub(super) fn activations(&self, i: usize) -> &'a [f32] {
        let ([_, several, ..], from) = (self.x.shape(), self.rows[i].from);
        self.x.row([from % several, from / several, 0])
    }

    /// Calls `compute` for each part of the product, with the rows of the matrix.
    pub(super) fn each<T: Pod>(&self, out: &mut Out<'_>, mut compute: impl FnMut(&[&[T]; WIDTH], Put<'_>)) {
        out.each(|part, put| {
            let columns = weights(self.operands, part, self.rows[0].expert);
            compute(&columns, &mut |i, values| put(self.rows[i].row, values));
        });
    }
}

/// Lists the rows of the product by their experts; without experts, all are computed by one matrix.
fn pick(operands: &Operands<'_>, picked: &mut Vec<Picked>) {
    let [_, several, tokens, _] = operands.rows::<f32>(1).shape();
    picked.clear();
    if operands.len() == 2 {
        picked.extend((0..several * tokens).map(|row| Picked { expert: 0, row, from: row }));
        return;
    }
    let ids = operands.rows::<i32>(2);
    let [used, ..] = ids.shape();
    picked.extend((0..used * tokens).map(|row| {
        let (i, token) = (row % used, row / used);
        // An index that no expert has is none of a row of the matrix either, where it panics.
        let expert = usize::try_from(ids.at([i, token, 0, 0])).unwrap_or(usize::MAX);
        Picked { expert, row, from: token * several + i.min(several - 1) }
    }));
    picked.sort_unstable();
}

/// Memory for what is computed on the way.
#[derive(Default)]
struct ProductScratch {
    blocks: Vec<Block>,
    panel: Vec<Panel>,
    sums: Vec<Row>,
    float_panel: Vec<Row>,
    /// Rows of activations, in parts.
    parts: Vec<f32>,
    turns: Vec<Row>,
    words: Vec<WordsPart>,
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<(Vec<Picked>, ProductScratch)> = RefCell::default();
}

/// An operation. Each task computes some columns of all rows, so that the matrix is read once.
fn operation(
    dtype: DType,
    multiply: impl Fn(&mut Out<'_>, &Group<'_>, &mut ProductScratch) + Send + Sync + 'static,
) -> Operation {
    let op = CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        SCRATCH.with_borrow_mut(|(picked, scratch)| {
            let (mut out, x) = (Out::new(out), operands.rows(1));
            pick(&operands, picked);
            for rows in picked.chunk_by(|a, b| a.expert == b.expert) {
                multiply(&mut out, &Group { operands: &operands, x, rows }, scratch);
            }
        });
    });
    (dtype, op)
}

/// The operation for matrices of blocks.
pub(super) fn blocks<S: Set, T: Type>(s: S) -> Operation {
    operation(T::DTYPE, move |out, group, scratch| {
        if s.short().multiply_few::<T>(out, group) {
            return;
        }
        if types::most_of_pair::<S, T>().is_some() && group.rows.len() > SEVERAL {
            if T::INTEGERS {
                blocks_by_words::<S, T, Units>(s, out, group, scratch);
            } else {
                blocks_by_words::<S, T, Blocks>(s, out, group, scratch);
            }
            return;
        }
        let ProductScratch { blocks, panel, sums, .. } = scratch;
        let n = group.activations(0).len() / BLOCK;
        let blocks = resize(blocks, group.rows.len() * n);
        for (i, to) in blocks.chunks_exact_mut(n).enumerate() {
            activations::quantise::<S, T>(s, group.activations(i), to);
        }
        group.each(out, |columns, put| blocks::product::<S, T>(s, columns, blocks, (panel, sums), put));
    })
}

/// Products of many rows with blocks, whose pairs would have to be limited as bytes.
fn blocks_by_words<S: Set, T: Type, F: Of>(s: S, out: &mut Out<'_>, group: &Group<'_>, scratch: &mut ProductScratch) {
    let ProductScratch { panel, sums, float_panel, words, .. } = scratch;
    let n = group.rows.len();
    let rows = words::round::<S, F>(s, n, |i| group.activations(i), words);
    group.each(out, |columns, put| {
        words::of_blocks::<S, T, F>(s, columns, (n, rows), (panel, float_panel, sums), put);
    });
}

/// The operation for matrices of floats.
pub(super) fn floats<S: Set, T: Float>(s: S) -> Operation {
    operation(T::DTYPE, move |out, group, ProductScratch { float_panel: panel, sums, parts, turns, words, .. }| {
        let (n, row) = (group.rows.len(), |i| group.activations(i));
        if S::WORDS && T::DTYPE != DType::F32 && n > FEW {
            let rows = words::round::<S, words::Floats>(s, n, row, words);
            return group.each(out, |columns, put| words::of_floats::<S, T>(s, columns, (n, rows), (panel, sums), put));
        }
        let rows = match n {
            1 => vec![row(0)],
            2..=FEW => floats::in_turns::<S>(n, row, turns),
            _ => floats::pack::<S>((n, DEEP), row, parts).chunks(n * DEEP).collect(),
        };
        group.each(out, |columns, put| floats::product::<S, T>(s, columns, (n, &rows), (panel, sums), put));
    })
}
