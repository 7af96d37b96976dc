//! Where products go.

use ggml::ops::RowsMut;

/// The columns of the product that a task computes, in parts of [`super::WIDTH`].
pub(crate) struct Out<'a> {
    /// The parts of the first row with their indices, then those of the second, and so on.
    all: Vec<([usize; 3], &'a mut [f32])>,
    parts: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(out: RowsMut<'a, f32>) -> Self {
        let [_, _, n2, n3] = out.shape();
        Self { parts: out.len() / (n2 * n3), all: out.collect() }
    }

    /// Calls `compute` for each part, with its index and with what stores the values of a row.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, &mut dyn FnMut(usize, &[f32]))) {
        for p in 0..self.parts {
            let ([part, ..], _) = self.all[p];
            compute(part, &mut |row, values| self.all[row * self.parts + p].1.copy_from_slice(values));
        }
    }
}
