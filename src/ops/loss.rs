//! Loss functions.

use crate::ops::prelude::*;

impl Context {
    /// The cross entropy between `soft_max(logits)` and `labels`, averaged over rows (`ggml_cross_entropy_loss`): one
    /// `f32`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let [logits, labels] = ["logits", "labels"].map(|name| ctx.input(name, DType::F32, [2, 1]));
    /// let (logits, labels) = (logits?, labels?);
    /// let loss = ctx.cross_entropy_loss(logits, labels)?;
    /// # let (graph, mut sched) = (ctx.graph([loss])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(logits, &[0.0_f32, 0.0])?;
    /// run.set(labels, &[1.0_f32, 0.0])?;
    /// # run.compute()?;
    /// assert!((run.get::<f32>(loss)?[0] - 2.0_f32.ln()).abs() < 1e-3);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless both have the same shape and evenly spaced rows,
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`.
    #[doc(alias = "ggml_cross_entropy_loss")]
    pub fn cross_entropy_loss<'c>(&'c self, logits: Tensor<'c>, labels: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("cross_entropy_loss"), operands: &[logits, labels] };
        call.dtype([logits, labels].iter().all(|t| t.dtype() == DType::F32), "both operands must be f32")?;
        call.shape(logits.ne() == labels.ne(), "both operands must have the same shape")?;
        // The kernel finds row `i` at `i * nb[1]` (H10), so rows must be evenly spaced.
        let even = [logits, labels].iter().all(|t| t.ptr().is_contiguous_1());
        call.shape(even, "rows of both operands must be evenly spaced; use `cont`")?;
        build!(self, sys::ggml_cross_entropy_loss(logits, labels))
    }
    /// The gradient of [`Context::cross_entropy_loss`] with respect to `logits`, from that of its result, `grad`, one
    /// `f32` (`ggml_cross_entropy_loss_back`). It is exact where each row of `labels` sums to 1.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `grad` has one element and the others have the same shape and the
    /// strides of new tensors, [`Error::DType`](crate::Error::DType) unless all are `f32`.
    #[doc(alias = "ggml_cross_entropy_loss_back")]
    pub fn cross_entropy_loss_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        logits: Tensor<'c>,
        labels: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("cross_entropy_loss_back"), operands: &[grad, logits, labels] };
        call.all_f32(call.operands)?;
        call.shape(grad.ne() == [1; 4], "the gradient (first) must have one element")?;
        call.shape(logits.ne() == labels.ne(), "logits and labels must have the same shape")?;
        // The kernel finds row `i` at `i * nb[1]` (H10), so the operands must be packed.
        let packed = logits.layout().is_packed() && labels.layout().is_packed();
        call.shape(packed, "logits and labels must have the strides of new tensors; use `cont`")?;
        build!(self, sys::ggml_cross_entropy_loss_back(grad, logits, labels))
    }
}
