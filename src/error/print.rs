//! How the parts of an error's text are printed.

use std::fmt;

use ggml_sys as sys;

use super::TensorInfo;
use crate::ffi;

/// Prints operands as `a, b`, or `no tensors`.
pub(super) struct List<'a>(pub(super) &'a [TensorInfo]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no tensors");
        }
        for (i, t) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            t.fmt(f)?;
        }
        Ok(())
    }
}

/// Prints the lines ggml logged, each on its own line, and nothing where there are none.
pub(super) struct Log<'a>(pub(super) &'a str);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  ggml: {line}"))
    }
}

/// Prints how much memory was asked for, for [`Error::OutOfMemory`](super::Error::OutOfMemory).
pub(super) struct Needs(pub(super) Option<usize>);

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |bytes| write!(f, " needs {bytes} bytes"))
    }
}

/// Prints a status with ggml's name of it, for [`Error::Status`](super::Error::Status).
pub(super) struct Named(pub(super) i32);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: C compares the number with those it knows, and returns a constant string.
        let text = unsafe { sys::ggml_status_to_string(self.0) };
        // SAFETY: a constant C string.
        write!(f, "status {}, {}", self.0, unsafe { ffi::string(text) })
    }
}

/// Prints the names there are, for [`Error::NoSuch`](super::Error::NoSuch).
pub(super) struct Available<'a>(pub(super) &'a [Box<str>]);

impl fmt::Display for Available<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("are none");
        }
        write!(f, "are: {}", self.0.join(", "))
    }
}
