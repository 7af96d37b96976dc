//! Matrix products.

use ggml_sys as sys;

use super::check::divides;
use crate::header::{Layout, init::TensorInit};
use crate::op::{MulMatOptions, Prec};
use crate::ops::prelude::*;

impl MulMatOptions {
    /// Checks the options' precisions.
    pub(super) fn check(self, call: Call<'_, '_>) -> Result<()> {
        let sums = !matches!(self.acc, Some(Prec::Q8 | Prec::Q4));
        call.param(sums, "acc", self.acc, "the accumulator must have at least 16 bits")
    }

    /// Sets the precisions of a product that was made just now.
    pub(super) fn set_precisions(self, call: Call<'_, '_>, t: Tensor<'_>) -> Result<()> {
        if let Some(acc) = self.acc {
            let done = amend!(sys::ggml_prec_set_acc(t; acc.raw()))?;
            call.param(done, "acc", acc, "ggml can't set it here; leave it out")?;
        }
        if let Some(src) = self.src {
            let done = amend!(sys::ggml_prec_set_src(t; src.raw(), 1))?;
            call.param(done, "src", src, "ggml can't set it")?;
        }
        Ok(())
    }
}

impl Context {
    /// Multiplies two matrices (`ggml_mul_mat`): with `a` of ggml shape `[k, m]` and `b` of `[k, n]`, the result is
    /// `[m, n]`, of `f32`; in row-major terms `b · aᵀ`.
    ///
    /// `a` is repeated over the third and fourth dimension of `b`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let a = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?; // two rows of three: the weights of a layer
    /// let b = ctx.reshape(ctx.arange(1.0, 4.0, 1.0)?, [3, 1])?; // one row: an input
    /// let y = ctx.mul_mat(a, b)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!((y.ne(), run.get::<f32>(y)?), ([2, 1, 1, 1], vec![8.0, 26.0]));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the first dimensions are equal, the upper dimensions of `a` divide
    /// those of `b`, and `a` is not transposed.
    #[doc(alias = "ggml_mul_mat")]
    pub fn mul_mat<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("mul_mat");
        self.mul_mat_ext(a, b, MulMatOptions::new())
    }

    /// [`Context::mul_mat`] with all options (`ggml_prec_set_acc`, `ggml_prec_set_src`, `ggml_mul_mat_set_hint`).
    ///
    /// # Errors
    ///
    /// As [`Context::mul_mat`]; [`Error::Param`](crate::Error::Param) for an accumulator of less than 16 bits;
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) where `hadamard` is set and `a`
    /// is not `f32`, square, and its size a power of two.
    #[doc(alias = "ggml_prec_set_acc")]
    #[doc(alias = "ggml_prec_set_src")]
    #[doc(alias = "ggml_mul_mat_set_prec")]
    #[doc(alias = "ggml_mul_mat_set_hint")]
    pub fn mul_mat_ext<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, how: MulMatOptions) -> Result<Tensor<'c>> {
        entered!("mul_mat_ext");
        let call = Call { op: entered!("mul_mat"), operands: &[a, b] };
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.ne(), b.ne());
        call.shape(a0 == b0, "the first dimensions must be equal")?;
        call.shape(
            divides(a2, b2) && divides(a3, b3),
            "the upper dimensions of the first must divide those of the second",
        )?;
        call.shape(!a.ptr().is_transposed(), "the first operand must not be transposed; use `cont`")?;
        call.result([a1, b1, b2, b3], DType::F32)?;
        how.check(call)?;
        if how.hadamard {
            // H15: with this hint, devices transform the rows of `b` by the length of these rows, whatever `a` is.
            call.shape(a0 == a1 && a0.count_ones() == 1, "a Hadamard matrix must be square, its size a power of two")?;
            call.dtype(a.dtype() == DType::F32, "the Hadamard matrix (first) must be f32")?;
        }
        let ne = [a1, b1, b2, b3];
        let fill = |t: &mut TensorInit<'_>| {
            t.operation(sys::GGML_OP_MUL_MAT, [a.ptr(), b.ptr()], Layout::packed(DType::F32, ne));
        };
        let t = build!(self, sys::ggml_mul_mat(a, b), fill)?;
        how.set_precisions(call, t)?;
        if how.hadamard {
            amend!(sys::ggml_mul_mat_set_hint(t; sys::GGML_HINT_SRC0_IS_HADAMARD))?;
        }
        Ok(t)
    }

    /// Sums the outer products of rows (`ggml_out_prod`): with `a` of ggml shape `[m, k]` and `b` of `[n, k]`, the
    /// result is `[m, n]`, of `f32`; in row-major terms `bᵀ · a`.
    ///
    /// `a` is repeated over the third and fourth dimension of `b`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (a, b) = (ctx.arange(1.0, 4.0, 1.0)?, ctx.arange(1.0, 3.0, 1.0)?);
    /// let y = ctx.out_prod(a, b)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 2.0, 3.0, 2.0, 4.0, 6.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the second dimensions are equal, the upper dimensions of `a` divide
    /// those of `b`, and `a` is not transposed.
    #[doc(alias = "ggml_out_prod")]
    pub fn out_prod<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("out_prod"), operands: &[a, b] };
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.ne(), b.ne());
        call.shape(a1 == b1, "the second dimensions (numbers of rows) must be equal")?;
        call.shape(b2 % a2 == 0 && b3 % a3 == 0, "the upper dimensions of the first must divide those of the second")?;
        call.shape(!a.ptr().is_transposed(), "the first operand must not be transposed; use `cont`")?;
        call.result([a0, b0, b2, b3], DType::F32)?;
        build!(self, sys::ggml_out_prod(a, b))
    }

    /// Solves `a · x = b` (row-major) for lower triangular matrices `a` (`ggml_solve_tri`, of which C implements only
    /// this variant). Elements above the diagonal are not read. With `a` of ggml shape `[n, n]` and `b` of `[k, n]`,
    /// `x` is `[k, n]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F32, [2, 2])?, ctx.input("b", DType::F32, [1, 2])?];
    /// let x = ctx.solve_tri(a, b)?;
    /// # let (graph, mut sched) = (ctx.graph([x])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(a, &[2.0_f32, 0.0, 1.0, 4.0])?; // 2 x = 6, x + 4 y = 11
    /// run.set(b, &[6.0_f32, 11.0])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(x)?, [3.0, 2.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`; [`Error::Shape`](crate::Error::Shape) unless both are
    /// contiguous, `a` is square with as many rows as `b`, and the upper dimensions are equal.
    #[doc(alias = "ggml_solve_tri")]
    pub fn solve_tri<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("solve_tri"), operands: &[a, b] };
        call.dtype([a, b].iter().all(|t| t.dtype() == DType::F32), "both operands must be f32")?;
        call.shape([a, b].iter().all(|t| t.is_contiguous()), "both operands must be contiguous; use `cont`")?;
        let ([a0, a1, a2, a3], [_, b1, b2, b3]) = (a.ne(), b.ne());
        call.shape(a0 == a1, "the first operand must be square")?;
        call.shape([a1, a2, a3] == [b1, b2, b3], "all dimensions except the first must be equal")?;
        let (left, lower, unit) = (true, true, false);
        build!(self, sys::ggml_solve_tri(a, b; left, lower, unit))
    }
}
