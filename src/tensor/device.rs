//! What a device says of an operation.

use ggml_sys as sys;

use super::Tensor;
use crate::device::Device;
use crate::error::Result;
use crate::guard;
use crate::rules::run;

impl Device {
    /// Whether the device can run the operation that makes `op`, with the operands that it has
    /// (`ggml_backend_dev_supports_op`): what
    /// [`GraphMemory::compute`](crate::GraphMemory::compute) asks, which is stricter than ggml where its CPU kernels, BLAS
    /// or Vulkan promise too much. Anything can hold a leaf.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml), [`Error::Exception`](crate::Error::Exception) or
    /// [`Error::RpcLost`](crate::Error::RpcLost) where the device does not answer.
    #[doc(alias = "ggml_backend_dev_supports_op")]
    #[doc(alias = "ggml_backend_supports_op")]
    pub fn supports_op(self, op: Tensor<'_>) -> Result<bool> {
        op.check_free("Device::supports_op")?;
        self.check_alive()?;
        let is_node = op.ptr().op() != sys::GGML_OP_NONE;
        Ok(run::accepts(self, op.ptr(), is_node).is_ok() && self.claims(op.ptr())?)
    }

    /// Whether the device wants to run the operation that makes `op` even if its weights lie elsewhere and must be copied
    /// first, because it has so many rows that this is worth while (`ggml_backend_dev_offload_op`).
    ///
    /// # Errors
    ///
    /// As [`Device::supports_op`].
    #[doc(alias = "ggml_backend_dev_offload_op")]
    #[doc(alias = "ggml_backend_offload_op")]
    pub fn offloads(self, op: Tensor<'_>) -> Result<bool> {
        op.check_free("Device::offloads")?;
        let offloads = guard::call("ggml_backend_dev_offload_op", || {
            // SAFETY: the device lives for ever, the tensor and its sources as long as the handle. C keeps nothing.
            unsafe { sys::ggml_backend_dev_offload_op(self.as_ptr(), op.as_ptr()) }
        })?;
        self.check_alive()?;
        Ok(offloads)
    }
}
