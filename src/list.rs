//! Fallible vectors: running out of memory is an error here, not an abort.

use crate::error::{Error, Result};

/// Pushes to a list. `what` describes the list in the error.
#[inline]
pub(crate) fn push<T>(list: &mut Vec<T>, item: T, what: &'static str) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::no_memory(what))?;
    list.push(item);
    Ok(())
}

/// `Iterator::collect`, fallible.
pub(crate) fn collect<T>(items: impl IntoIterator<Item = T>, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let items = items.into_iter();
    list.try_reserve(items.size_hint().0).map_err(|_| Error::no_memory(what))?;
    items.into_iter().try_for_each(|item| push(&mut list, item, what))?;
    Ok(list)
}

/// `Box::from`, fallible.
pub(crate) fn text(text: &str, what: &'static str) -> Result<Box<str>> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| no_memory(what, text.len()))?;
    copy.push_str(text);
    Ok(copy.into())
}

/// [`Error::NoSuch`] with the names that there are, or the error that there is no memory for them.
#[cold]
#[expect(single_use_lifetimes, reason = "`impl Trait` takes no anonymous one")]
pub(crate) fn no_such<'a>(name: &str, names: impl ExactSizeIterator<Item = &'a str>) -> Error {
    const WHAT: &str = "the names of tensors";
    let mut available = Vec::new();
    let copied = available.try_reserve_exact(names.len()).map_err(|_| Error::no_memory(WHAT)).and_then(|()| {
        for name in names {
            available.push(text(name, WHAT)?);
        }
        Ok(())
    });
    available.sort_unstable();
    copied.err().unwrap_or_else(|| Error::NoSuch { what: "tensor", name: name.into(), available: available.into() })
}

/// Allocates memory without touching it, to test whether it is available.
pub(crate) fn reserved(bytes: usize, what: &'static str) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    list.try_reserve_exact(bytes).map_err(|_| no_memory(what, bytes))?;
    Ok(list)
}

/// `vec![value; n]`, fallible.
pub(crate) fn filled<T: Clone>(value: T, n: usize, what: &'static str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(n).map_err(|_| no_memory(what, n.saturating_mul(size_of::<T>())))?;
    list.resize(n, value);
    Ok(list)
}

#[cold]
fn no_memory(what: &'static str, bytes: usize) -> Error {
    Error::OutOfMemory { what: what.into(), bytes: Some(bytes), log: Box::default() }
}
