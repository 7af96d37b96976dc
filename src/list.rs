//! Fallible vectors: running out of memory is an error here, not an abort.

use crate::error::{Error, Result};

/// Pushes to a list. `what` describes the list in the error.
#[inline]
pub(crate) fn push<T>(list: &mut Vec<T>, item: T, what: &'static str) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::no_memory(what))?;
    list.push(item);
    Ok(())
}

/// Collects items into a vector, as `Iterator::collect` does, but fallibly.
pub(crate) fn collect<T>(items: impl IntoIterator<Item = T>, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let items = items.into_iter();
    list.try_reserve(items.size_hint().0).map_err(|_| Error::no_memory(what))?;
    items.into_iter().try_for_each(|item| push(&mut list, item, what))?;
    Ok(list)
}

/// Copies a text, as `Box::from` does, but fallibly.
pub(crate) fn text(text: &str, what: &'static str) -> Result<Box<str>> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| no_memory(what, text.len()))?;
    copy.push_str(text);
    Ok(copy.into())
}

/// Makes an [`Error::NoSuch`] with the existing names of tensors, or the error that there is no memory for these names.
#[cold]
#[expect(single_use_lifetimes, reason = "`impl Trait` takes no anonymous one")]
pub(crate) fn no_such<'a>(name: &str, names: impl ExactSizeIterator<Item = &'a str>) -> Error {
    const WHAT: &str = "the names of tensors";
    let copied = reserved(names.len(), WHAT).and_then(|mut available| {
        for name in names {
            available.push(text(name, WHAT)?);
        }
        Ok(available)
    });
    copied.map_or_else(std::convert::identity, |mut available| {
        available.sort_unstable();
        Error::NoSuch { what: "tensor", name: name.into(), available: available.into() }
    })
}

/// Makes an empty vector with room for `n` items, as `Vec::with_capacity` does, but fallibly.
pub(crate) fn reserved<T>(n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| no_memory(what, n.saturating_mul(size_of::<T>())))?;
    Ok(list)
}

/// Makes a vector of `n` equal items, as `vec![value; n]` does, but fallibly.
pub(crate) fn filled<T: Clone>(value: T, n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = reserved(n, what)?;
    list.resize(n, value);
    Ok(list)
}

/// Bytes that begin at a multiple of 8, as kernels need it for whole blocks: `bytes` themselves, or their copy in
/// `copy`.
pub(crate) fn aligned<'a>(bytes: &'a [u8], copy: &'a mut Vec<u64>) -> Result<&'a [u8]> {
    if bytes.as_ptr().addr().is_multiple_of(align_of::<u64>()) {
        return Ok(bytes);
    }
    *copy = filled(0, bytes.len().div_ceil(size_of::<u64>()), "an aligned copy of bytes")?;
    let (copy, _) = bytemuck::cast_slice_mut(copy).split_at_mut(bytes.len());
    copy.copy_from_slice(bytes);
    Ok(copy)
}

#[cold]
fn no_memory(what: &'static str, bytes: usize) -> Error {
    Error::OutOfMemory { what: what.into(), bytes: Some(bytes), log: Box::default() }
}
