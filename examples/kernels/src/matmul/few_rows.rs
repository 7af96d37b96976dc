//! A few rows of activations, and the matrix that multiplies them: all of a product, or those that picked an expert.

use ggml::ops::Operands;

use super::float_rows::FEW;
use super::{WIDTH, weights};

/// The product of at most [`FEW`] rows.
pub(crate) struct FewRows<'a> {
    operands: &'a Operands<'a>,
    expert: usize,
    n: usize,
    /// Rows of activations, and the rows of the product that they become.
    rows: [(&'a [f32], usize); FEW],
}

impl<'a> FewRows<'a> {
    /// If there are no more.
    pub(super) fn new(
        operands: &'a Operands<'a>,
        expert: usize,
        n: usize,
        row: impl Fn(usize) -> (&'a [f32], usize),
    ) -> Option<Self> {
        let mut rows = [(&[][..], 0); FEW];
        rows.get_mut(..n)?.iter_mut().enumerate().for_each(|(i, to)| *to = row(i));
        Some(Self { operands, expert, n, rows })
    }

    pub(super) fn depth(&self) -> usize {
        self.rows[0].0.len()
    }

    pub(super) fn len(&self) -> usize {
        self.n
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &'a [f32]> {
        self.rows[..self.n].iter().map(|row| row.0)
    }

    /// The row of the product that a row becomes.
    pub(super) fn place(&self, i: usize) -> usize {
        self.rows[i].1
    }

    /// The rows of the matrix for a part of the product.
    pub(super) fn columns(&self, part: usize) -> [&'a [u8]; WIDTH] {
        weights(self.operands, part, self.expert)
    }
}
