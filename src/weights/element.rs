//! Reads and writes single elements of weights and states.

use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::tensor::pieces::{self, Pieces};
use crate::tensor::transfer;

/// How many elements are written at once when a tensor is filled.
const CHUNK: usize = 1 << 14;

pub(super) fn read<T: Element>(call: &'static str, t: TensorPtr, at: [i64; 4]) -> Result<T> {
    let mut value = [T::zeroed()];
    pieces::read(call, t, one(call, t, at)?, &mut value)?;
    let [value] = value;
    Ok(value)
}

pub(super) fn write<T: Element>(call: &'static str, t: TensorPtr, at: [i64; 4], value: T) -> Result<()> {
    pieces::write(call, t, one(call, t, at)?, &[value])
}

/// Overwrites all elements of a tensor with one value.
pub(super) fn fill<T: Element>(call: &'static str, t: TensorPtr, value: T) -> Result<()> {
    transfer::check_plain(call, t)?;
    let n = t.elements();
    let chunk = vec![value; n.min(CHUNK)];
    (0..n).step_by(CHUNK).try_for_each(|first| {
        let rest = chunk.get(..n - first).unwrap_or(&chunk);
        transfer::write_at(call, t, first, rest)
    })
}

/// A single element of a tensor, by its index in each dimension, as [`Pieces`].
fn one(call: &'static str, t: TensorPtr, at: [i64; 4]) -> Result<Pieces> {
    let ne = t.ne();
    if at.iter().zip(ne).any(|(i, n)| !(0..n).contains(i)) {
        let expected = format!("it must lie below the tensor's dimensions, {ne:?}");
        return Err(Error::param(call, "at", format!("{at:?}"), expected));
    }
    let offset = at.iter().zip(ne).rev().fold(0, |offset, (i, n)| offset * n + i);
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(Pieces { offset, len: 1, count: 1, step: 1, data_step: 1 })
}
