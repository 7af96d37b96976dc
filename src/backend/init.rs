//! Starts backends on devices.

use std::ffi::CString;

use super::Backend;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::{callback, log};

impl Device {
    /// Makes a backend on the device (`ggml_backend_dev_init`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let backend = Device::by_name("cpu")?.init()?; // case doesn't matter
    /// assert_eq!(backend.device(), Device::cpu()?);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Null`] if the device can't be started; [`Error::Ggml`] or [`Error::Exception`] if it fails.
    #[doc(alias = "ggml_backend_dev_init")]
    #[doc(alias = "ggml_backend_rpc_init")]
    #[doc(alias = "ggml_backend_init_by_name")]
    #[doc(alias = "ggml_backend_init_by_type")]
    #[doc(alias = "ggml_backend_blas_init")]
    #[doc(alias = "ggml_backend_cuda_init")]
    #[doc(alias = "ggml_backend_metal_init")]
    #[doc(alias = "ggml_backend_vk_init")]
    pub fn init(self) -> Result<Backend> {
        callback::check_reentry("Device::init")?;
        log::public(|| Backend::new(self, None))
    }

    /// Makes a backend as [`Device::init`] does, with a parameter string that the device's backend defines.
    ///
    /// # Errors
    ///
    /// As [`Device::init`]; [`Error::Param`] if `params` contains a NUL.
    pub fn init_with(self, params: &str) -> Result<Backend> {
        callback::check_reentry("Device::init_with")?;
        let shown = || params.escape_default().to_string();
        let refused = |_| Error::param("Device::init_with", "params", shown(), "it must not contain a NUL");
        Backend::new(self, Some(&CString::new(params).map_err(refused)?))
    }
}
