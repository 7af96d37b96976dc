//! Where products go.

use ggml::ops::RowsMut;

/// The columns of the product that a task computes, in parts of [`super::WIDTH`].
pub(crate) enum Out<'a> {
    /// Of a single row, part by part, once.
    One(RowsMut<'a, f32>),
    /// The parts of the first row with their indices, then those of the second, and so on.
    More { all: Vec<([usize; 3], &'a mut [f32])>, parts: usize },
}

impl<'a> Out<'a> {
    pub(super) fn new(out: RowsMut<'a, f32>) -> Self {
        let [_, _, n2, n3] = out.shape();
        let rows = n2 * n3;
        if rows == 1 {
            return Self::One(out); // without a list, and so without allocating
        }
        Self::More { parts: out.len() / rows, all: out.collect() }
    }

    /// Calls `compute` for each part, with its index and with what stores the values of a row.
    pub(super) fn each(&mut self, mut compute: impl FnMut(usize, &mut dyn FnMut(usize, &[f32]))) {
        match self {
            Self::One(out) => {
                for ([part, ..], to) in out {
                    compute(part, &mut |_, values| to.copy_from_slice(values));
                }
            }
            Self::More { all, parts } => {
                for p in 0..*parts {
                    let ([part, ..], _) = all[p];
                    compute(part, &mut |row, values| all[row * *parts + p].1.copy_from_slice(values));
                }
            }
        }
    }
}
