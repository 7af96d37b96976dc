//! Rows of activations in blocks of bytes.

use bytemuck::{Pod, Zeroable};

use super::set::{Set, compiled};

/// The number of values that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Numbers from -127 to 127, times a scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    pub(super) numbers: [i8; BLOCK],
    /// NaN or infinite if one of the values is.
    pub(super) scale: f32,
    /// The sum of the numbers; anything if the scale is not finite.
    pub(super) sum: i32,
    /// That of the first half.
    pub(super) first: i32,
    /// The sum of the values.
    pub(super) total: f32,
}

impl Block {
    /// What cancels an offset that was added to weights, for each half or for all. (Sums of no numbers may be too large.)
    #[inline(always)]
    pub(super) fn starts(&self, offset: i32, halves: usize) -> [i32; 2] {
        if halves == 1 {
            return [self.sum.wrapping_mul(-offset), 0];
        }
        [self.first.wrapping_mul(-offset), self.sum.wrapping_sub(self.first).wrapping_mul(-offset)]
    }
}

/// Quantises a row, as to `q8_0`, but with scales in `f32`.
#[expect(clippy::cast_precision_loss, reason = "a sum of 32 bytes")]
pub(super) fn quantise<S: Set>(s: S, row: &[f32], to: &mut [Block]) {
    let s = s.short();
    compiled!(s, {
        for (to, from) in to.iter_mut().zip(row.as_chunks::<BLOCK>().0) {
            let largest = largest(from);
            to.numbers = s.round(from, factor(largest));
            let [first, second] = s.sums_of_bytes(bytemuck::pod_read_unaligned(bytemuck::bytes_of(&to.numbers)));
            (to.first, to.sum) = (first, first + second);
            to.scale = largest / 127.0;
            to.total = to.scale * to.sum as f32;
        }
    });
}

/// The largest size; NaN if there is one.
#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    // The order of sizes is that of their bits; that of a NaN is above all.
    let mut largest = 0;
    for x in numbers {
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    f32::from_bits(largest)
}

/// What makes 127 of the largest number.
#[inline(always)]
pub(super) fn factor(largest: f32) -> f32 {
    if largest > 0.0 { 127.0 / largest } else { 0.0 }
}
