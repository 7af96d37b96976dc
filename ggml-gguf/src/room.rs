//! Fallible allocation: running out of memory is an error here, not an abort.

use crate::error::{Error, Result};

/// The minimum growth, in values, of a list that is being read.
const ROOM: usize = 64;

/// Appends one of the `n` values that the file claims. The capacity grows with the values that were read, not with the
/// claimed count, and ends up exact.
pub(crate) fn push_of<T>(values: &mut Vec<T>, n: usize, value: T) -> Result<()> {
    let len = values.len();
    if len == values.capacity() {
        more(values, n.saturating_sub(len).min(len.max(ROOM)).max(1))?;
    }
    values.push(value);
    Ok(())
}

/// Appends a value to a list that grows for long.
pub(crate) fn push<T>(values: &mut Vec<T>, value: T) -> Result<()> {
    values.try_reserve(1).map_err(|_| Error::OutOfMemory { bytes: None })?;
    values.push(value);
    Ok(())
}

/// An empty vector with room for `n` values; the caller has checked `n` against the length of the file.
pub(crate) fn reserve<T>(n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    more(&mut values, n)?;
    Ok(values)
}

/// A copy of `values`.
pub(crate) fn copy<T: Copy>(values: &[T]) -> Result<Vec<T>> {
    let mut copy = reserve(values.len())?;
    copy.extend_from_slice(values);
    Ok(copy)
}

/// A copy of `text`.
pub(crate) fn text(text: &str) -> Result<String> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| no_memory(text.len()))?;
    copy.push_str(text);
    Ok(copy)
}

/// Reserves room for `n` more values.
fn more<T>(values: &mut Vec<T>, n: usize) -> Result<()> {
    values.try_reserve_exact(n).map_err(|_| no_memory(n.saturating_mul(size_of::<T>())))
}

#[cold]
pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::OutOfMemory { bytes: Some(bytes) }
}
