//! A matrix product fused with the operation on its result.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ggml::{
    Context, DType, Tensor,
    ops::{Operands, RowsMut},
};

use super::kernel::{Kernel, dense};
use super::math;
use super::matmul::{Level, Set, UnpackedPanels, WIDTH, level};

/// The number of rows whose results stay in the cache together.
const BLOCK: usize = 72;

/// A row of the result, with its index.
type IndexedRow<'a> = ([usize; 3], &'a mut [f32]);

/// The operation on the result.
#[derive(Debug)]
pub enum Then {
    /// It stays as it is.
    Nothing,
    /// `gelu_erf` of ggml.
    Gelu,
    /// Adds the second operand, and normalises rows.
    AddNorm {
        /// What each column of normalised rows is multiplied by.
        scale: Vec<f32>,
        /// What is added to each column then.
        shift: Vec<f32>,
        /// Added to the variance.
        eps: f32,
    },
}

/// A matrix and a bias: some columns of the result.
#[derive(Debug)]
pub struct Part {
    weights: UnpackedPanels,
    bias: Vec<f32>,
}

impl Part {
    /// The matrix in ggml's format, whose rows have `depth` numbers, and a number of `bias` for each of its rows.
    ///
    /// # Errors
    /// If the bytes are not those of such a matrix, or it is empty.
    pub fn new(dtype: DType, bytes: &[u8], depth: usize, bias: &[f32]) -> Result<Self> {
        Self::at(level(), dtype, bytes, depth, bias)
    }

    /// One for a set.
    pub(super) fn at(level: Level, dtype: DType, bytes: &[u8], depth: usize, bias: &[f32]) -> Result<Self> {
        let columns = bias.len();
        ensure!(depth > 0 && columns > 0, "a matrix of {columns} rows of {depth} numbers is empty");
        let size = dtype.row_size(i64::try_from(depth)?).context("rows of weights are no whole blocks")?;
        let expected = size.checked_mul(columns).context("no matrix is so large")?;
        let found = bytes.len();
        ensure!(
            found == expected,
            "{columns} rows of {depth} numbers in {dtype} take {expected} bytes, but {found} are there"
        );
        Ok(Self { weights: UnpackedPanels::new(level, dtype, bytes, columns)?, bias: bias.to_vec() })
    }
}

/// `w x + b`, followed by an operation.
#[derive(Debug)]
pub struct Linear {
    pub(super) level: Level,
    parts: Vec<Part>,
    pub(super) then: Then,
}

impl Linear {
    /// Matrices beside each other, and what follows.
    ///
    /// # Errors
    /// If the matrices have rows of several lengths, or `then` is for another number of columns.
    pub fn new(parts: Vec<Part>, then: Then) -> Result<Self> {
        let this = Self { level: level(), parts, then };
        let depth = this.depth();
        ensure!(depth > 0 && this.parts.iter().all(|part| part.weights.depth == depth), "matrices of several depths");
        if let Then::AddNorm { scale, shift, .. } = &this.then {
            let n = this.columns();
            ensure!([scale.len(), shift.len()] == [n; 2], "the norm is not one of {n} numbers");
        }
        Ok(this)
    }

    /// Numbers in a row of the operand.
    fn depth(&self) -> usize {
        self.parts.first().map_or(0, |part| part.weights.depth)
    }

    /// Numbers in a row of the result.
    pub fn columns(&self) -> usize {
        self.parts.iter().map(|part| part.bias.len()).sum()
    }

    /// The operation on `x`, and on what else the [`Then`] takes.
    ///
    /// # Errors
    /// If the operands have other shapes or types, or rows that are not contiguous, and those of [`Context::custom`].
    pub fn apply<'c>(self: &Arc<Self>, ctx: &'c Context, x: Tensor<'c>, and: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let operands: Vec<_> = [x].into_iter().chain(and).collect();
        let [n0, n1, n2, n3] = x.ne();
        let depth = self.depth();
        ensure!(usize::try_from(n0) == Ok(depth), "rows should have {depth} numbers, but have {n0}");
        let shape = [i64::try_from(self.columns())?, n1, n2, n3];
        let expected = matches!(self.then, Then::AddNorm { .. }).then_some(shape);
        ensure!(and.map(Tensor::ne) == expected, "the operand to add should have the shape {expected:?}");
        for &t in &operands {
            dense(t, DType::F32)?;
        }
        Arc::clone(self).operation(self.level, ctx, &operands, shape)
    }
}

impl Kernel for Arc<Linear> {
    #[inline(always)]
    fn rows<S: Set>(&self, _: S, mut all: RowsMut<'_, f32>, operands: &Operands<'_>) {
        let x = operands.rows::<f32>(0);
        loop {
            let mut out: Vec<_> = all.by_ref().take(BLOCK).collect();
            if out.is_empty() {
                break;
            }
            let rows: Vec<_> = out.iter().map(|&(i, _)| x.row(i)).collect();
            let mut blocks = None;
            let mut first = 0;
            for Part { weights, bias, .. } in &self.parts {
                weights.multiply(&rows, &mut blocks, &mut |panel, row, sums| {
                    let bias = &bias[panel * WIDTH..];
                    let out = &mut out[row].1[first + panel * WIDTH..];
                    for ((out, sum), bias) in out.iter_mut().zip(sums).zip(bias) {
                        *out = sum + bias;
                    }
                });
                first += bias.len();
            }
            self.then.apply(operands, out);
        }
    }
}

impl Then {
    /// Applies the operation while the rows are in the cache.
    #[inline(always)]
    fn apply(&self, operands: &Operands<'_>, rows: Vec<IndexedRow<'_>>) {
        match self {
            Self::Nothing => {}
            Self::Gelu => {
                for (_, row) in rows {
                    for x in row {
                        *x = math::gelu(*x);
                    }
                }
            }
            Self::AddNorm { scale, shift, eps } => {
                let and = operands.rows::<f32>(1);
                for (i, row) in rows {
                    row.iter_mut().zip(and.row(i)).for_each(|(x, y)| *x += y);
                    math::norm(row, scale, shift, *eps);
                }
            }
        }
    }
}
