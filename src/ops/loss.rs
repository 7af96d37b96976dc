//! Loss functions.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

impl Context {
    /// The mean over rows of the cross entropy between `soft_max(logits)` and `labels` (`ggml_cross_entropy_loss`): one
    /// number.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless both have one shape and equally spaced rows,
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`.
    #[doc(alias = "ggml_cross_entropy_loss")]
    pub fn cross_entropy_loss<'c>(&'c self, logits: Tensor<'c>, labels: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "cross_entropy_loss", operands: &[logits, labels] };
        call.dtype([logits, labels].iter().all(|t| t.dtype() == DType::F32), "both operands must be f32")?;
        call.shape(logits.ne() == labels.ne(), "both operands must have one shape")?;
        // The kernel finds row i at i * nb[1] (H10).
        let even = [logits, labels].iter().all(|t| t.ptr().is_contiguous_1());
        call.shape(even, "all rows of both operands must be equally far apart; use `cont`")?;
        self.build("ggml_cross_entropy_loss", &[logits, labels], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c, of one shape, all that
            // C asserts. The result keeps both as sources.
            unsafe { sys::ggml_cross_entropy_loss(c, logits.as_ptr(), labels.as_ptr()) }
        })
    }
    /// The gradient of [`Context::cross_entropy_loss`] with respect to `logits`, from that with respect to its result, one
    /// number `grad` (`ggml_cross_entropy_loss_back`). It is the true one where each row of `labels` has the sum 1.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `grad` is one number and the others have one shape and the strides of
    /// new tensors, [`Error::DType`](crate::Error::DType) unless all are `f32`.
    #[doc(alias = "ggml_cross_entropy_loss_back")]
    pub fn cross_entropy_loss_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        logits: Tensor<'c>,
        labels: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        let operands = [grad, logits, labels];
        let call = Call { op: "cross_entropy_loss_back", operands: &operands };
        call.dtype(operands.iter().all(|t| t.dtype() == DType::F32), "all operands must be f32")?;
        call.shape(grad.ne() == [1; 4], "the gradient (first) must be one number")?;
        call.shape(logits.ne() == labels.ne(), "logits and labels must have one shape")?;
        // The kernel finds row i at i * nb[1] (H10).
        let packed = logits.layout().is_packed() && labels.layout().is_packed();
        call.shape(packed, "logits and labels must have the strides of new tensors; use `cont`")?;
        self.build("ggml_cross_entropy_loss_back", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and of the shapes that C asserts. The
            // result keeps them as sources.
            unsafe { sys::ggml_cross_entropy_loss_back(c, grad.as_ptr(), logits.as_ptr(), labels.as_ptr()) }
        })
    }
}
