//! Where products go.

use ggml::ops::RowsMut;

use super::WIDTH;

/// What stores the values of a row.
pub(crate) type Put<'a> = &'a mut dyn FnMut(usize, &[f32; WIDTH]);

/// The columns of the product that a task computes, in parts of [`WIDTH`].
pub(crate) struct Out<'a> {
    /// The parts of the first row with their indices, then those of the second, and so on.
    all: Vec<(usize, &'a mut [f32; WIDTH])>,
    parts: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(out: RowsMut<'a, f32>) -> Self {
        let ([_, _, n2, n3], n) = (out.shape(), out.len());
        let mut all = Vec::with_capacity(n);
        all.extend(out.filter_map(|([part, ..], values)| Some((part, values.first_chunk_mut()?))));
        Self { parts: n / (n2 * n3), all }
    }

    /// Calls `compute` for each part, with its index.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, Put<'_>)) {
        for p in 0..self.parts {
            compute(self.all[p].0, &mut |row, values| *self.all[row * self.parts + p].1 = *values);
        }
    }
}
