//! Mixtures of experts: matrices and biases picked by number for each row.

use ggml_sys as sys;

use super::check::Call;
use super::index::Indices;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::header::Owner;
use crate::tensor::Tensor;

impl Context {
    /// Products with matrices that are picked for each row (`ggml_mul_mat_id`): with `experts` of shape `[k, m, n]`, `b` of
    /// `[k, used, tokens]` and `ids` of `[used, tokens]`, the result is `[m, used, tokens]` in `f32`, its row `[e, t]` the
    /// product of row `[e, t]` of `b` with matrix `ids[e, t]`. A `b` with fewer rows for each token is repeated.
    ///
    /// The numbers in `ids` must be an input, a view of one, or made by `argsort` or `top_k`: those of an input are checked
    /// when it is set. For experts in memory that rearranges them, those of each token must differ.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `ids` is `i32`; [`Error::Shape`](crate::Error::Shape) where shapes do not
    /// fit, `experts` is transposed, or the numbers are not known to be in range.
    #[doc(alias = "ggml_mul_mat_id")]
    pub fn mul_mat_id<'c>(&'c self, experts: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        self.times_picked(experts, b, ids, Indices::Checked)
    }

    /// [`Context::mul_mat_id`] with numbers from anywhere, such as a [`State`](crate::State) or another operation.
    ///
    /// # Errors
    ///
    /// As [`Context::mul_mat_id`], but for where the numbers come from. Those of an input are checked all the same.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all numbers must lie in 0 to below the third dimension of `experts`: kernels write
    /// beyond their tables otherwise. Where the experts lie in memory that rearranges them
    /// ([`Device::extra_buffer_types`](crate::Device::extra_buffer_types)), those of each token must differ, too.
    pub unsafe fn mul_mat_id_unchecked<'c>(
        &'c self,
        experts: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        self.times_picked(experts, b, ids, Indices::Promised)
    }

    fn times_picked<'c>(
        &'c self,
        experts: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
        indices: Indices,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "mul_mat_id", operands: &[experts, b, ids] };
        call.dtype(ids.dtype() == DType::I32, "the numbers of the experts (third) must be i32")?;
        let ([k, m, n, a3], [b0, b1, tokens, b3], [used, i1, i2, i3]) = (experts.ne(), b.ne(), ids.ne());
        call.shape(k == b0, "the rows (first dimensions) must be equally long")?;
        call.shape([a3, b3, i2, i3] == [1; 4], "experts and rows have three dimensions, their numbers two")?;
        call.shape(i1 == tokens, "there must be a list of experts for each token (third dimension) of the rows")?;
        call.shape(used % b1 == 0, "the rows for each token must divide the experts for each")?;
        call.shape(!experts.ptr().is_transposed(), "the first operand must not be transposed; use `cont`")?;
        indices.check(call, ids, n)?;
        if experts.ptr().owner() == Owner::Packed {
            indices.check_distinct(call, ids)?;
        }
        call.result([m, used, tokens, 1], DType::F32)?;
        self.build("ggml_mul_mat_id", &[experts, b, ids], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, which are
            // all that C asserts. The result keeps them as sources.
            unsafe { sys::ggml_mul_mat_id(c, experts.as_ptr(), b.as_ptr(), ids.as_ptr()) }
        })
    }

    /// `a`, to each row of which the row of `b` is added that is picked for it (`ggml_add_id`): with `a` of shape
    /// `[n, used, tokens]`, `b` of `[n, rows]` and `ids` of `[used, tokens]`, row `ids[e, t]` of `b` is added to row `[e, t]`.
    ///
    /// The numbers in `ids` must be an input, a view of one, or made by `argsort` or `top_k`: those of an input are checked
    /// when it is set.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` and `b` are `f32` and `ids` is `i32`;
    /// [`Error::Shape`](crate::Error::Shape) where shapes do not fit, or the numbers are not known to be in range.
    #[doc(alias = "ggml_add_id")]
    pub fn add_id<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        self.plus_picked(a, b, ids, Indices::Checked)
    }

    /// [`Context::add_id`] with numbers from anywhere, such as a [`State`](crate::State) or another operation.
    ///
    /// # Errors
    ///
    /// As [`Context::add_id`], but for where the numbers come from. Those of an input are checked all the same.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all numbers must lie in 0 to below the second dimension of `b`: kernels read beyond
    /// the tensor otherwise, or end the process.
    pub unsafe fn add_id_unchecked<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        self.plus_picked(a, b, ids, Indices::Promised)
    }

    fn plus_picked<'c>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        ids: Tensor<'c>,
        indices: Indices,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "add_id", operands: &[a, b, ids] };
        call.dtype(ids.dtype() == DType::I32, "the row numbers (third) must be i32")?;
        call.dtype(a.dtype() == DType::F32 && b.dtype() == DType::F32, "the first two operands must be f32")?;
        let ([n, used, tokens, a3], [b0, rows, b2, b3], [i0, i1, i2, i3]) = (a.ne(), b.ne(), ids.ne());
        call.shape(n == b0, "the rows (first dimensions) must be equally long")?;
        call.shape([a3, b2, b3, i2, i3] == [1; 5], "the first operand has three dimensions, the others two")?;
        call.shape([i0, i1] == [used, tokens], "there must be one number for each row of the first operand")?;
        indices.check(call, ids, rows)?;
        // The allocator lets the result take the place of any operand that lies as it does and is not needed any more. That
        // must not be `b`, whose rows are read in another order than they would be overwritten: it gets strides that the
        // result does not have, in dimensions of 1.
        let [_, row, plane, _] = b.nb();
        let b = if b.ne() == a.ne() {
            let odd = plane.saturating_mul(2);
            self.view(b, b.shape(), [row, odd, odd], 0)?
        } else {
            b
        };
        self.build("ggml_add_id", &[a, b, ids], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, which are
            // all that C asserts. The result keeps them as sources.
            unsafe { sys::ggml_add_id(c, a.as_ptr(), b.as_ptr(), ids.as_ptr()) }
        })
    }
}
