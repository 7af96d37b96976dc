//! Block types of ggml: how a block becomes bytes, scales and offsets. value = scale * (number - offset), or
//! scale * number + offset with an offset of its own for each block.

mod k;
mod lookup;
mod simple;

use bytemuck::Pod;
use ggml::DType;

pub(crate) use k::{Q4K, Q5K, Q6K};
pub(crate) use lookup::{Iq4Nl, Iq4Xs, MxFp4};
pub(crate) use simple::{Q4_0, Q4_1, Q5_0, Q8_0, TwoQ8_0};

use super::set::Set;

/// The columns whose scales are computed together.
pub(crate) const EIGHT: usize = 8;

/// A number of each of these columns.
pub(crate) type Eight = [f32; EIGHT];

/// Small integers of eight blocks of each of `N` units, four signed bytes in a word: those of scales; and those of offsets, or of the
/// scales of second halves.
pub(crate) type Integers<const N: usize> = [[[u32; N]; 2]; 2];

/// What the scales and offsets of all blocks of eight units are made of: factors, and small integers.
pub(crate) type Scaling = ([Eight; 2], Integers<EIGHT>);

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
    /// Whether blocks have offsets of their own, which are added.
    const OFFSETS: bool = false;
    /// 2 if each half of a block has a scale of its own.
    const HALVES: usize = 1;

    /// Whether many rows of activations are fetched before they are multiplied: short ones, the processor fetches by itself.
    const FETCHED: bool = true;

    /// Whether scales are small integers times a factor: see [`Type::integers`].
    const INTEGERS: bool = Self::BLOCKS > 1;
    /// Where a unit has factors in `f16`: those of scales; and of offsets, or of the scales of second halves.
    const FACTORS: &[usize] = if Self::OFFSETS { &[0, 2] } else { &[0] };
    /// Where it has bytes of two numbers of four bits each: 16 for each block, the first half of whose numbers are in the lower
    /// halves.
    const NIBBLES: Option<usize> = None;
    /// What these are indices of.
    const TABLE: Option<[i8; 16]> = None;

    /// The numbers of a block, or their indices.
    #[inline(always)]
    fn numbers<const BLOCK: usize>(unit: &Self::Unit) -> [u8; 32] {
        let Some(at) = Self::NIBBLES else { unreachable!("other types say how") };
        nibbles(part(bytemuck::bytes_of(unit), at + 16 * BLOCK))
    }

    /// The small integers that scales and offsets are made of: those of six bits, if the type doesn't say more.
    #[inline(always)]
    fn integers<S: Set, const N: usize>(_: S, units: [&Self::Unit; N]) -> Integers<N> {
        of_six_bits(units)
    }

    /// What they are multiplied by: scales, and offsets.
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
        let (mut factors, mut integers) = Scaling::default();
        for (i, unit) in units.into_iter().enumerate() {
            [factors[0][i], factors[1][i]] = Self::factors(s, unit);
        }
        if Self::INTEGERS {
            integers = Self::integers(s, units);
        }
        (factors, integers)
    }

    /// The scales of a block of eight columns; and the offsets, or the scales of second halves.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "integers have eight bits")]
    fn scales<const BLOCK: usize>((factors, integers): &Scaling) -> [Eight; 2] {
        let mut all = *factors;
        if Self::INTEGERS {
            for (all, words) in all.iter_mut().zip(integers).take(Self::FACTORS.len()) {
                for (x, word) in all.iter_mut().zip(words[BLOCK / 4]) {
                    *x *= signed_byte(word, BLOCK % 4) as f32;
                }
            }
        }
        all
    }
}

/// Fetches what lies so many bytes behind a unit.
#[inline(always)]
pub(crate) fn fetch<S: Set, Unit>(s: S, unit: &Unit, ahead: usize) {
    for line in (0..size_of::<Unit>()).step_by(64) {
        s.fetch(unit, ahead + line);
    }
}

/// A unit of each column. Fetches what lies so many bytes behind them.
#[inline(always)]
pub(crate) fn units<S: Set, T: Type>(s: S, columns: [&[T::Unit]; EIGHT], u: usize, ahead: usize) -> [&T::Unit; EIGHT] {
    let mut units = [&columns[0][u]; EIGHT];
    for (unit, column) in units.iter_mut().zip(columns) {
        *unit = &column[u];
        fetch(s, *unit, ahead);
    }
    units
}

/// The numbers of a block as [`Set::dot`] takes them.
#[inline(always)]
pub(crate) fn numbers<S: Set, T: Type, const BLOCK: usize>(s: S, unit: &T::Unit) -> S::Ints {
    ints::<S, T>(s, bytemuck::pod_read_unaligned(&T::numbers::<BLOCK>(unit)))
}

/// Numbers, or indices, as [`Set::dot`] takes them.
#[inline(always)]
fn ints<S: Set, T: Type>(s: S, numbers: S::Ints) -> S::Ints {
    let mut bytes: [u8; 32] = bytemuck::pod_read_unaligned(bytemuck::bytes_of(&numbers));
    match T::TABLE {
        Some(table) => bytes = s.lookup(&bytemuck::cast(table), bytes),
        None if T::BITS < 8 || S::SIGNED => return numbers, // on ARM, bytes would be taken one by one
        None => {}
    }
    if T::BITS == 8 && !S::SIGNED {
        for x in &mut bytes {
            *x ^= 0x80;
        }
    }
    bytemuck::pod_read_unaligned(&bytes)
}

