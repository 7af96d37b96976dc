//! Where products go.

use ggml::ops::RowsMut;

use super::WIDTH;

/// What stores the values of a row.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, &[f32; WIDTH]);

/// The columns of the product that a task computes, in parts of [`WIDTH`].
pub(crate) struct Out<'a> {
    /// Those of each row.
    rows: Vec<&'a mut [[f32; WIDTH]]>,
    first: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(out: RowsMut<'a, f32>) -> Self {
        let mut first = 0;
        let parts = |([part, ..], numbers): ([usize; 3], &'a mut [f32])| {
            first = part;
            numbers.as_chunks_mut().0
        };
        Self { rows: out.runs().map(parts).collect(), first }
    }

    /// Calls `compute` for each part, with its index.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, Put<'_>)) {
        for p in 0..self.rows.first().map_or(0, |row| row.len()) {
            compute(self.first + p, &mut |row, values| self.rows[row][p] = *values);
        }
    }
}
