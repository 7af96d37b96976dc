//! The table of operations: how each is drawn, and what it should compute.

mod binary;
mod copy;
mod custom;
mod generate;
mod glu;
mod mask;
mod matrix;
mod recurrent;
mod reduce;
mod set;
mod table;
mod unary;
mod view;

use std::sync::OnceLock;

use ggml::Result;
use testkit::cases::Row;
use testkit::cases::draw::Drawn;
use testkit::cases::each::{Each, Make};

use crate::bench::Made;
use crate::draw::Draw;
pub(crate) use table::table;

/// An operation.
pub(crate) struct Op {
    /// The builder's name.
    pub(crate) name: &'static str,
    run: Run,
}

/// How operands are drawn, the builder is called, and what is said should come of it.
enum Run {
    /// By a function of a family here.
    Own(for<'c> fn(&mut Draw<'_, 'c>) -> Result<Made<'c>>),
    /// As a function of each element.
    Each(&'static Each),
    /// Likewise, in place.
    InPlace(&'static Each, Make),
    /// As a row draws cases; maybe in place.
    Drawn(&'static Drawn, bool),
    /// As one of a row's cases.
    Row(&'static Row),
}

impl Op {
    pub(crate) fn run<'c>(&self, p: &mut Draw<'_, 'c>) -> Result<Made<'c>> {
        match self.run {
            Run::Own(run) => run(p),
            Run::Each(each) => table::each(p, self.name, each),
            Run::InPlace(each, make) => table::in_place(p, self.name, each, make),
            Run::Drawn(drawn, in_place) => table::drawn(p, self.name, drawn, in_place),
            Run::Row(row) => table::row(p, row),
        }
    }
}

/// A line of a family's table.
const fn op(name: &'static str, run: for<'c> fn(&mut Draw<'_, 'c>) -> Result<Made<'c>>) -> Op {
    Op { name, run: Run::Own(run) }
}

/// Operations that are drawn in a way of their own.
pub(crate) const FAMILIES: &[&[Op]] = &[
    view::OPS,
    recurrent::RECURRENT,
    binary::OPS,
    binary::TABLE,
    copy::OPS,
    custom::OPS,
    generate::OPS,
    glu::OPS,
    glu::GATED,
    mask::OPS,
    matrix::OPS,
    reduce::OPS,
    set::ROWS,
    set::TABLE,
    unary::OPS,
];

/// All operations.
pub(crate) fn all() -> Vec<&'static Op> {
    static OTHERS: OnceLock<Vec<Op>> = OnceLock::new();
    let others = OTHERS.get_or_init(table::others);
    FAMILIES.iter().flat_map(|f| f.iter()).chain(others).collect()
}
