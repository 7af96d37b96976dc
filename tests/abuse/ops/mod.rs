//! The table of operations: how each is drawn, and what it should compute.

mod attention;
mod binary;
mod copy;
mod custom;
mod generate;
mod glu;
mod mask;
mod matrix;
mod norm;
mod reduce;
mod rope;
mod set;
mod softmax;
mod spatial;
mod unary;
mod view;

use ggml::Result;

use crate::bench::Made;
use crate::draw::Draw;

/// An operation.
pub(crate) struct Op {
    /// The builder's name.
    pub(crate) name: &'static str,
    /// Draws operands, calls the builder, and says what should come of it.
    pub(crate) run: for<'c> fn(&mut Draw<'_, 'c>) -> Result<Made<'c>>,
}

/// A line of a family's table.
const fn op(name: &'static str, run: for<'c> fn(&mut Draw<'_, 'c>) -> Result<Made<'c>>) -> Op {
    Op { name, run }
}

/// All operations.
pub(crate) const FAMILIES: &[&[Op]] = &[
    view::OPS,
    attention::OPS,
    attention::RECURRENT,
    attention::STREAMS,
    binary::OPS,
    binary::TABLE,
    copy::OPS,
    custom::OPS,
    generate::OPS,
    glu::OPS,
    glu::GATED,
    mask::OPS,
    mask::TABLE,
    matrix::OPS,
    norm::OPS,
    norm::TABLE,
    reduce::OPS,
    rope::OPS,
    set::ROWS,
    set::TABLE,
    softmax::OPS,
    spatial::COLUMNS,
    spatial::CONVOLUTIONS,
    spatial::POOLS,
    spatial::SIZES,
    unary::OPS,
    unary::TABLE,
];

pub(crate) fn all() -> Vec<&'static Op> {
    FAMILIES.iter().flat_map(|f| f.iter()).collect()
}
