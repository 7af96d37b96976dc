//! Types whose numbers are indices of a table.

use ggml::DType;

use super::super::set::Set;
use super::{Integers, Type, less, words};

pub(crate) struct Iq4Nl;
pub(crate) struct Iq4Xs;
pub(crate) struct MxFp4;

/// Those of `iq4_nl`.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of four bits with one bit of fraction (E2M1), plus 12.
const E2M1: [i8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl Type for Iq4Nl {
    type Unit = [u8; 18];

    const DTYPE: DType = DType::IQ4_NL;
    const BITS: u32 = 8;
    const NIBBLES: Option<usize> = Some(2);
    const TABLE: Option<[i8; 16]> = Some(UNEVEN);
}

impl Type for Iq4Xs {
    type Unit = [u8; 136];

    const DTYPE: DType = DType::IQ4_XS;
    const BLOCKS: usize = 8;
    const BITS: u32 = 8;
    const NIBBLES: Option<usize> = Some(8);
    const TABLE: Option<[i8; 16]> = Some(UNEVEN);

    /// Numbers of six bits less 32: four bits of each in one word, two in half of another.
    #[inline(always)]
    fn integers<S: Set, const N: usize>(_: S, units: [&[u8; 136]; N]) -> Integers<N> {
        let (upper, lower) = (words(units, 0), words(units, 4));
        let mut all = [[[0; N]; 2]; 2];
        for (half, to) in all[0].iter_mut().enumerate() {
            for i in 0..N {
                let (four, two) = (lower[i] >> (16 * half) & 0xffff, upper[i] >> (16 + 8 * half) & 0xff);
                let [four, two] = [(four | four << 8) & 0x00ff_00ff, (two | two << 12) & 0x000f_000f];
                let [four, two] = [(four | four << 4) & 0x0f0f_0f0f, (two | two << 6) & 0x0303_0303];
                to[i] = less(four | two << 4, 0x2020_2020);
            }
        }
        all
    }
}

impl Type for MxFp4 {
    type Unit = [u8; 17];

    const DTYPE: DType = DType::MXFP4;
    const BITS: u32 = 5;
    const OFFSET: i32 = 12;
    const NIBBLES: Option<usize> = Some(1);
    const TABLE: Option<[i8; 16]> = Some(E2M1);

    /// A power of two, halved since numbers are doubled; the two smallest are subnormal.
    #[inline(always)]
    fn factors<S: Set>(_: S, unit: &[u8; 17]) -> [f32; 2] {
        let e = u32::from(unit[0]);
        [f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 }), 0.0]
    }
}
