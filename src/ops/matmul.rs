//! Matrix products.

use ggml_sys as sys;

use super::check::{Call, divides};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

impl Context {
    /// The product of matrices whose rows are multiplied (`ggml_mul_mat`): with `a` of ggml shape `[k, m]` and `b` of
    /// `[k, n]` the result is `[m, n]` in `f32`, in row-major terms `b · aᵀ`.
    ///
    /// `a` is repeated over the third and fourth dimension of `b`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the rows are equally long, the upper dimensions of `a` divide those
    /// of `b`, and `a` is not transposed.
    #[doc(alias = "ggml_mul_mat")]
    pub fn mul_mat<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "mul_mat", operands: &[a, b] };
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.ne(), b.ne());
        call.shape(a0 == b0, "the rows (first dimensions) must be equally long")?;
        call.shape(
            divides(a2, b2) && divides(a3, b3),
            "the upper dimensions of the first must divide those of the second",
        )?;
        call.shape(a.nb()[0] <= a.nb()[1], "the first operand must not be transposed; use `cont`")?;
        call.result([a1, b1, b2, b3], DType::F32)?;
        self.build("ggml_mul_mat", &[a, b], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, which are
            // all that C asserts; dimensions are never 0, so its remainders exist. The result keeps both as sources.
            unsafe { sys::ggml_mul_mat(c, a.as_ptr(), b.as_ptr()) }
        })
    }
}
