//! A matrix product fused with the operation on its result.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use ggml::{Context, Custom, Operands, RowsMut, Tensor};
use pulp::{Arch, Simd, WithSimd};

use super::int8::{self, BlockPanels};
use super::math;
use super::panels::{self, Panels, WIDTH, apart, by_width, fill, product};

/// The number of rows whose results stay in the cache together.
const BLOCK: usize = 64;

/// A row of the result, with its index.
type Out<'a> = ([usize; 3], &'a mut [f32]);

/// The operation on the result.
#[derive(Debug)]
pub(super) enum Then {
    Nothing,
    Gelu,
    /// Adds the second operand, and normalises rows.
    AddNorm {
        scale: Vec<f32>,
        shift: Vec<f32>,
        eps: f32,
    },
}

#[derive(Debug)]
pub(super) enum Weights {
    Floats(Panels),
    Blocks(BlockPanels),
}

/// A range of columns of the result.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) weights: Weights,
    pub(super) bias: Panels,
    pub(super) columns: usize,
}

/// `w x + b`, followed by an operation.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) arch: Arch,
    pub(super) parts: Vec<Part>,
    pub(super) then: Then,
}

impl Linear {
    pub(super) fn columns(&self) -> usize {
        self.parts.iter().map(|part| part.columns).sum()
    }

    /// Adds the custom operation to a graph; `then` may take a second operand.
    pub(super) fn apply<'c>(
        self: &Arc<Self>,
        ctx: &'c Context,
        x: Tensor<'c>,
        and: Option<Tensor<'c>>,
    ) -> Result<Tensor<'c>> {
        let operands: Vec<_> = [x].into_iter().chain(and).collect();
        let [_, n1, n2, n3] = x.ne();
        let this = Arc::clone(self);
        let shape = [i64::try_from(self.columns())?, n1, n2, n3];
        Ok(ctx.custom::<f32>(&operands, shape, Custom::new(), move |out, operands| {
            this.arch.dispatch(Task { this: &this, out, operands });
        })?)
    }
}

/// A range of rows.
struct Task<'a> {
    this: &'a Linear,
    out: RowsMut<'a, f32>,
    operands: Operands<'a>,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let x = self.operands.rows::<f32>(0);
        loop {
            let mut out: Vec<_> = self.out.by_ref().take(BLOCK).collect();
            if out.is_empty() {
                break;
            }
            let rows: Vec<_> = out.iter().map(|&(i, _)| x.row(i)).collect();
            let mut blocks = Vec::new();
            let mut first = 0;
            for Part { weights, bias, columns } in &self.this.parts {
                match weights {
                    Weights::Floats(panels) => {
                        let columns = first..first + columns;
                        apart(simd, Multiply { panels, bias, rows: &rows, columns, out: &mut out });
                    }
                    Weights::Blocks(panels) => {
                        if blocks.is_empty() {
                            for row in &rows {
                                blocks.push(int8::quantise(row));
                            }
                        }
                        let (bias, rows) = (bias.iter().flatten().copied(), blocks.iter().map(|row| &row[..]));
                        panels.multiply(bias, &rows.collect::<Vec<_>>(), |column, row, sums| {
                            for ((_, out), sums) in out[row..].iter_mut().zip(sums) {
                                store(out, first + column..first + columns, &sums.0);
                            }
                        });
                    }
                }
                first += columns;
            }
            self.this.then.apply(&self.operands, out);
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
