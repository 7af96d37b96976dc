//! Memory in which a device keeps weights in an order of its own: what ggml calls extra buffer types.

use std::ptr::NonNull;

use super::BufferType;
use crate::device::Device;
use crate::device::named::named;
use crate::error::Result;
use crate::guard;

impl Device {
    /// The kinds of memory in which the device keeps weights in an order of its own, so as to multiply by them faster,
    /// the best first (`ggml_backend_dev_get_extra_bufts`). Which there are depends on what ggml was compiled for: on a
    /// CPU, `CPU_REPACK` and `AMX`.
    ///
    /// Only [`Weights`](crate::Weights) can lie there, of types and shapes that [`BufferType::holds`] names. They are set
    /// as a whole, can't be read, and are good for one thing: to be the first operand of
    /// [`mul_mat`](crate::Context::mul_mat), or of [`mul_mat_id`](crate::Context::mul_mat_id) for three dimensions.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let cpu = Device::cpu()?;
    /// let extra = cpu.extra_buffer_types()?;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("up", DType::Q4_0, [64, 128])?.tensor("norm", DType::F32, [64])?;
    /// let packed = extra.iter().find(|m| matches!(m.holds(DType::Q4_0, [64, 128]), Ok(true)));
    /// let weights = builder.place_with(|name| match (name, packed) {
    ///     ("up", Some(&memory)) => memory,
    ///     _ => cpu.buffer_type(),
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml) or [`Error::Exception`](crate::Error::Exception) where the backend fails.
    #[doc(alias = "ggml_backend_dev_get_extra_bufts_t")]
    pub fn extra_buffer_types(self) -> Result<Vec<BufferType>> {
        const CALL: &str = "ggml_backend_dev_get_extra_bufts";
        let Some(registry) = self.registry() else { return Ok(Vec::new()) };
        let named = named!(c"ggml_backend_dev_get_extra_bufts" as ggml_backend_dev_get_extra_bufts_t);
        let Some(get) = registry.find(named) else { return Ok(Vec::new()) };
        let first = guard::call(CALL, || {
            // SAFETY: the device lives for ever, and is of the registry that the function is from; C keeps nothing. The list
            // is made once, and lives for ever.
            unsafe { get(self.as_ptr()) }
        })?;
        let mut all = Vec::new();
        let mut at = NonNull::new(first);
        while let Some(entry) = at {
            // SAFETY: an entry of a list that lives for ever and ends with NULL, which we have not passed.
            let raw = unsafe { entry.read() };
            if raw.is_null() {
                break;
            }
            // SAFETY: a buffer type of the backend's, which lives as long as the device.
            all.push(unsafe { BufferType::from_raw(raw) });
            // SAFETY: this entry is not the last one, so the list goes on.
            at = Some(unsafe { entry.add(1) });
        }
        Ok(all)
    }
}

impl BufferType {
    /// Whether it is one of its device's [`extra_buffer_types`](Device::extra_buffer_types), which rearrange what is put
    /// into them.
    ///
    /// # Errors
    ///
    /// As [`Device::extra_buffer_types`].
    pub fn is_extra(self) -> Result<bool> {
        self.device().map_or(Ok(false), |d| Ok(d.extra_buffer_types()?.contains(&self)))
    }
}

/// The orders of weights whose kernels this crate knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Rows of blocks interleaved, four, eight or sixteen at a time.
    Repack,
    /// Tiles for Intel's matrix extensions.
    Amx,
}

impl Packing {
    /// The order in memory of this type, by its name: nothing else tells.
    pub(crate) fn of(buft: BufferType) -> Option<Self> {
        match buft.name().as_str() {
            "CPU_REPACK" => Some(Self::Repack),
            "AMX" => Some(Self::Amx),
            _ => None,
        }
    }
}
