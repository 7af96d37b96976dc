//! Block types of ggml: how a block becomes bytes, scales and offsets. value = scale * (number - offset), or
//! scale * number - offset with an offset of its own for each block.

mod k;
mod lookup;
mod simple;

use bytemuck::Pod;
use ggml::DType;

pub(crate) use k::{Q4K, Q5K, Q6K};
pub(crate) use lookup::{Iq4Nl, Iq4Xs, MxFp4};
pub(crate) use simple::{Q4_0, Q4_1, Q5_0, Q8_0};

use super::set::Set;

/// The most blocks of a unit.
pub(crate) const BLOCKS: usize = 8;

/// The scale of each block of a unit; and its offset, or the scale of its second half.
pub(crate) type Scales = [[f32; BLOCKS]; 2];

/// A block type.
pub(crate) trait Type: Send + Sync + 'static {
    /// The bytes of what ggml calls a block: some blocks of 32 numbers.
    type Unit: Pod;

    const DTYPE: DType;
    /// The blocks of a unit.
    const BLOCKS: usize;
    /// Numbers are below `2^BITS`, or signed bytes if these are 8.
    const BITS: u32;
    /// What is subtracted from each number.
    const OFFSET: i32 = 0;
    /// Whether blocks have offsets of their own.
    const OFFSETS: bool = false;
    /// 2 if each half of a block has a scale of its own.
    const HALVES: usize = 1;

    /// The numbers of a block.
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &Self::Unit) -> [u8; 32];
    /// The scales of all blocks.
    fn scales<S: Set>(s: S, unit: &Self::Unit) -> Scales;
}

/// The numbers of a block as [`Set::dot`] takes them.
#[inline(always)]
pub(crate) fn numbers<S: Set, T: Type, const BLOCK: usize>(s: S, unit: &T::Unit) -> S::Ints {
    let mut numbers = T::numbers::<S, BLOCK>(s, unit);
    if T::BITS == 8 && !S::SIGNED {
        for x in &mut numbers {
            *x ^= 0x80;
        }
    }
    bytemuck::pod_read_unaligned(&numbers)
}

/// What is subtracted from each of them.
#[inline(always)]
pub(crate) fn offset<S: Set, T: Type>() -> i32 {
    if T::BITS == 8 && !S::SIGNED { 128 } else { T::OFFSET }
}

/// Does something for each block of a unit, whose index is a constant.
macro_rules! each_block {
    ($T:ident, $block:ident => $body:block) => {
        each_block!($T, $block => $body, 0 1 2 3 4 5 6 7)
    };
    ($T:ident, $block:ident => $body:block, $($i:literal)*) => {
        $(if $i < $T::BLOCKS {
            const $block: usize = $i;
            $body
        })*
    };
}
pub(crate) use each_block;

/// The lower halves of bytes, then the upper ones.
#[inline(always)]
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    let mut all = [0; 32];
    for i in 0..16 {
        all[i] = bytes[i] & 15;
        all[16 + i] = bytes[i] >> 4;
    }
    all
}

/// Some bytes of a unit.
#[inline(always)]
fn part<const N: usize>(unit: &[u8], at: usize) -> &[u8; N] {
    match unit[at..].first_chunk() {
        Some(part) => part,
        None => unreachable!("a unit is longer"),
    }
}

/// The number in `f16` at an offset.
#[inline(always)]
fn half<S: Set>(s: S, unit: &[u8], at: usize) -> f32 {
    s.half(u16::from_le_bytes(*part(unit, at)))
}

/// The scale of the only block.
#[inline(always)]
fn one(scale: f32, other: f32) -> Scales {
    let mut all = [[0.0; BLOCKS]; 2];
    (all[0][0], all[1][0]) = (scale, other);
    all
}
