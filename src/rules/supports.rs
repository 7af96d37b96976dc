//! Asks a device whether it can run an operation, and whether it prefers to.

use ggml_sys as sys;

use super::run;
use crate::callback;
use crate::device::Device;
use crate::error::Result;
use crate::guard::guarded;
use crate::tensor::Tensor;

impl Device {
    /// Whether the device can run the operation `op` with its operands (`ggml_backend_dev_supports_op`).
    /// [`Run::compute`](crate::Run::compute) checks the same. This is stricter than ggml where ggml's
    /// CPU kernels, BLAS, Vulkan or CUDA claim operations that they can't run. For a leaf, the answer is `true`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.relu(ctx.input("x", DType::F32, [2])?)?;
    /// assert!(Device::cpu()?.supports_op(y)?);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml), [`Error::Exception`](crate::Error::Exception) or
    /// [`Error::RpcLost`](crate::Error::RpcLost) if the device doesn't answer.
    #[doc(alias = "ggml_backend_dev_supports_op")]
    #[doc(alias = "ggml_backend_supports_op")]
    pub fn supports_op(self, op: Tensor<'_>) -> Result<bool> {
        callback::check_reentry("Device::supports_op")?;
        op.check_free("Device::supports_op")?;
        self.check_alive()?;
        let is_node = !op.ptr().is_leaf();
        Ok(run::accepts(self, op.ptr(), is_node).is_ok() && self.claims(op.ptr())?)
    }

    /// Whether the device prefers to run the operation `op` even if weights must be copied to it first, because the
    /// batch is large enough to pay for that (`ggml_backend_dev_offload_op`).
    ///
    /// # Errors
    ///
    /// As [`Device::supports_op`].
    #[doc(alias = "ggml_backend_dev_offload_op")]
    #[doc(alias = "ggml_backend_offload_op")]
    pub fn offloads(self, op: Tensor<'_>) -> Result<bool> {
        callback::check_reentry("Device::offloads")?;
        op.check_free("Device::offloads")?;
        // SAFETY: devices are never freed; the tensor and its sources live as long as the handle. C keeps nothing.
        let offloads = unsafe { guarded!(call, sys::ggml_backend_dev_offload_op(self.as_ptr(), op.as_ptr())) }?;
        self.check_alive()?;
        Ok(offloads)
    }
}
