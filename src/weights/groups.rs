//! Allocates tensors; those of one buffer type share buffers.

use super::packed;
use super::placed::NAMES;
use crate::buffer::{Buffer, BufferType};
use crate::device::meta;
use crate::error::Result;
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::log;

/// Tensors grouped by device or buffer type. This is a list, because there are few groups.
pub(super) type Groups<K, T> = Vec<(K, Vec<T>)>;

/// Adds a tensor to the group of its device or buffer type.
pub(super) fn add<K: PartialEq, T>(groups: &mut Groups<K, T>, key: K, t: T) -> Result<()> {
    match groups.iter_mut().find(|(k, _)| *k == key) {
        Some((_, tensors)) => list::push(tensors, t, NAMES),
        None => list::push(groups, (key, vec![t]), NAMES),
    }
}

/// Allocates all tensors. Those of one buffer type share buffers.
pub(super) fn place(groups: Groups<BufferType, TensorPtr>, owner: Owner) -> Result<Vec<Buffer>> {
    let mut buffers = Vec::new();
    for (buft, tensors) in groups {
        let before = buffers.len();
        place_group(buft, buft.max_size()?, &tensors, owner, &mut buffers)?;
        log::note(::log::Level::Debug, || {
            let new = buffers.get(before..).unwrap_or_default();
            let (tensors, bytes) = (tensors.len(), new.iter().map(Buffer::size).sum::<usize>());
            format!("placed {tensors} tensors in {}: {bytes} bytes in {} buffers", buft.name(), new.len())
        });
    }
    Ok(buffers)
}

/// The layout of one buffer: the offsets of its tensors, and its size.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chunk {
    offsets: Vec<usize>,
    size: usize,
}

/// Lays out tensors of these sizes in order, in as few buffers of at most `max` bytes as possible. A larger tensor gets
/// a buffer of its own, as with ggml; the device decides whether such a buffer is too large.
fn lay_out(sizes: &[usize], alignment: usize, max: usize) -> Result<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for &size in sizes {
        let fits = |chunk: &Chunk| {
            let begin = chunk.size.checked_next_multiple_of(alignment)?;
            begin.checked_add(size).filter(|&end| end <= max).map(|end| (begin, end))
        };
        let (begin, end) = if let Some(place) = chunks.last().and_then(fits) {
            place
        } else {
            list::push(&mut chunks, Chunk::default(), NAMES)?;
            (0, size)
        };
        if let Some(chunk) = chunks.last_mut() {
            list::push(&mut chunk.offsets, begin, NAMES)?;
            chunk.size = end;
        }
    }
    Ok(chunks)
}

/// The total size of the buffers that these tensors take in a buffer type.
pub(super) fn size(buft: BufferType, tensors: &[TensorPtr]) -> Result<usize> {
    let chunks = lay_out_in(buft, buft.max_size()?, tensors)?;
    // An RPC server may report any sizes, so the sum saturates.
    Ok(chunks.iter().fold(0, |sum, chunk| chunk.size.saturating_add(sum)))
}

/// Lays out tensors in buffers of a buffer type, as [`lay_out`] does for sizes.
fn lay_out_in(buft: BufferType, max: usize, tensors: &[TensorPtr]) -> Result<Vec<Chunk>> {
    let mut sizes = list::filled(0, tensors.len(), NAMES)?;
    for (size, &t) in sizes.iter_mut().zip(tensors) {
        *size = buft.alloc_size_of(t)?;
    }
    lay_out(&sizes, buft.alignment()?, max)
}

/// Allocates tensors in one buffer type, in buffers of at most `max` bytes, except for larger tensors.
pub(super) fn place_group(
    buft: BufferType,
    max: usize,
    tensors: &[TensorPtr],
    owner: Owner,
    buffers: &mut Vec<Buffer>,
) -> Result<()> {
    if let Some(sharded) = meta::shard(buft, tensors, owner)? {
        let mut buffer = Buffer::sharded(buft, tensors, sharded)?;
        if owner != Owner::State {
            buffer.mark_as_weights();
        }
        for t in tensors {
            t.set_owner(owner);
        }
        buffers.push(buffer);
        return Ok(());
    }
    let owner = packed::owner(buft, tensors, owner)?;
    let mut rest = tensors.iter();
    for chunk in lay_out_in(buft, max, tensors)? {
        let mut buffer = Buffer::zeroed(buft, chunk.size)?;
        if owner != Owner::State {
            buffer.mark_as_weights();
        }
        for (offset, &t) in chunk.offsets.into_iter().zip(&mut rest) {
            buffer.place(t, offset)?;
            t.set_owner(owner);
        }
        list::push(buffers, buffer, NAMES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lay_out_fills_a_buffer_before_the_next() {
        let chunk = |offsets: &[usize], size| Chunk { offsets: offsets.into(), size };
        assert_eq!(lay_out(&[], 32, 100).unwrap(), [], "nothing");
        let all = lay_out(&[10, 40, 32, 1], 32, usize::MAX).unwrap();
        assert_eq!(all, [chunk(&[0, 32, 96, 128], 129)], "aligned");
        let split = lay_out(&[10, 40, 32, 100, 1, 32], 32, 100).unwrap();
        let want = [chunk(&[0, 32], 72), chunk(&[0], 32), chunk(&[0], 100), chunk(&[0, 32], 64)];
        assert_eq!(split, want, "no buffer is larger than 100 bytes");
        let huge = lay_out(&[usize::MAX - 1, usize::MAX], 32, usize::MAX).unwrap();
        assert_eq!(huge, [chunk(&[0], usize::MAX - 1), chunk(&[0], usize::MAX)], "sums don't overflow");
    }
}
