//! Why a function of a device failed.

use std::fmt;

/// Why a function of a [`Driver`](super::Driver), of its buffers or its streams failed.
///
/// Any error becomes a failure by `?`, and so does a text.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::driver::Failure;
/// /// What a driver's function may return.
/// fn read(lines: &str) -> Result<u32, Failure> {
///     let first = lines.lines().next().ok_or_else(|| Failure::lost("the device says nothing any more"))?;
///     Ok(first.parse()?)
/// }
/// assert_eq!(read("12")?, 12);
/// assert_eq!(read("twelve").unwrap_err().to_string(), "invalid digit found in string");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(super) reason: Box<str>,
    pub(super) lost: bool,
}

impl Failure {
    /// The function failed, and the device can be used further. The call that ran the function returns
    /// [`Error::DeviceFailed`](crate::Error::DeviceFailed).
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self { reason: reason.into(), lost: false }
    }

    /// The device is lost: none of its functions is called again, and every call that would need it returns
    /// [`Error::DeviceLost`](crate::Error::DeviceLost). Nobody waits for work that the device has begun: either the
    /// drop of its stream ends that work, or the work owns what it needs.
    pub fn lost(reason: impl Into<Box<str>>) -> Self {
        Self { reason: reason.into(), lost: true }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
