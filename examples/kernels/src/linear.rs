//! A matrix product fused with the operation on its result.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ggml::{Context, DType, Operands, RowsMut, Tensor};
use pulp::{Arch, Simd, WithSimd};

use super::matmul::Panels as BytePanels;
use super::panels::{self, Panels, WIDTH, apart, by_width, fill, product};
use super::{Kernel, math};

/// The number of rows whose results stay in the cache together.
const BLOCK: usize = 64;

/// A row of the result, with its index.
type Out<'a> = ([usize; 3], &'a mut [f32]);

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

#[derive(Debug)]
enum Weights {
    Floats(Panels),
    Bytes(BytePanels),
}

/// A matrix and a bias: some columns of the result.
#[derive(Debug)]
pub struct Part {
    weights: Weights,
    bias: Panels,
    depth: usize,
    columns: usize,
}

impl Part {
    /// The matrix in ggml's format, whose rows have `depth` numbers, and a number of `bias` for each of its rows.
    ///
    /// # Errors
    /// If the bytes are not those of such a matrix.
    pub fn new(dtype: DType, bytes: &[u8], depth: usize, bias: &[f32]) -> Result<Self> {
        let columns = bias.len();
        let size = dtype.row_size(i64::try_from(depth)?).context("rows of weights are no whole blocks")?;
        ensure!(columns > 0 && bytes.len() == size * columns, "the weights' shapes are none of such a model");
        let weights = match BytePanels::new(dtype, bytes, columns) {
            Some(panels) => Weights::Bytes(panels),
            None => Weights::Floats(Panels::from_columns(&dtype.dequantize(bytes)?, depth)),
        };
        Ok(Self { weights, bias: Panels::from_columns(bias, 1), depth, columns })
    }
}

/// `w x + b`, followed by an operation.
#[derive(Debug)]
pub struct Linear {
    pub(super) arch: Arch,
    parts: Vec<Part>,
    pub(super) then: Then,
}

impl Linear {
    /// Matrices beside each other, and what follows.
    ///
    /// # Errors
    /// If the matrices have rows of several lengths, or `then` is for another number of columns.
    pub fn new(parts: Vec<Part>, then: Then) -> Result<Self> {
        let this = Self { arch: Arch::new(), parts, then };
        let depth = this.depth();
        ensure!(depth > 0 && this.parts.iter().all(|part| part.depth == depth), "matrices of several depths");
        if let Then::AddNorm { scale, shift, .. } = &this.then {
            let n = this.columns();
            ensure!([scale.len(), shift.len()] == [n; 2], "the norm is not one of {n} numbers");
        }
        Ok(this)
    }

    /// Numbers in a row of the operand.
    fn depth(&self) -> usize {
        self.parts.first().map_or(0, |part| part.depth)
    }

    /// Numbers in a row of the result.
    pub fn columns(&self) -> usize {
        self.parts.iter().map(|part| part.columns).sum()
    }

    /// The operation on `x`, and on what else the [`Then`] takes.
    ///
    /// # Errors
    /// If the operands have other shapes, and those of [`Context::custom`].
    pub fn apply<'c>(self: &Arc<Self>, ctx: &'c Context, x: Tensor<'c>, and: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let operands: Vec<_> = [x].into_iter().chain(and).collect();
        let [n0, n1, n2, n3] = x.ne();
        let depth = self.depth();
        ensure!(usize::try_from(n0) == Ok(depth), "rows should have {depth} numbers, but have {n0}");
        let shape = [i64::try_from(self.columns())?, n1, n2, n3];
        let expected = matches!(self.then, Then::AddNorm { .. }).then_some(shape);
        ensure!(and.map(Tensor::ne) == expected, "the operand to add should have the shape {expected:?}");
        Ok(Arc::clone(self).operation(self.arch, ctx, &operands, shape)?)
    }
}

impl Kernel for Arc<Linear> {
    #[inline(always)]
    fn rows<S: Simd>(&self, simd: S, mut all: RowsMut<'_, f32>, operands: &Operands<'_>) {
        let x = operands.rows::<f32>(0);
        loop {
            let mut out: Vec<_> = all.by_ref().take(BLOCK).collect();
            if out.is_empty() {
                break;
            }
            let rows: Vec<_> = out.iter().map(|&(i, _)| x.row(i)).collect();
            let mut blocks = None;
            let mut first = 0;
            for Part { weights, bias, columns, .. } in &self.parts {
                match weights {
                    Weights::Floats(panels) => {
                        let columns = first..first + columns;
                        apart(simd, Multiply { panels, bias, rows: &rows, columns, out: &mut out });
                    }
                    Weights::Bytes(panels) => {
                        let blocks = blocks.get_or_insert_with(|| panels.quantise(&rows));
                        panels.multiply(blocks, |panel, row, sums| {
                            let columns = first + panel * WIDTH..first + columns;
                            let biases = bias.iter().flatten().flat_map(|row| row.0).skip(panel * WIDTH);
                            let (_, out) = &mut out[row];
                            for ((out, sum), bias) in out[columns].iter_mut().zip(sums).zip(biases) {
                                *out = sum + bias;
                            }
                        });
                    }
                }
                first += columns;
            }
            self.then.apply(operands, out);
        }
    }
}

impl Then {
    /// Applies the operation while the rows are in the cache.
    #[inline(always)]
    fn apply(&self, operands: &Operands<'_>, rows: Vec<Out<'_>>) {
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

/// Multiplies rows by panels; a panel is used for all rows while it is in the L1 cache.
struct Multiply<'a, 'b> {
    panels: &'a Panels,
    bias: &'a Panels,
    rows: &'a [&'a [f32]],
    columns: Range<usize>,
    out: &'a mut [Out<'b>],
}

impl WithSimd for Multiply<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        by_width!(simd: S, multiply(self));
    }
}

#[inline(always)]
fn multiply<S: Simd, const R: usize, const V: usize>(simd: S, this: Multiply<'_, '_>) {
    let Multiply { panels, bias, rows, columns, out } = this;
    for ((panel, bias), first) in panels.iter().zip(bias.iter()).zip(columns.clone().step_by(WIDTH)) {
        let (panel, bias) = (panels::vectors::<S, V>(panel), panels::vectors::<S, V>(bias));
        for (rows, out) in rows.chunks(R).zip(out.chunks_mut(R)) {
            let sums: [_; R] = product::<S, R, V>(simd, fill(rows), panel, bias[0]);
            for ((_, out), sums) in out.iter_mut().zip(&sums) {
                store(out, first..columns.end, bytemuck::cast_slice(sums));
            }
        }
    }
}

/// Stores the sums of a panel's columns; the last panel may be partial.
#[inline(always)]
fn store(out: &mut [f32], columns: Range<usize>, sums: &[f32]) {
    let n = columns.len().min(WIDTH);
    out[columns.start..][..n].copy_from_slice(&sums[..n]);
}
