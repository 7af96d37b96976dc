//! Types of eight blocks, whose scales are small integers times one number.

use ggml::DType;

use super::super::set::Set;
use super::{Integers, Type, bits, join, part};

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

impl Type for Q4K {
    type Unit = [u8; 144];

    const DTYPE: DType = DType::Q4_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;

    /// The numbers of two blocks share bytes: those of the first are the lower halves, those of the second the upper ones.
    #[inline(always)]
    fn numbers<const BLOCK: usize>(unit: &[u8; 144]) -> [u8; 32] {
        bits(part(unit, 16 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15)
    }
}

impl Type for Q5K {
    type Unit = [u8; 176];

    const DTYPE: DType = DType::Q5_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn numbers<const BLOCK: usize>(unit: &[u8; 176]) -> [u8; 32] {
        // A bit for each block.
        let fifth = bits(part(unit, 16), BLOCK, 1);
        join(bits(part(unit, 48 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15), fifth)
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
    fn numbers<const BLOCK: usize>(unit: &[u8; 210]) -> [u8; 32] {
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
