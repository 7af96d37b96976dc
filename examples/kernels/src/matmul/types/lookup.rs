//! Types whose numbers are indices of a table.

use ggml::DType;

use super::super::set::Set;
use super::{EIGHT, Eight, Type, half, nibbles, nibbles_of_two, part, times, word};

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
    type Facts = Eight;

    const DTYPE: DType = DType::IQ4_NL;
    const BLOCKS: usize = 1;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &[u8; 18]) -> [u8; 32] {
        s.lookup(&UNEVEN, nibbles(part(unit, 2)))
    }

    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&[u8; 18]; EIGHT]) -> Eight {
        half(s, units, 0)
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Eight) -> [Eight; 2] {
        [*facts, [0.0; EIGHT]]
    }

    #[inline(always)]
    fn pair<S: Set, const BLOCK: usize>(s: S, [a, b]: [&[u8; 18]; 2]) -> [[u8; 32]; 2] {
        nibbles_of_two([part(a, 2), part(b, 2)]).map(|at| s.lookup(&UNEVEN, at))
    }
}

impl Type for Iq4Xs {
    type Unit = [u8; 136];
    type Facts = (Eight, [u32; EIGHT], [u32; EIGHT]);

    const DTYPE: DType = DType::IQ4_XS;
    const BLOCKS: usize = 8;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(s: S, unit: &[u8; 136]) -> [u8; 32] {
        s.lookup(&UNEVEN, nibbles(part(unit, 8 + 16 * BLOCK)))
    }

    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&[u8; 136]; EIGHT]) -> Self::Facts {
        (half(s, units, 0), word(units, 0), word(units, 4))
    }

    /// Numbers of six bits less 32: two bits of each in one half of a word, the other four in another word.
    #[inline(always)]
    fn scales<const BLOCK: usize>((by, upper, lower): &Self::Facts) -> [Eight; 2] {
        let mut all = [0; EIGHT];
        for i in 0..EIGHT {
            let scale = lower[i] >> (4 * BLOCK) & 15 | (upper[i] >> (16 + 2 * BLOCK) & 3) << 4;
            all[i] = scale.cast_signed() - 32;
        }
        [times(all, *by), [0.0; EIGHT]]
    }

    #[inline(always)]
    fn pair<S: Set, const BLOCK: usize>(s: S, [a, b]: [&[u8; 136]; 2]) -> [[u8; 32]; 2] {
        nibbles_of_two([part(a, 8 + 16 * BLOCK), part(b, 8 + 16 * BLOCK)]).map(|at| s.lookup(&UNEVEN, at))
    }
}

impl Type for MxFp4 {
    type Unit = [u8; 17];
    type Facts = Eight;

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
    fn facts<S: Set>(_: S, units: [&[u8; 17]; EIGHT]) -> Eight {
        let mut all = [0.0; EIGHT];
        for (to, unit) in all.iter_mut().zip(units) {
            let e = u32::from(unit[0]);
            *to = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
        }
        all
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Eight) -> [Eight; 2] {
        [*facts, [0.0; EIGHT]]
    }

    #[inline(always)]
    fn pair<S: Set, const BLOCK: usize>(s: S, [a, b]: [&[u8; 17]; 2]) -> [[u8; 32]; 2] {
        nibbles_of_two([part(a, 1), part(b, 1)]).map(|at| s.lookup(&E2M1, at))
    }
}
