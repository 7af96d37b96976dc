//! Operations whose rows are computed by code that is compiled for an instruction set.

use anyhow::{Context as _, Result, ensure};
use ggml::ops::{CustomOptions, Operands, RowsMut};
use ggml::{Context, DType, Tensor};

use super::matmul::set::{compiled, with_set};
use super::matmul::{Level, Set, has_dense_rows};

/// Refuses what a kernel can't read by rows.
pub(crate) fn dense(t: Tensor<'_>, dtype: DType) -> Result<()> {
    ensure!(t.dtype() == dtype, "an operand should have the type {dtype}, but has {}", t.dtype());
    ensure!(has_dense_rows(t), "an operand of shape {:?} has rows that are not contiguous; use `cont`", t.ne());
    Ok(())
}

/// Computes rows of an operation's result.
pub(crate) trait Kernel: Sized + Send + Sync + 'static {
    /// Computes these rows, compiled for a set.
    fn rows<S: Set>(&self, s: S, out: RowsMut<'_, f32>, operands: &Operands<'_>);

    /// The custom operation of this kernel: in plain Rust where `level` is ggml's.
    fn operation<'c>(
        self,
        level: Level,
        how: CustomOptions,
        ctx: &'c Context,
        operands: &[Tensor<'c>],
        shape: [i64; 4],
    ) -> Result<Tensor<'c>> {
        let made = with_set!(level.max(Level::Plain), s => ctx.custom::<f32>(operands, shape, how, move |out, operands| {
            let kernel = &self;
            compiled!(s, kernel.rows(s, out, &operands));
        }));
        Ok(made.context("the processor lacks the instructions")??)
    }
}
