#![doc = include_str!("../README.md")]
#![allow(clippy::indexing_slicing, reason = "arithmetic with indices is what this is")]
#![allow(clippy::inline_always, reason = "what is not inlined is not compiled for the processor's vectors")]

mod attention;
mod linear;
mod math;
mod matmul;
mod panels;
#[cfg(test)]
mod tests;

use ggml::{Context, Custom, Operands, RowsMut, Tensor};
use pulp::{Arch, Simd, WithSimd};

pub use attention::Attention;
pub use linear::{Linear, Part, Then};
pub use matmul::{mul_mat, multiplies};

/// Whether the processor has vectors that these kernels are compiled for. Otherwise ggml's kernels are faster.
pub fn any() -> bool {
    !matches!(Arch::new(), Arch::Scalar)
}

/// Computes rows of an operation's result.
trait Kernel: Send + Sync + 'static {
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
        ctx.custom::<f32>(operands, shape, Custom::new(), move |out, operands| {
            arch.dispatch(Rows { kernel: &self, out, operands });
        })
    }
}

/// The rows that one thread computes.
struct Rows<'a, K> {
    kernel: &'a K,
    out: RowsMut<'a, f32>,
    operands: Operands<'a>,
}

impl<K: Kernel> WithSimd for Rows<'_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.kernel.rows(simd, self.out, &self.operands);
    }
}
