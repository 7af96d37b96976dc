//! Operations whose rows are computed by code that is compiled for the processor's vectors.

use anyhow::{Result, ensure};
use ggml::{
    Context, DType, Tensor,
    ops::{CustomOptions, Operands, RowsMut},
};
use pulp::{Arch, Simd, WithSimd};

use super::matmul::{self, Level};

/// The vectors that Linear and Attention are compiled for: those of the set that matrix products use.
pub(crate) fn arch() -> Arch {
    match matmul::level() {
        Level::None | Level::Plain => Arch::Scalar,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3),
        _ => Arch::new(),
    }
}

/// Refuses what a kernel can't read by rows.
pub(crate) fn dense(t: Tensor<'_>, dtype: DType) -> Result<()> {
    ensure!(t.dtype() == dtype, "an operand should have the type {dtype}, but has {}", t.dtype());
    ensure!(matmul::has_dense_rows(t), "an operand of shape {:?} has rows that are not contiguous; use `cont`", t.ne());
    Ok(())
}

/// Computes rows of an operation's result.
pub(crate) trait Kernel: Send + Sync + 'static {
    /// Computes these rows, compiled for the vectors `S`.
    fn rows<S: Simd>(&self, simd: S, out: RowsMut<'_, f32>, operands: &Operands<'_>);

    /// The custom operation of this kernel, compiled for `arch`.
    fn operation<'c>(
        self,
        arch: Arch,
        ctx: &'c Context,
        operands: &[Tensor<'c>],
        shape: [i64; 4],
    ) -> ggml::Result<Tensor<'c>>
    where
        Self: Sized,
    {
        ctx.custom::<f32>(operands, shape, CustomOptions::new(), move |out, operands| {
            arch.dispatch(RowsOf { kernel: &self, out, operands });
        })
    }
}

/// The rows that one thread computes.
struct RowsOf<'a, K> {
    kernel: &'a K,
    out: RowsMut<'a, f32>,
    operands: Operands<'a>,
}

impl<K: Kernel> WithSimd for RowsOf<'_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.kernel.rows(simd, self.out, &self.operands);
    }
}
