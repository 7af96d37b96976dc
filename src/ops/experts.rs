//! Mixtures of experts: matrices and biases picked by index for each row.

use super::index::Indices;
use crate::op::MulMatOptions;
use crate::ops::prelude::*;

impl Context {
    /// Multiplies each row by a matrix picked for it (`ggml_mul_mat_id`): with `experts` of ggml shape `[k, m, n]`, `b`
    /// of `[k, used, tokens]` and `ids` of `[used, tokens]`, the result is `[m, used, tokens]`, of `f32`. Its row `[e,
    /// t]` is the product of row `[e, t]` of `b` with matrix `ids[e, t]`. A `b` with fewer rows per token is repeated.
    ///
    /// The indices in `ids` must be an input, a view of one, or made by `argsort` or `top_k`. Those of an input are
    /// checked when it is set. The indices of each token must be distinct.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let experts = ctx.input("experts", DType::F32, [16, 32, 8])?; // 8 matrices
    /// let x = ctx.input("x", DType::F32, [16, 1, 5])?; // 5 tokens
    /// let picked = ctx.top_k(ctx.input("scores", DType::F32, [8, 5])?, 2)?;
    /// assert_eq!(ctx.mul_mat_id(experts, x, picked)?.ne(), [32, 2, 5, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `ids` is `i32`; [`Error::Shape`](crate::Error::Shape) where shapes
    /// do not fit, `experts` is transposed, or the indices are not known to be in range.
    #[doc(alias = "ggml_mul_mat_id")]
    pub fn mul_mat_id<'c>(&'c self, experts: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("mul_mat_id");
        self.mul_mat_id_ext(experts, b, ids, MulMatOptions::new())
    }

    /// [`Context::mul_mat_id`] with the precisions of `how` (`ggml_prec_set_acc`, `ggml_prec_set_src`).
    ///
    /// # Errors
    ///
    /// As [`Context::mul_mat_id`]; [`Error::Param`](crate::Error::Param) for an accumulator of less than 16 bits, or where
    /// `hadamard` is set.
    pub fn mul_mat_id_ext<'c>(
        &'c self,
        experts: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
        how: MulMatOptions,
    ) -> Result<Tensor<'c>> {
        entered!("mul_mat_id_ext");
        self.times_picked([experts, b, ids], how, Indices::Checked)
    }

    /// [`Context::mul_mat_id`] with unchecked indices, from a [`State`](crate::State) or any operation.
    ///
    /// # Errors
    ///
    /// As [`Context::mul_mat_id`], except that indices may come from anywhere. Those of an input are still checked.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all indices must be at least 0 and less than the third dimension of `experts`:
    /// kernels write out of bounds otherwise. So do those of CUDA, and of repacked experts, unless the indices of each token are
    /// distinct.
    pub unsafe fn mul_mat_id_unchecked<'c>(
        &'c self,
        experts: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        entered!("mul_mat_id_unchecked");
        self.times_picked([experts, b, ids], MulMatOptions::new(), Indices::Promised)
    }

    fn times_picked<'c>(
        &'c self,
        [experts, b, ids]: [Tensor<'c>; 3],
        how: MulMatOptions,
        indices: Indices,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("mul_mat_id"), operands: &[experts, b, ids] };
        how.check(call)?;
        call.param(!how.hadamard, "hadamard", how.hadamard, "experts have no such hint")?;
        call.dtype(ids.dtype() == DType::I32, "the indices of experts (third) must be i32")?;
        let ([k, m, n, a3], [b0, b1, tokens, b3], [used, i1, i2, i3]) = (experts.ne(), b.ne(), ids.ne());
        call.shape(k == b0, "the first dimensions must be equal")?;
        call.shape([a3, b3, i2, i3] == [1; 4], "experts and rows must be 3-d at most, indices 2-d")?;
        call.shape(i1 == tokens, "there must be a row of expert indices for each token (third dimension of the rows)")?;
        call.shape(used % b1 == 0, "the number of rows per token must divide that of experts per token")?;
        call.shape(!experts.ptr().is_transposed(), "the first operand must not be transposed; use `cont`")?;
        indices.check(call, ids, n)?;
        indices.check_distinct(call, ids)?;
        call.result([m, used, tokens, 1], DType::F32)?;
        let t = build!(self, sys::ggml_mul_mat_id(experts, b, ids))?;
        how.set_precisions(call, t)?;
        Ok(t)
    }

    /// Adds to each row of `a` a row of `b` picked for it (`ggml_add_id`): with `a` of ggml shape `[n, used, tokens]`,
    /// `b` of `[n, rows]` and `ids` of `[used, tokens]`, row `ids[e, t]` of `b` is added to row `[e, t]`.
    ///
    /// The indices in `ids` must be an input, a view of one, or made by `argsort` or `top_k`. Those of an input are
    /// checked when it is set.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [32, 2, 5])?; // of 2 experts for each of 5 tokens
    /// let biases = ctx.input("biases", DType::F32, [32, 8])?;
    /// let picked = ctx.top_k(ctx.input("scores", DType::F32, [8, 5])?, 2)?;
    /// assert_eq!(ctx.add_id(x, biases, picked)?.ne(), x.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` and `b` are `f32` and `ids` is `i32`;
    /// [`Error::Shape`](crate::Error::Shape) where shapes do not fit, or the indices are not known to be in range.
    #[doc(alias = "ggml_add_id")]
    pub fn add_id<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("add_id");
        self.plus_picked(a, b, ids, Indices::Checked)
    }

    /// [`Context::add_id`] with unchecked indices, from a [`State`](crate::State) or any operation.
    ///
    /// # Errors
    ///
    /// As [`Context::add_id`], except that indices may come from anywhere. Those of an input are still checked.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all indices must be at least 0 and less than the second dimension of `b`:
    /// kernels read out of bounds otherwise, or end the process.
    pub unsafe fn add_id_unchecked<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("add_id_unchecked");
        self.plus_picked(a, b, ids, Indices::Promised)
    }

    fn plus_picked<'c>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
        indices: Indices,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("add_id"), operands: &[a, b, ids] };
        call.dtype(ids.dtype() == DType::I32, "the row indices (third) must be i32")?;
        call.dtype(a.dtype() == DType::F32 && b.dtype() == DType::F32, "the first two operands must be f32")?;
        let ([n, used, tokens, a3], [b0, rows, b2, b3], [i0, i1, i2, i3]) = (a.ne(), b.ne(), ids.ne());
        call.shape(n == b0, "the first dimensions must be equal")?;
        call.shape([a3, b2, b3, i2, i3] == [1; 5], "the first operand must be 3-d at most, the others 2-d")?;
        call.shape([i0, i1] == [used, tokens], "there must be one index for each row of the first operand")?;
        indices.check(call, ids, rows)?;
        // The allocator may give the result the memory of an operand with the same layout and no later use. It must not
        // give the result that of `b`, whose rows are read in another order than those of the result are written. So a
        // `b` of the result's shape becomes a view that has other strides in dimensions of 1.
        let [_, row, plane, _] = b.nb();
        let b = if b.ne() == a.ne() {
            let odd = plane.saturating_mul(2);
            self.view(b, b.shape(), [row, odd, odd], 0)?
        } else {
            b
        };
        build!(self, sys::ggml_add_id(a, b, ids))
    }
}
