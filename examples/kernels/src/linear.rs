//! A matrix product fused with the operation on its result.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ggml::ops::{CustomOptions, Operands, RowsMut};
use ggml::{Context, DType, Tensor};

use super::math;
use super::matmul::set::{compiled, with_set};
use super::matmul::{Level, Set as _, UnpackedPanels, WIDTH, has_dense_rows, level};

/// The number of rows whose results stay in the cache together.
const BLOCK: usize = 72;

/// Up to so many rows, threads share the columns of floats: each reads a part of the matrix, which is slower than to multiply it.
const FEW: i64 = 64;

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
        ensure!(found == expected, "{found} bytes, not the {expected} of {columns} rows of {depth} numbers in {dtype}");
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
        let [n0, n1, n2, n3] = x.ne();
        let depth = self.depth();
        ensure!(usize::try_from(n0) == Ok(depth), "rows should have {depth} numbers, but have {n0}");
        let columns = i64::try_from(self.columns())?;
        let shape = [columns, n1, n2, n3];
        let expected = matches!(self.then, Then::AddNorm { .. }).then_some(shape);
        ensure!(and.map(Tensor::ne) == expected, "the operand to add should have the shape {expected:?}");
        for t in [x].into_iter().chain(and) {
            ensure!(t.dtype() == DType::F32, "an operand should have the type f32, but has {}", t.dtype());
            ensure!(has_dense_rows(t), "an operand of shape {:?} has rows that are not contiguous; use `cont`", t.ne());
        }
        let rows = n1 * n2 * n3;
        let fits = |part: &Part| part.weights.dtype == DType::F32 && part.bias.len().is_multiple_of(WIDTH);
        let shared = rows <= FEW && self.parts.iter().all(fits);
        let how = CustomOptions::new();
        let (width, split) = if shared { (i64::try_from(WIDTH)?, how.with_split(1)) } else { (columns, how) };
        let product = self.operation(split, ctx, &[x], [width, columns / width, rows, 1])?;
        let product = ctx.reshape(product, shape)?;
        and.map_or(Ok(product), |and| self.operation(how, ctx, &[product, and], shape))
    }

    /// The product of an operand, or the norm of two: in plain Rust where the level is ggml's.
    fn operation<'c>(
        self: &Arc<Self>,
        how: CustomOptions,
        ctx: &'c Context,
        operands: &[Tensor<'c>],
        shape: [i64; 4],
    ) -> Result<Tensor<'c>> {
        let this = Arc::clone(self);
        let made = with_set!(self.level.max(Level::Plain), s => ctx.custom::<f32>(operands, shape, how, move |out, operands| {
            let this = &this;
            compiled!(s, if operands.len() == 1 { this.product(out, &operands) } else { this.norm(out, &operands) });
        }));
        Ok(made.context("the processor lacks the instructions")??)
    }

    /// The products with all matrices. Rows of the result are whole, or have the columns of a panel.
    #[inline(always)]
    fn product(&self, mut all: RowsMut<'_, f32>, operands: &Operands<'_>) {
        let x = operands.rows::<f32>(0);
        let ([_, n1, n2, _], [width, parts, rows, _]) = (x.shape(), all.shape());
        let n = if parts > 1 { all.len() / rows } else { 1 };
        loop {
            // A block at a time: rows are zeroed as they are taken, so they are in the cache then.
            let mut out: Vec<_> = all.by_ref().take(BLOCK * n).collect();
            let Some(&([start, ..], _)) = out.first() else { return };
            let ours = start * width..(start + n) * width;
            let rows = out.iter().step_by(n).map(|&([_, i, _], _)| x.row([i % n1, i / n1 % n2, i / n1 / n2]));
            let rows: Vec<_> = rows.collect();
            let (mut blocks, mut first) = (None, 0);
            for Part { weights, bias } in &self.parts {
                let [from, to] = [ours.start, ours.end].map(|column| column.clamp(first, first + bias.len()) - first);
                let panels = from / WIDTH..to.div_ceil(WIDTH);
                weights.multiply((&rows, panels), &mut blocks, &mut |panel, row, sums| {
                    let column = first + panel * WIDTH;
                    // Parts of a row have the width of a panel. (A division by a variable takes as long as the sums below.)
                    let at = if width == WIDTH { (column / WIDTH - start, column % WIDTH) } else { (0, column) };
                    let out = &mut out[row * n + at.0].1[at.1..];
                    let bias = &bias[panel * WIDTH..];
                    out.iter_mut().zip(sums).zip(bias).for_each(|((out, sum), bias)| *out = sum + bias);
                });
                first += bias.len();
            }
            if matches!(self.then, Then::Gelu) {
                // While they are in the cache.
                for (_, row) in out {
                    for x in row.iter_mut() {
                        *x = math::gelu(*x);
                    }
                }
            }
        }
    }

    /// The sum of two operands, with rows normalised.
    #[inline(always)]
    fn norm(&self, all: RowsMut<'_, f32>, operands: &Operands<'_>) {
        let Then::AddNorm { scale, shift, eps } = &self.then else { return };
        let [a, b] = [0, 1].map(|i| operands.rows::<f32>(i));
        for (i, row) in all {
            row.iter_mut().zip(a.row(i)).zip(b.row(i)).for_each(|((sum, a), b)| *sum = a + b);
            math::norm(row, scale, shift, *eps);
        }
    }
}
