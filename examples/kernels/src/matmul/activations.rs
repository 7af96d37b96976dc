//! Rows of activations in blocks of bytes.

use bytemuck::{Pod, Zeroable};

use super::set::{Set, compiled};
use super::types::{self, Type};

/// The number of values that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Numbers from -127 to 127, times a scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Block {
    pub(super) numbers: [i8; BLOCK],
    /// NaN or infinite if one of the values is.
    pub(super) scale: f32,
    /// The sum of the values.
    pub(super) total: f32,
    /// What cancels an offset that was added to weights, if it isn't multiplied by small integers before. Otherwise, 16 bits each, the sums
    /// of the first half of the numbers and of the second half, if these have scales, or of the numbers and those of the next block.
    /// Anything if the scale is not finite.
    pub(super) sums: i32,
}

impl Block {
    /// What cancels an offset that was added to weights: first for all, or for each half where these have scales.
    #[inline(always)]
    pub(super) fn starts<S: Set, T: Type>(&self) -> [i32; 2] {
        let by = -types::offset::<S, T>();
        if by != 0 && T::HALVES == 1 && !types::pairs::<S, T>() {
            return [self.sums, 0];
        }
        let [first, second]: [i16; 2] = bytemuck::cast(self.sums);
        [i32::from(first) * by, i32::from(second) * by]
    }
}

/// Quantises a row, as to `q8_0`, but with scales in `f32`, and maybe for a type whose blocks share a scale, or limit pairs.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sums of 16 bytes")]
pub(super) fn quantise<S: Set, T: Type>(s: S, row: &[f32], to: &mut [Block]) {
    let s = s.short();
    compiled!(s, {
        let together = types::together::<S, T>();
        for (to, from) in to.chunks_exact_mut(together).zip(row.as_chunks::<BLOCK>().0.chunks_exact(together)) {
            let most = most::<S, T>(from);
            for (to, from) in to.iter_mut().zip(from) {
                to.numbers = s.round(from, factor(most, 127.0));
                let [first, second] = s.sums_of_bytes(bytemuck::pod_read_unaligned(bytemuck::bytes_of(&to.numbers)));
                to.sums = match T::HALVES {
                    2 => bytemuck::cast([first as i16, second as i16]),
                    _ => (first + second) * if types::pairs::<S, T>() { 1 } else { -types::offset::<S, T>() },
                };
                to.scale = most / 127.0;
                to.total = to.scale * (first + second) as f32;
            }
            for i in 1..if types::pairs::<S, T>() { to.len() } else { 0 } {
                to[i - 1].sums = to[i - 1].sums & 0xffff | to[i].sums << 16;
            }
        }
    });
}

/// What 127 stands for: the largest size, or more, so that pairs aren't too large. NaN if there is one.
#[inline(always)]
pub(super) fn most<S: Set, T: Type>(blocks: &[[f32; BLOCK]]) -> f32 {
    let all = largest(blocks.iter().copied());
    let Some(most) = types::most_of_pair::<S, T>() else { return all };
    let pairs = blocks.iter().map(|x| std::array::from_fn::<_, { BLOCK / 2 }, _>(|i| x[2 * i] + x[2 * i + 1]));
    largest([[all], [largest(pairs) * (127.0 / most)]].into_iter())
}

/// The largest size in all lists; NaN if there is one.
#[inline(always)]
pub(crate) fn largest<const N: usize>(lists: impl Iterator<Item = [f32; N]>) -> f32 {
    f32::from_bits(each_largest(lists).iter().fold(0, |largest, x| largest.max(x.to_bits())))
}

/// The largest size at each place of all lists; NaN if there is one.
#[inline(always)]
pub(super) fn each_largest<const N: usize>(lists: impl Iterator<Item = [f32; N]>) -> [f32; N] {
    // The order of sizes is that of their bits; that of a NaN is above all.
    let mut largest = [0; N];
    for list in lists {
        for (largest, x) in largest.iter_mut().zip(list) {
            *largest = (*largest).max(x.to_bits() & 0x7fff_ffff);
        }
    }
    let mut all = [0.0; N];
    for (to, bits) in all.iter_mut().zip(largest) {
        *to = f32::from_bits(bits);
    }
    all
}

/// What makes `most` of the largest number.
#[inline(always)]
pub(super) fn factor(largest: f32, most: f32) -> f32 {
    if largest > 0.0 { most / largest } else { 0.0 }
}
