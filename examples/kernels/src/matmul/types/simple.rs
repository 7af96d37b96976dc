//! Types of one block with one scale.

use ggml::DType;

use super::{Type, nibbles, part};

pub(crate) struct Q8_0;
/// Two blocks of [`Q8_0`], whose scales were made small integers: see [`super::super::panel::join_scales`].
pub(crate) struct TwoQ8_0;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;

impl Type for Q8_0 {
    type Unit = [u8; 34];

    const DTYPE: DType = DType::Q8_0;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<const BLOCK: usize>(unit: &[u8; 34]) -> [u8; 32] {
        *part(unit, 2)
    }
}

impl Type for TwoQ8_0 {
    type Unit = [u8; 68];

    const DTYPE: DType = DType::Q8_0;
    const BLOCKS: usize = 2;
    const BITS: u32 = 8;
    const FETCHED: bool = false;
}

impl Type for Q4_0 {
    type Unit = [u8; 18];

    const DTYPE: DType = DType::Q4_0;
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
    const NIBBLES: Option<usize> = Some(2);
}

impl Type for Q4_1 {
    type Unit = [u8; 20];

    const DTYPE: DType = DType::Q4_1;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;
    const NIBBLES: Option<usize> = Some(4);
}

impl Type for Q5_0 {
    type Unit = [u8; 22];

    const DTYPE: DType = DType::Q5_0;
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;

    #[inline(always)]
    fn numbers<const BLOCK: usize>(unit: &[u8; 22]) -> [u8; 32] {
        let mut all = nibbles(part(unit, 6));
        let fifth: &[u8; 4] = part(unit, 2);
        for (i, x) in all.iter_mut().enumerate() {
            *x |= u8::from(fifth[i / 8] & 1 << (i % 8) != 0) << 4;
        }
        all
    }
}
