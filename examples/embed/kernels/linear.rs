//! A product with weights, and what is done with its result at once.

use std::sync::Arc;

use anyhow::Result;
use ggml::{Context, Custom, Operands, RowsMut, Tensor};
use pulp::{Arch, Simd, WithSimd};

use super::math;
use super::panels::{self, Panels, WIDTH, by_width, product};

/// Rows whose results stay in the cache together.
const BLOCK: usize = 64;

/// What is done with the result.
#[derive(Debug)]
pub(super) enum Then {
    Nothing,
    Gelu,
    /// The second operand is added, and rows are normalised.
    AddNorm {
        scale: Vec<f32>,
        shift: Vec<f32>,
        eps: f32,
    },
}

/// `w x + b`, and what then.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) arch: Arch,
    pub(super) weights: Panels,
    pub(super) bias: Panels,
    pub(super) columns: usize,
    pub(super) then: Then,
}

impl Linear {
    /// The operation on x, and on what else `then` takes.
    pub(super) fn apply<'c>(
        self: &Arc<Self>,
        ctx: &'c Context,
        x: Tensor<'c>,
        and: Option<Tensor<'c>>,
    ) -> Result<Tensor<'c>> {
        let operands: Vec<_> = [x].into_iter().chain(and).collect();
        let [_, n1, n2, n3] = x.ne();
        let this = Arc::clone(self);
        let shape = [i64::try_from(self.columns)?, n1, n2, n3];
        Ok(ctx.custom::<f32>(&operands, shape, Custom::default(), move |out, operands| {
            this.arch.dispatch(Task { this: &this, out, operands });
        })?)
    }
}

/// Some of the rows.
struct Task<'a> {
    this: &'a Linear,
    out: RowsMut<'a, f32>,
    operands: Operands<'a>,
}

impl WithSimd for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        by_width!(simd: S, run(self));
    }
}

#[inline(always)]
fn run<S: Simd, const R: usize, const V: usize>(simd: S, mut task: Task<'_>) {
    let Linear { weights, bias, then, .. } = task.this;
    let x = task.operands.rows::<f32>(0);
    loop {
        let mut block: Vec<_> = task.out.by_ref().take(BLOCK).collect();
        let Some(last) = block.len().checked_sub(1) else { break };
        let rows: Vec<_> = block.iter().map(|&(i, _)| x.row(i)).collect();
        // A panel is read for all rows of a block while it is in the nearest cache.
        for ((panel, bias), first) in weights.iter().zip(bias.iter()).zip((0..).step_by(WIDTH)) {
            let (panel, bias) = (panels::vectors::<S, V>(panel), panels::vectors::<S, V>(bias));
            for (n, out) in block.chunks_mut(R).enumerate() {
                // Where rows are missing at the end, the last is computed again.
                let rows = std::array::from_fn(|i| rows[(n * R + i).min(last)]);
                let sums: [_; R] = product::<S, R, V>(simd, rows, panel, bias[0]);
                for ((_, out), sums) in out.iter_mut().zip(&sums) {
                    let end = out.len().min(first + WIDTH);
                    let sums: &[f32] = bytemuck::cast_slice(sums);
                    out[first..end].copy_from_slice(&sums[..end - first]);
                }
            }
        }
        match then {
            Then::Nothing => {}
            Then::Gelu => {
                for (_, out) in block {
                    for x in out {
                        *x = math::gelu(*x);
                    }
                }
            }
            Then::AddNorm { scale, shift, eps } => {
                let and = task.operands.rows::<f32>(1);
                for (i, out) in block {
                    out.iter_mut().zip(and.row(i)).for_each(|(x, y)| *x += y);
                    math::norm(out, scale, shift, *eps);
                }
            }
        }
    }
}
