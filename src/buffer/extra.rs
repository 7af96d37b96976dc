//! Repacking buffer types, which ggml calls extra buffer types.

use super::BufferType;
use crate::callback;
use crate::device::Device;
use crate::device::named::named;
use crate::error::Result;
use crate::{ffi, guard};

impl Device {
    /// The device's repacking buffer types, the best first (`ggml_backend_dev_get_extra_bufts`). They store weights in
    /// a layout that makes matrix multiplication faster. Which exist depends on how ggml was compiled: on a CPU,
    /// `CPU_REPACK` and `AMX`.
    ///
    /// Only [`Weights`](crate::Weights) can be placed there, of types and shapes for which [`BufferType::holds`] is
    /// `true`. They are set as a whole and can't be read. Their only use is as the first operand of
    /// [`mul_mat`](crate::Context::mul_mat), or, with three dimensions, of [`mul_mat_id`](crate::Context::mul_mat_id).
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let cpu = Device::cpu()?;
    /// let extra = cpu.extra_buffer_types()?;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("up", DType::Q4_0, [64, 128])?;
    /// builder.tensor("norm", DType::F32, [64])?;
    /// let packed = extra.iter().find(|m| matches!(m.holds(DType::Q4_0, [64, 128]), Ok(true)));
    /// let weights = builder.place(|leaf: &LeafInfo| match (leaf.name(), packed) {
    ///     ("up", Some(&memory)) => memory,
    ///     _ => cpu.buffer_type(),
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml) or [`Error::Exception`](crate::Error::Exception) if the backend fails.
    #[doc(alias = "ggml_backend_dev_get_extra_bufts_t")]
    pub fn extra_buffer_types(self) -> Result<Vec<BufferType>> {
        const CALL: &str = "ggml_backend_dev_get_extra_bufts";
        callback::check_reentry("Device::extra_buffer_types")?;
        let Some(registry) = self.registry() else { return Ok(Vec::new()) };
        let named = named!(c"ggml_backend_dev_get_extra_bufts" as ggml_backend_dev_get_extra_bufts_t);
        let Some(get) = registry.find(named) else { return Ok(Vec::new()) };
        let first = guard::call(CALL, || {
            // SAFETY: devices are never freed, and the function is from this device's registry; C keeps nothing.
            unsafe { get(self.as_ptr()) }
        })?;
        // SAFETY: the list is made once, never freed, and ends with NULL.
        let all = unsafe { ffi::entries(first, |raw| raw.is_null()) };
        // SAFETY: the entry is not NULL, and buffer types are never freed.
        Ok(all.into_iter().map(|raw| unsafe { BufferType::from_raw(raw) }).collect())
    }
}

impl BufferType {
    /// Whether this is a repacking buffer type, one of its device's [`extra_buffer_types`](Device::extra_buffer_types).
    ///
    /// # Errors
    ///
    /// As [`Device::extra_buffer_types`].
    pub fn is_extra(self) -> Result<bool> {
        callback::check_reentry("BufferType::is_extra")?;
        self.device().map_or(Ok(false), |d| Ok(d.extra_buffer_types()?.contains(&self)))
    }
}

/// The repacked layouts whose kernels this crate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Rows of blocks, interleaved by four, eight or sixteen.
    Repack,
    /// Tiles for Intel's AMX.
    Amx,
}

impl Packing {
    /// The layout of a buffer type, by its name, because ggml reports nothing else of it.
    pub(crate) fn of(buft: BufferType) -> Option<Self> {
        match buft.name().as_str() {
            "CPU_REPACK" => Some(Self::Repack),
            "AMX" => Some(Self::Amx),
            _ => None,
        }
    }
}