/// [`Type::NIBBLES`] of two units.
#[inline(always)]
fn of_two<S: Set, T: Type, const BLOCK: usize>([a, b]: [&T::Unit; 2], at: usize) -> S::Ints {
    let [a, b]: [&[u8; 16]; 2] = [a, b].map(|unit| part(bytemuck::bytes_of(unit), at + 16 * BLOCK));
    bytemuck::pod_read_unaligned(bytemuck::bytes_of(&[*a, *b]))
}

/// The numbers of the first halves of two blocks, and those of the second halves.
#[inline(always)]
pub(crate) fn pair<S: Set, T: Type, const BLOCK: usize>(s: S, units: [&T::Unit; 2]) -> [S::Ints; 2] {
    if let Some(at) = T::NIBBLES {
        let [a, b] = s.nibbles(of_two::<S, T, BLOCK>(units, at));
        return [ints::<S, T>(s, a), ints::<S, T>(s, b)];
    }
    s.pair(numbers::<S, T, BLOCK>(s, units[0]), numbers::<S, T, BLOCK>(s, units[1]))
}

/// The numbers of a block of eight units: four of each in a vector.
#[inline(always)]
pub(crate) fn quads<S: Set, T: Type, const BLOCK: usize>(s: S, units: [&T::Unit; EIGHT]) -> [S::Ints; EIGHT] {
    const FOUR: usize = EIGHT / 2;
    let mut halves = [[s.ints(0); FOUR]; 2];
    for p in 0..FOUR {
        let two = [units[p], units[p + FOUR]];
        [halves[0][p], halves[1][p]] = match T::NIBBLES {
            Some(at) => [of_two::<S, T, BLOCK>(two, at); 2],
            None => pair::<S, T, BLOCK>(s, two),
        };
    }
    halves = [s.fours(halves[0]), s.fours(halves[1])];
    if T::NIBBLES.is_some() {
        // They were brought together before they are taken apart.
        let [low, high] = &mut halves;
        for (low, high) in low.iter_mut().zip(high) {
            let [a, b] = s.nibbles(*low);
            (*low, *high) = (ints::<S, T>(s, a), ints::<S, T>(s, b));
        }
    }
    bytemuck::cast(halves)
}

/// What is subtracted from each of them.
#[inline(always)]
pub(crate) const fn offset<S: Set, T: Type>() -> i32 {
    if T::BITS == 8 && !S::SIGNED { 128 } else { T::OFFSET }
}

/// Whether products of several blocks with many rows are summed as integers, by their scales.
pub(crate) const fn whole<S: Set, T: Type>() -> bool {
    S::NARROW && T::INTEGERS
}

/// Whether their offsets, or what cancels those of numbers, are computed for two blocks at once.
pub(crate) const fn pairs<S: Set, T: Type>() -> bool {
    whole::<S, T>() && T::HALVES == 1
}

/// The blocks of activations that share a scale, as in ggml: fewer where pairs are limited, whose steps would be too large.
pub(crate) const fn together<S: Set, T: Type>() -> usize {
    match most_of_pair::<S, T>() {
        Some(_) if T::BLOCKS > 4 => 4,
        _ => T::BLOCKS,
    }
}

/// What the size of the sum of a pair of activations is at most, or one less, where that times a weight must be below 2^15 (that of
/// activations of different signs is): weights of tables are below 242.
pub(crate) const fn most_of_pair<S: Set, T: Type>() -> Option<f32> {
    if !S::NARROW || T::BITS < 8 { None } else { Some(if T::TABLE.is_some() { 134.0 } else { 127.0 }) }
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

/// One of a word's four signed bytes.
#[inline(always)]
pub(crate) fn signed_byte(word: u32, i: usize) -> i32 {
    (word << (24 - 8 * i)).cast_signed() >> 24
}

/// Some bytes of a unit.
#[inline(always)]
fn part<const N: usize>(unit: &[u8], at: usize) -> &[u8; N] {
    let Some(part) = unit[at..].first_chunk() else { unreachable!("a unit is longer") };
    part
}

/// A word of each unit.
#[inline(always)]
fn words<Unit: Pod, const N: usize>(units: [&Unit; N], at: usize) -> [u32; N] {
    let mut all = [0; N];
    for (to, unit) in all.iter_mut().zip(units) {
        *to = u32::from_le_bytes(*part(bytemuck::bytes_of(unit), at));
    }
    all
}

/// Scales and offsets from words with numbers of six bits.
#[inline(always)]
fn of_six_bits<Unit: Pod, const N: usize>(units: [&Unit; N]) -> Integers<N> {
    const FOUR: u32 = 0x0f0f_0f0f;
    const SIX: u32 = 0x3f3f_3f3f;
    const TWO: u32 = 0x3030_3030;
    let (a, b, c) = (words(units, 4), words(units, 8), words(units, 12));
    let mut all = [[[0; N]; 2]; 2];
    for i in 0..N {
        // The last four have their upper two bits in the upper bits of the first four.
        let scales = [a[i] & SIX, c[i] & FOUR | a[i] >> 2 & TWO];
        let offsets = [b[i] & SIX, c[i] >> 4 & FOUR | b[i] >> 2 & TWO];
        for half in 0..2 {
            all[0][half][i] = scales[half];
            all[1][half][i] = less(0, offsets[half]); // ggml subtracts them
        }
    }
    all
}

/// The differences of bytes, which are below 128.
#[inline(always)]
fn less(from: u32, bytes: u32) -> u32 {
    const HIGH: u32 = 0x8080_8080; // so that nothing is borrowed from the next byte
    ((from | HIGH) - bytes) ^ HIGH
}
