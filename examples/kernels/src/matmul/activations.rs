//! Rows of activations in blocks of bytes.

use bytemuck::{Pod, Zeroable};
use pulp::NullaryFnOnce;

use super::set::Set;

/// The number of values that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Adding it to a number below 2^22 leaves the nearest integer in the lowest bits.
pub(super) const WHOLE: f32 = 12_582_912.0;

/// Numbers from -127 to 127, times a scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    pub(super) numbers: [i8; BLOCK],
    /// NaN or infinite if one of the values is.
    pub(super) scale: f32,
    /// The sum of the numbers; anything if the scale is not finite.
    pub(super) sum: i32,
    /// That of the first half, for types that need it.
    pub(super) first: i32,
    /// The sum of the values.
    pub(super) total: f32,
}

impl Block {
    /// Sets the scale, and what follows from it.
    #[expect(clippy::cast_precision_loss, reason = "a sum of 32 bytes")]
    #[inline(always)]
    pub(super) fn finish(&mut self, largest: f32) {
        self.scale = largest / 127.0;
        self.total = self.scale * self.sum as f32;
    }

    /// What cancels an offset that was added to weights, for each half or for all. (Sums of no numbers may be too large.)
    #[inline(always)]
    pub(super) fn starts(&self, offset: i32, halves: usize) -> [i32; 2] {
        if halves == 1 {
            return [self.sum.wrapping_mul(-offset), 0];
        }
        [self.first.wrapping_mul(-offset), self.sum.wrapping_sub(self.first).wrapping_mul(-offset)]
    }
}

/// Quantises a row, as to `q8_0`, but with scales in `f32`; with sums of halves for types that need them.
pub(super) fn quantise<S: Set>(s: S, row: &[f32], halves: usize, to: &mut [Block]) {
    s.run(Quantise { s, row, halves, to });
}

struct Quantise<'a, S> {
    s: S,
    row: &'a [f32],
    halves: usize,
    to: &'a mut [Block],
}

impl<S: Set> NullaryFnOnce for Quantise<'_, S> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (to, from) in self.to.iter_mut().zip(self.row.as_chunks::<BLOCK>().0) {
            self.s.quantise(from, self.halves, to);
        }
    }
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

/// [`Set::quantise`] without vectors.
#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are the number")]
pub(super) fn plain(from: &[f32; BLOCK], halves: usize, to: &mut Block) {
    let largest = largest(from);
    let by = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    for (to, x) in to.numbers.iter_mut().zip(from) {
        *to = (x * by + WHOLE).to_bits() as i8;
    }
    let sum = |numbers: &[i8]| numbers.iter().map(|&x| i32::from(x)).sum::<i32>();
    to.sum = sum(&to.numbers);
    to.first = if halves == 1 { 0 } else { sum(&to.numbers[..BLOCK / 2]) };
    to.finish(largest);
}
