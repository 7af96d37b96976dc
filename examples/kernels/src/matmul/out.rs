//! Where products go.

use std::ops::Range;

use ggml::ops::RowsMut;

use super::WIDTH;

/// What stores the values of a row.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, &[f32; WIDTH]);

/// The columns of the product that a task computes, in parts of [`WIDTH`]: a run of them for each row.
pub(crate) struct Out<'a> {
    out: RowsMut<'a, f32>,
    parts: Range<usize>,
}

impl<'a> Out<'a> {
    pub(super) fn new(mut out: RowsMut<'a, f32>) -> Self {
        let parts = out.runs().first().map_or(0..0, |&([first, ..], n)| first..first + n / WIDTH);
        Self { out, parts }
    }

    /// Calls `compute` for each part, with its index. Of each row that it has values of, it has those of all parts.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, Put<'_>)) {
        for part in self.parts.clone() {
            compute(part, &mut |row, values| self.out.append(row, values));
        }
    }
}
