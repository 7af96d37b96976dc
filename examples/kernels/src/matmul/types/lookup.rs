//! Types whose numbers are indices of a table.

use ggml::DType;

use super::super::set::Set;
use super::{BLOCKS, Scales, Type, half, nibbles, one, part};

pub(crate) struct Iq4Nl;
pub(crate) struct Iq4Xs;
pub(crate) struct MxFp4;

/// Those of `iq4_nl`, as bytes.
const UNEVEN: [u8; 16] = {
    let table: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut all = [0; 16];
    let mut i = 0;
    while i < 16 {
        all[i] = table[i].cast_unsigned();
        i += 1;
    }
    all
};

/// Twice the numbers of four bits with one bit of fraction (E2M1), plus 12.
const E2M1: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl Type for Iq4Nl {
    type Unit = [u8; 18];

    const DTYPE: DType = DType::IQ4_NL;
    const BLOCKS: usize = 1;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &[u8; 18]) -> [u8; 32] {
        s.lookup(&UNEVEN, nibbles(part(unit, 2)))
    }

    #[inline(always)]
    fn scales<S: Set>(s: S, unit: &[u8; 18]) -> Scales {
        one(half(s, unit, 0), 0.0)
    }
}

impl Type for Iq4Xs {
    type Unit = [u8; 136];

    const DTYPE: DType = DType::IQ4_XS;
    const BLOCKS: usize = 8;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &[u8; 136]) -> [u8; 32] {
        s.lookup(&UNEVEN, nibbles(part(unit, 8 + 16 * BLOCK)))
    }

    /// Numbers of six bits less 32: two bits of each in one word, the other four in bytes that two blocks share.
    #[inline(always)]
    fn scales<S: Set>(s: S, unit: &[u8; 136]) -> Scales {
        let by = half(s, unit, 0);
        let (upper, lower) = (u16::from_le_bytes(*part(unit, 2)), part::<4>(unit, 4));
        let mut all = [[0.0; BLOCKS]; 2];
        for (i, to) in all[0].iter_mut().enumerate() {
            let scale = lower[i / 2] >> (i % 2 * 4) & 15 | ((upper >> (2 * i) & 3) << 4).to_le_bytes()[0];
            *to = (f32::from(scale) - 32.0) * by;
        }
        all
    }
}

impl Type for MxFp4 {
    type Unit = [u8; 17];

    const DTYPE: DType = DType::MXFP4;
    const BLOCKS: usize = 1;
    const BITS: u32 = 5;
    const OFFSET: i32 = 12;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &[u8; 17]) -> [u8; 32] {
        s.lookup(&E2M1, nibbles(part(unit, 1)))
    }

    /// A power of two, halved since numbers are doubled; the two smallest are subnormal.
    #[inline(always)]
    fn scales<S: Set>(_: S, unit: &[u8; 17]) -> Scales {
        let e = u32::from(unit[0]);
        let bits = if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 };
        one(f32::from_bits(bits), 0.0)
    }
}
