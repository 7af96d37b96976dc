//! The table of operations: how each is drawn, and what it should compute.

mod copy;
mod custom;
mod set;
mod table;
mod view;

use std::sync::OnceLock;

use ggml::Result;
use testkit::cases::draw::{Drawn, Seeded};
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
}

impl Op {
    pub(crate) fn run<'c>(&self, p: &mut Draw<'_, 'c>) -> Result<Made<'c>> {
        match self.run {
            Run::Own(run) => run(p),
            Run::Each(each) => table::each(p, self.name, each),
            Run::InPlace(each, make) => table::in_place(p, self.name, each, make),
            Run::Drawn(drawn, in_place) => table::drawn(p, self.name, drawn, in_place),
        }
    }

    /// Whether its row says what it computes.
    pub(crate) fn has_reference(&self) -> bool {
        match self.run {
            Run::Own(_) => false,
            Run::Each(_) | Run::InPlace(..) => true,
            Run::Drawn(drawn, _) => (0..8).any(|seed| drawn(&mut Seeded::new(seed)).reference.is_some()),
        }
    }
}

/// A line of a family's table.
const fn op(name: &'static str, run: for<'c> fn(&mut Draw<'_, 'c>) -> Result<Made<'c>>) -> Op {
    Op { name, run: Run::Own(run) }
}

/// Operations that are drawn in a way of their own: what they read or write is a matter of memory, or of closures.
pub(crate) const FAMILIES: &[&[Op]] = &[view::OPS, copy::OPS, custom::OPS, set::ROWS, set::TABLE, set::BY_INDEX];

/// All operations.
pub(crate) fn all() -> Vec<&'static Op> {
    static OTHERS: OnceLock<Vec<Op>> = OnceLock::new();
    let others = OTHERS.get_or_init(table::others);
    FAMILIES.iter().flat_map(|f| f.iter()).chain(others).collect()
}
