//! How much memory a device has.

use std::fmt;

/// A device's memory in bytes.
///
/// ```
/// # use ggml::prelude::*;
/// let memory = Device::cpu()?.memory()?;
/// assert!(memory.free <= memory.total);
/// println!("{} of {} MiB are free", memory.free >> 20, memory.total >> 20);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Free memory at the time of the query, as the device says, but no more than the total.
    pub free: usize,
    /// Total memory.
    pub total: usize,
}

/// Prints `usize::MAX` as `unknown`: servers and drivers return it if they don't know.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |n: usize| if n == usize::MAX { "unknown".to_owned() } else { n.to_string() };
        write!(f, "Memory {{ free: {}, total: {} }}", show(self.free), show(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_one_knows_is_printed_as_unknown() {
        let of = |free, total| format!("{:?}", Memory { free, total });
        assert_eq!(of(usize::MAX, usize::MAX), "Memory { free: unknown, total: unknown }");
        assert_eq!(of(1, 2), "Memory { free: 1, total: 2 }");
    }
}
