//! Unpacks sixteen columns at a time.

use ggml::DType;

use super::fetch;
use super::types::{self, Facts};
use crate::matmul::WIDTH;
use crate::matmul::activations::BLOCK;
use crate::matmul::panel::{HALF, Panel};
use crate::matmul::types::Type;

/// Unpacks units, if there is a function for the type.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
pub(super) fn unpack<T: Type>(rows: &[&[T::Unit]; WIDTH], first: usize, ahead: usize, to: &mut [Panel]) -> bool {
    match T::DTYPE {
        DType::Q8_0 => of::<{ types::Q8_0 }, { Facts::of(types::Q8_0).bytes }>(&cast(rows), first, ahead, to),
        DType::Q4_0 => of::<{ types::Q4_0 }, { Facts::of(types::Q4_0).bytes }>(&cast(rows), first, ahead, to),
        DType::Q4_K => of::<{ types::Q4_K }, { Facts::of(types::Q4_K).bytes }>(&cast(rows), first, ahead, to),
        _ => return false,
    }
    true
}

/// Rows as what they are.
#[inline(always)]
fn cast<'a, From: bytemuck::Pod, const BYTES: usize>(rows: &[&'a [From]; WIDTH]) -> [&'a [[u8; BYTES]]; WIDTH] {
    let mut all: [&[[u8; BYTES]]; WIDTH] = [&[]; WIDTH];
    for (to, row) in all.iter_mut().zip(rows) {
        *to = bytemuck::cast_slice::<_, u8>(row).as_chunks().0;
    }
    all
}

/// Unpacks units of [`WIDTH`] rows of the matrix, from unit `first` on, as many of each row as there are panels for. An equal
/// share of the [`HALF`] rows that come next begins `ahead` bytes behind the first row.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
#[inline]
fn of<const T: u8, const BYTES: usize>(rows: &[&[[u8; BYTES]]; WIDTH], first: usize, ahead: usize, to: &mut [Panel]) {
    const { assert!(BYTES == Facts::of(T).bytes, "a unit of the type") };
    let facts = const { Facts::of(T) };
    let n = to.len() / facts.blocks;
    for (half, rows) in rows.as_chunks::<HALF>().0.iter().enumerate() {
        // All of one length, so that indices are checked once.
        let mut parts: [&[[u8; BYTES]]; HALF] = [&[]; HALF];
        for (part, row) in parts.iter_mut().zip(rows) {
            *part = &row[first..first + n];
        }
        for (u, to) in to.chunks_exact_mut(facts.blocks).enumerate() {
            let mut units = [&[0; BYTES]; HALF];
            for (unit, part) in units.iter_mut().zip(parts) {
                *unit = &part[u];
            }
            types::scales::<T, BYTES>(units, |block, scales, offsets| {
                to[block].scales[half] = scales;
                to[block].others[half] = offsets;
            });
            let start = ahead + (first + u) * HALF * BYTES;
            let mut share = 0;
            types::numbers::<T, BYTES>(units, |block, k, numbers| {
                to[block].numbers[k][half] = bytemuck::cast(numbers);
                // A line after the other, as the processor can't wait for many.
                fetch(rows[0].as_flattened(), start + share);
                share += HALF * BYTES / (facts.blocks * BLOCK / 4);
            });
        }
    }
}
