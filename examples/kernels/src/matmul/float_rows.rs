//! Rows of activations in floats, in the order in which they are multiplied.

use super::floats::{self, FloatScratch};
use super::resize;

/// Up to so many rows of activations, a matrix is not unpacked.
pub(super) const FEW: usize = 8;

/// Rows of activations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) n: usize,
    pub(super) depth: usize,
    /// A few rows as they are; of many, the first [`floats::DEEP`] numbers of each, then the next of each, and so on.
    pub(super) parts: &'a [&'a [f32]],
}

/// Calls a function with rows. What is multiplied at a time lies together then: rows that are a power of two apart would take
/// the same few places of a cache.
pub(super) fn with_rows<'a>(
    n: usize,
    row: impl Fn(usize) -> &'a [f32],
    scratch: &mut FloatScratch,
    f: impl FnOnce(Rows<'_>, &mut FloatScratch),
) {
    let depth = row(0).len();
    if n <= FEW {
        let mut rows = [row(0); FEW];
        rows.iter_mut().enumerate().take(n).for_each(|(i, to)| *to = row(i));
        return f(Rows { n, depth, parts: &rows[..n] }, scratch); // without a list, and so without allocating
    }
    let mut numbers = std::mem::take(&mut scratch.parts);
    f(Rows { n, depth, parts: &in_parts(floats::DEEP.min(depth), n, row, &mut numbers) }, scratch);
    scratch.parts = numbers;
}

/// Copies rows in parts of `deep` numbers: the first part of each row, then the second of each, and so on.
pub(super) fn in_parts<'a, 'm>(
    deep: usize,
    n: usize,
    row: impl Fn(usize) -> &'a [f32],
    to: &'m mut Vec<f32>,
) -> Vec<&'m [f32]> {
    let depth = row(0).len();
    let to = resize(to, n * depth);
    for (part, from) in to.chunks_mut(n * deep).zip((0..depth).step_by(deep)) {
        let deep = part.len() / n;
        part.chunks_exact_mut(deep).enumerate().for_each(|(i, to)| to.copy_from_slice(&row(i)[from..][..deep]));
    }
    to.chunks(n * deep).flat_map(|part| part.chunks_exact(part.len() / n)).collect()
}
