//! Where products go.

use ggml::ops::RowsMut;

/// The columns of the product that a task computes, in parts of [`super::WIDTH`].
pub(crate) enum Out<'a> {
    /// Of a single row, part by part, once.
    One(RowsMut<'a, f32>),
    /// The parts of the first row, then those of the second, and so on; and the index of the first part.
    More { all: Vec<&'a mut [f32]>, parts: usize, first: usize },
}

impl<'a> Out<'a> {
    pub(super) fn new(out: RowsMut<'a, f32>) -> Self {
        let [_, _, n2, n3] = out.shape();
        let rows = n2 * n3;
        if rows == 1 {
            return Self::One(out); // without a list, and so without allocating
        }
        let parts = out.len() / rows;
        let mut first = None;
        let all = out.map(|([part, ..], values)| {
            first.get_or_insert(part);
            values
        });
        Self::More { all: all.collect(), parts, first: first.unwrap_or(0) }
    }

    /// Calls `compute` for each part, with its index and with what stores the values of a row.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, &mut dyn FnMut(usize, &[f32]))) {
        match self {
            Self::One(out) => {
                for ([part, ..], to) in out {
                    compute(part, &mut |_, values| to.copy_from_slice(values));
                }
            }
            Self::More { all, parts, first } => {
                for p in 0..*parts {
                    compute(*first + p, &mut |row, values| all[row * *parts + p].copy_from_slice(values));
                }
            }
        }
    }
}
