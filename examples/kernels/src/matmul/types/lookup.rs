//! Types whose numbers are indices of a table.

use ggml::DType;

use super::super::set::Set;
use super::{EIGHT, Eight, Scaling, Type, part, times};

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
    const BITS: u32 = 8;
    const NIBBLES: Option<usize> = Some(2);
    const TABLE: Option<[u8; 16]> = Some(UNEVEN);
}

impl Type for Iq4Xs {
    type Unit = [u8; 136];

    const DTYPE: DType = DType::IQ4_XS;
    const BLOCKS: usize = 8;
    const INTEGERS: bool = true;
    const BITS: u32 = 8;
    const WORDS: &[usize] = &[0, 4];
    const NIBBLES: Option<usize> = Some(8);
    const TABLE: Option<[u8; 16]> = Some(UNEVEN);

    #[inline(always)]
    fn integers<S: Set>(s: S, unit: &[u8; 136]) -> [[u8; 16]; 2] {
        const ORDER: [u8; 16] = [0, 4, 1, 5, 2, 6, 3, 7, 0, 4, 1, 5, 2, 6, 3, 7];
        let word = |at| u32::from_le_bytes(*part(unit, at));
        let (upper, lower) = (word(0) >> 16, word(4));
        // Two bits of every second number, as upper bits of bytes.
        let spread = |bits: u32| {
            let two = (bits | bits << 8) & 0x0033_0033;
            (two << 4 | two << 8) & 0x3030_3030
        };
        let even = lower & 0x0f0f_0f0f | spread(upper & 0x3333);
        let odd = lower >> 4 & 0x0f0f_0f0f | spread(upper >> 2 & 0x3333);
        let mut all = s.lookup(&bytemuck::cast([even, odd, 0, 0]), bytemuck::cast([ORDER; 2]));
        for x in &mut all {
            *x = x.wrapping_sub(32);
        }
        bytemuck::cast(all)
    }

    /// Numbers of six bits less 32: two bits of each in one half of a word, the other four in another word.
    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Scaling) -> [Eight; 2] {
        let ([by, _], [upper, lower, ..]) = (facts.factors, facts.words);
        let mut all = [0; EIGHT];
        for i in 0..EIGHT {
            let scale = lower[i] >> (4 * BLOCK) & 15 | (upper[i] >> (16 + 2 * BLOCK) & 3) << 4;
            all[i] = scale.cast_signed() - 32;
        }
        [times(all, by), [0.0; EIGHT]]
    }
}

impl Type for MxFp4 {
    type Unit = [u8; 17];

    const DTYPE: DType = DType::MXFP4;
    const BITS: u32 = 5;
    const OFFSET: i32 = 12;
    const NIBBLES: Option<usize> = Some(1);
    const TABLE: Option<[u8; 16]> = Some(E2M1);

    /// A power of two, halved since numbers are doubled; the two smallest are subnormal.
    #[inline(always)]
    fn facts<S: Set>(_: S, units: [&[u8; 17]; EIGHT]) -> Scaling {
        let mut all = Scaling::default();
        for (to, unit) in all.factors[0].iter_mut().zip(units) {
            let e = u32::from(unit[0]);
            *to = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
        }
        all
    }
}
