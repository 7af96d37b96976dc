//! Types of eight blocks, whose scales are small integers times one number.

use ggml::DType;

use super::super::set::Set;
use super::{BLOCKS, Scales, Type, half, part};

pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

/// The numbers of two blocks share bytes: those of the first are the lower halves, those of the second the upper ones.
#[inline(always)]
fn shared(bytes: &[u8; 32], which: usize) -> [u8; 32] {
    let mut all = *bytes;
    for x in &mut all {
        *x = if which == 0 { *x & 15 } else { *x >> 4 };
    }
    all
}

/// The scales and offsets of `q4_K` and `q5_K`: numbers of six bits, times a factor for all.
#[inline(always)]
fn six_bits<S: Set>(s: S, unit: &[u8]) -> Scales {
    let (scale, offset) = (half(s, unit, 0), half(s, unit, 2));
    let [a, b, c] = [4, 8, 12].map(|at| u32::from_le_bytes(*part(unit, at)));
    // The last four have their upper two bits in the upper bits of the first four.
    let scales = [a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | a >> 2 & 0x3030_3030];
    let offsets = [b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | b >> 2 & 0x3030_3030];
    let bytes = |words: [u32; 2]| bytemuck::cast::<_, [u8; BLOCKS]>(words.map(u32::to_le));
    let (scales, offsets) = (bytes(scales), bytes(offsets));
    let mut all = [[0.0; BLOCKS]; 2];
    for i in 0..BLOCKS {
        all[0][i] = f32::from(scales[i]) * scale;
        all[1][i] = f32::from(offsets[i]) * offset;
    }
    all
}

impl Type for Q4K {
    type Unit = [u8; 144];

    const DTYPE: DType = DType::Q4_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 144]) -> [u8; 32] {
        shared(part(unit, 16 + BLOCK / 2 * 32), BLOCK % 2)
    }

    #[inline(always)]
    fn scales<S: Set>(s: S, unit: &[u8; 144]) -> Scales {
        six_bits(s, unit)
    }
}

impl Type for Q5K {
    type Unit = [u8; 176];

    const DTYPE: DType = DType::Q5_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 5;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 176]) -> [u8; 32] {
        let mut all = shared(part(unit, 48 + BLOCK / 2 * 32), BLOCK % 2);
        // A bit for each block.
        let fifth: &[u8; 32] = part(unit, 16);
        for (x, fifth) in all.iter_mut().zip(fifth) {
            *x |= (*fifth >> BLOCK & 1) << 4;
        }
        all
    }

    #[inline(always)]
    fn scales<S: Set>(s: S, unit: &[u8; 176]) -> Scales {
        six_bits(s, unit)
    }
}

impl Type for Q6K {
    type Unit = [u8; 210];

    const DTYPE: DType = DType::Q6_K;
    const BLOCKS: usize = 8;
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const HALVES: usize = 2;

    /// Four blocks share 64 bytes of lower halves, and 32 bytes with two more bits for each of them.
    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 210]) -> [u8; 32] {
        let (four, i) = (BLOCK / 4, BLOCK % 4);
        let mut all = shared(part(unit, 64 * four + i % 2 * 32), i / 2);
        let upper: &[u8; 32] = part(unit, 128 + 32 * four);
        for (x, upper) in all.iter_mut().zip(upper) {
            *x |= (*upper >> (2 * i) & 3) << 4;
        }
        all
    }

    #[inline(always)]
    fn scales<S: Set>(s: S, unit: &[u8; 210]) -> Scales {
        let by = half(s, unit, 208);
        let scales: &[u8; 16] = part(unit, 192);
        let mut all = [[0.0; BLOCKS]; 2];
        for i in 0..2 * BLOCKS {
            all[i % 2][i / 2] = f32::from(scales[i].cast_signed()) * by;
        }
        all
    }
}
