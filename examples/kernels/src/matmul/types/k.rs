//! Types of eight blocks, whose scales are small integers times one number.

use ggml::DType;

use super::super::set::Set;
use super::{EIGHT, Eight, Scaling, Type, bits, join, part, times};

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

/// A scale and an offset of each of eight columns, from words with numbers of six bits.
#[inline(always)]
fn of_six_bits<const BLOCK: usize>(Scaling { factors: by, words: [a, b, c, _] }: &Scaling) -> [Eight; 2] {
    let mut all = [[0; EIGHT]; 2];
    let shift = BLOCK % 4 * 8;
    for i in 0..EIGHT {
        let [a, b, c] = [a[i] >> shift, b[i] >> shift, c[i] >> shift];
        // The last four have their upper two bits in the upper bits of the first four.
        let (scale, offset) =
            if BLOCK < 4 { (a & 63, b & 63) } else { (c & 15 | a >> 2 & 0x30, c >> 4 & 15 | b >> 2 & 0x30) };
        (all[0][i], all[1][i]) = (scale.cast_signed(), offset.cast_signed());
    }
    [times(all[0], by[0]), times(all[1], by[1])]
}

/// A scale and an offset of each block, for both of its halves, from words with numbers of six bits.
#[inline(always)]
fn words_of_six_bits(unit: &[u8]) -> [[u8; 16]; 2] {
    const FOUR: u32 = 0x0f0f_0f0f;
    const SIX: u32 = 0x3f3f_3f3f;
    const TWO: u32 = 0x3030_3030;
    let word = |at| u32::from_le_bytes(*part(unit, at));
    let (a, b, c) = (word(4), word(8), word(12));
    let scales = [a & SIX, c & FOUR | a >> 2 & TWO];
    let offsets = [b & SIX, c >> 4 & FOUR | b >> 2 & TWO];
    bytemuck::cast([[scales; 2], [offsets; 2]])
}

impl Type for Q4K {
    type Unit = [u8; 144];

    const DTYPE: DType = DType::Q4_K;
    const BLOCKS: usize = 8;
    const INTEGERS: bool = true;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;
    const FACTORS: &[usize] = &[0, 2];
    const WORDS: &[usize] = &[4, 8, 12];

    /// The numbers of two blocks share bytes: those of the first are the lower halves, those of the second the upper ones.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 144]) -> [u8; 32] {
        bits(part(unit, 16 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15)
    }

    #[inline(always)]
    fn integers<S: Set>(_: S, unit: &[u8; 144]) -> [[u8; 16]; 2] {
        words_of_six_bits(unit)
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Scaling) -> [Eight; 2] {
        of_six_bits::<BLOCK>(facts)
    }
}

impl Type for Q5K {
    type Unit = [u8; 176];

    const DTYPE: DType = DType::Q5_K;
    const BLOCKS: usize = 8;
    const INTEGERS: bool = true;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;
    const FACTORS: &[usize] = &[0, 2];
    const WORDS: &[usize] = &[4, 8, 12];

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 176]) -> [u8; 32] {
        // A bit for each block.
        let fifth = bits(part(unit, 16), BLOCK, 1);
        join(bits(part(unit, 48 + BLOCK / 2 * 32), BLOCK % 2 * 4, 15), fifth)
    }

    #[inline(always)]
    fn integers<S: Set>(_: S, unit: &[u8; 176]) -> [[u8; 16]; 2] {
        words_of_six_bits(unit)
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Scaling) -> [Eight; 2] {
        of_six_bits::<BLOCK>(facts)
    }
}

impl Type for Q6K {
    type Unit = [u8; 210];

    const DTYPE: DType = DType::Q6_K;
    const BLOCKS: usize = 8;
    const INTEGERS: bool = true;
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const HALVES: usize = 2;
    const FACTORS: &[usize] = &[208];
    /// Of four scales.
    const WORDS: &[usize] = &[192, 196, 200, 204];

    /// Four blocks share 64 bytes of lower halves, and 32 bytes with two more bits for each of them.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 210]) -> [u8; 32] {
        let (four, i) = (BLOCK / 4, BLOCK % 4);
        let lower = bits(part(unit, 64 * four + i % 2 * 32), i / 2 * 4, 15);
        join(lower, bits(part(unit, 128 + 32 * four), 2 * i, 3))
    }

    #[inline(always)]
    fn integers<S: Set>(s: S, unit: &[u8; 210]) -> [[u8; 16]; 2] {
        const ORDER: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
        bytemuck::cast(s.lookup(part(unit, 192), bytemuck::cast([ORDER; 2])))
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(Scaling { factors: [by, _], words }: &Scaling) -> [Eight; 2] {
        let mut all = [[0; EIGHT]; 2];
        for (h, all) in all.iter_mut().enumerate() {
            let before = 24 - (BLOCK % 2 * 2 + h) * 8;
            for (to, word) in all.iter_mut().zip(words[BLOCK / 2]) {
                *to = (word << before).cast_signed() >> 24;
            }
        }
        all.map(|all| times(all, *by))
    }
}
