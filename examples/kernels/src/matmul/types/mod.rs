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

/// The columns whose scales are computed together.
pub(crate) const EIGHT: usize = 8;

/// A number of each of these columns.
pub(crate) type Eight = [f32; EIGHT];

/// What the scales and offsets of all blocks of eight units are made of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scaling {
    /// Factors of scales, and of offsets.
    factors: [Eight; 2],
    words: [[u32; EIGHT]; 4],
}

/// A block type.
pub(crate) trait Type: Send + Sync + 'static {
    /// The bytes of what ggml calls a block: some blocks of 32 numbers.
    type Unit: Pod;

    const DTYPE: DType;
    /// The blocks of a unit.
    const BLOCKS: usize = 1;
    /// Numbers are below `2^BITS`, or signed bytes if these are 8.
    const BITS: u32;
    /// What is subtracted from each number.
    const OFFSET: i32 = 0;
    /// Whether blocks have offsets of their own.
    const OFFSETS: bool = false;
    /// 2 if each half of a block has a scale of its own.
    const HALVES: usize = 1;

    /// Whether scales are small integers times a factor: see [`Type::integers`].
    const INTEGERS: bool = false;
    /// Where a unit has factors in `f16`.
    const FACTORS: &[usize] = &[0];
    /// Where it has words of what scales and offsets are made of.
    const WORDS: &[usize] = &[];
    /// Where it has bytes of two numbers of four bits each: 16 for each block, the first half of whose numbers are in the lower
    /// halves.
    const NIBBLES: Option<usize> = None;
    /// What these are indices of.
    const TABLE: Option<[u8; 16]> = None;

    /// The numbers of a block.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &Self::Unit) -> [u8; 32] {
        let Some(at) = Self::NIBBLES else { unreachable!("other types say how") };
        looked_up::<S, Self>(s, nibbles(part(bytemuck::bytes_of(unit), at + 16 * BLOCK)))
    }

    /// The numbers of the first halves of two blocks, and those of the second halves.
    #[inline(always)]
    fn pair<S: Set, const BLOCK: usize>(s: S, units: [&Self::Unit; 2]) -> [[u8; 32]; 2] {
        if let Some(at) = Self::NIBBLES {
            let [a, b] = nibbles_of_two(units.map(|unit| part(bytemuck::bytes_of(unit), at + 16 * BLOCK)));
            return [looked_up::<S, Self>(s, a), looked_up::<S, Self>(s, b)];
        }
        let [a, b] = [Self::numbers::<S, BLOCK>(s, units[0]), Self::numbers::<S, BLOCK>(s, units[1])];
        let [first, second] = s.pair(bytemuck::pod_read_unaligned(&a), bytemuck::pod_read_unaligned(&b));
        let (mut all, bytes) = ([[0; 32]; 2], [first, second]);
        all.as_flattened_mut().copy_from_slice(bytemuck::cast_slice(&bytes));
        all
    }

    /// The small integers that scales of blocks are made of: signed bytes, those of all first halves of blocks, then those of all
    /// second ones; and the same for offsets.
    #[inline(always)]
    fn integers<S: Set>(_: S, _: &Self::Unit) -> [[u8; 16]; 2] {
        unreachable!("other types say which")
    }

    /// What they are multiplied by, and what those of offsets are.
    #[inline(always)]
    fn factors<S: Set>(s: S, unit: &Self::Unit) -> [f32; 2] {
        let mut all = [0.0; 2];
        for (to, at) in all.iter_mut().zip(Self::FACTORS) {
            *to = s.half(u16::from_le_bytes(*part(bytemuck::bytes_of(unit), *at)));
        }
        all
    }

    /// What [`Type::scales`] needs.
    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&Self::Unit; EIGHT]) -> Scaling {
        let mut all = Scaling::default();
        for (i, unit) in units.into_iter().enumerate() {
            [all.factors[0][i], all.factors[1][i]] = Self::factors(s, unit);
        }
        for (to, at) in all.words.iter_mut().zip(Self::WORDS) {
            for (to, unit) in to.iter_mut().zip(units) {
                *to = u32::from_le_bytes(*part(bytemuck::bytes_of(unit), *at));
            }
        }
        all
    }

    /// The scales of a block of eight columns; and the offsets, or the scales of second halves.
    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Scaling) -> [Eight; 2] {
        facts.factors
    }
}

/// Numbers of four bits as those that they stand for.
#[inline(always)]
fn looked_up<S: Set, T: Type + ?Sized>(s: S, at: [u8; 32]) -> [u8; 32] {
    match &T::TABLE {
        Some(table) => s.lookup(table, at),
        None => at,
    }
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

/// [`Type::pair`] as [`Set::dot`] takes them.
#[inline(always)]
pub(crate) fn pair<S: Set, T: Type, const BLOCK: usize>(s: S, units: [&T::Unit; 2]) -> [S::Ints; 2] {
    let mut pair = T::pair::<S, BLOCK>(s, units);
    if T::BITS == 8 && !S::SIGNED {
        for x in pair.as_flattened_mut() {
            *x ^= 0x80;
        }
    }
    [bytemuck::pod_read_unaligned(&pair[0]), bytemuck::pod_read_unaligned(&pair[1])]
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

/// Bits of each byte, from one on. (Not of all processors does the compiler find the vectors in loops over bytes.)
#[inline(always)]
fn bits<const N: usize>(bytes: &[u8; N], from: usize, mask: u8) -> [u8; N] {
    let mut all = *bytes;
    for word in all.as_chunks_mut().0 {
        *word = (u64::from_ne_bytes(*word) >> from & u64::from_ne_bytes([mask; 8])).to_ne_bytes();
    }
    all
}

/// Numbers from their lower four bits and the upper ones.
#[inline(always)]
fn join(mut lower: [u8; 32], upper: [u8; 32]) -> [u8; 32] {
    for (to, upper) in lower.as_chunks_mut().0.iter_mut().zip(upper.as_chunks().0) {
        *to = (u64::from_ne_bytes(*to) | u64::from_ne_bytes(*upper) << 4).to_ne_bytes();
    }
    lower
}

/// The lower halves of bytes, then the upper ones.
#[inline(always)]
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    bytemuck::cast([bits(bytes, 0, 15), bits(bytes, 4, 15)])
}

/// Those of two units: the lower halves, and the upper ones.
#[inline(always)]
fn nibbles_of_two([a, b]: [&[u8; 16]; 2]) -> [[u8; 32]; 2] {
    bytemuck::cast([bits(a, 0, 15), bits(b, 0, 15), bits(a, 4, 15), bits(b, 4, 15)])
}

/// Some bytes of a unit.
#[inline(always)]
fn part<const N: usize>(unit: &[u8], at: usize) -> &[u8; N] {
    match unit[at..].first_chunk() {
        Some(part) => part,
        None => unreachable!("a unit is longer"),
    }
}

/// Small integers times numbers.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "they have eight bits")]
fn times(integers: [i32; EIGHT], by: Eight) -> Eight {
    let mut all = by;
    for (to, integer) in all.iter_mut().zip(integers) {
        *to *= integer as f32;
    }
    all
}
