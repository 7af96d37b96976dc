//! Types of eight blocks, whose scales are small integers times one number.

use bytemuck::Pod;
use ggml::DType;

use super::super::set::Set;
use super::{Integers, Type, bits, join, less, part, words};

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

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

impl Type for Q4K {
    type Unit = [u8; 144];

    const DTYPE: DType = DType::Q4_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;
    const FACTORS: &[usize] = &[0, 2];

    /// The numbers of two blocks share bytes: those of the first are the lower halves, those of the second the upper ones.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 144]) -> [u8; 32] {
        bits(part(unit, 16 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15)
    }

    #[inline(always)]
    fn integers<S: Set, const N: usize>(_: S, units: [&[u8; 144]; N]) -> Integers<N> {
        of_six_bits(units)
    }
}

impl Type for Q5K {
    type Unit = [u8; 176];

    const DTYPE: DType = DType::Q5_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;
    const FACTORS: &[usize] = &[0, 2];

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 176]) -> [u8; 32] {
        // A bit for each block.
        let fifth = bits(part(unit, 16), BLOCK, 1);
        join(bits(part(unit, 48 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15), fifth)
    }

    #[inline(always)]
    fn integers<S: Set, const N: usize>(_: S, units: [&[u8; 176]; N]) -> Integers<N> {
        of_six_bits(units)
    }
}

impl Type for Q6K {
    type Unit = [u8; 210];

    const DTYPE: DType = DType::Q6_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const HALVES: usize = 2;
    const FACTORS: &[usize] = &[208, 208];

    /// Four blocks share 64 bytes of lower halves, and 32 bytes with two more bits for each of them.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 210]) -> [u8; 32] {
        let (four, i) = (BLOCK / 4, BLOCK % 4);
        let lower = bits(part(unit, 64 * four + i % 2 * 32), i / 2 * 4, 15);
        join(lower, bits(part(unit, 128 + 32 * four), 2 * i, 3))
    }

    #[inline(always)]
    fn integers<S: Set, const N: usize>(s: S, units: [&[u8; 210]; N]) -> Integers<N> {
        const ORDER: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
        let mut all = [[[0; N]; 2]; 2];
        for (i, unit) in units.into_iter().enumerate() {
            let words: [u32; 8] = bytemuck::cast(s.lookup(part(unit, 192), bytemuck::cast([ORDER; 2])));
            for (to, word) in all.as_flattened_mut().iter_mut().zip(words) {
                to[i] = word;
            }
        }
        all
    }
}
