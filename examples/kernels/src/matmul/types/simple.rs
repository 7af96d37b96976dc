//! Types of one block with one scale.

use ggml::DType;

use super::super::set::Set;
use super::{EIGHT, Eight, Type, half, nibbles, nibbles_of_two, part};

pub(crate) struct Q8_0;
pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;

impl Type for Q8_0 {
    type Unit = [u8; 34];
    type Facts = Eight;

    const DTYPE: DType = DType::Q8_0;
    const BLOCKS: usize = 1;
    const BITS: u32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 34]) -> [u8; 32] {
        *part(unit, 2)
    }

    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&[u8; 34]; EIGHT]) -> Eight {
        half(s, units, 0)
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Eight) -> [Eight; 2] {
        [*facts, [0.0; EIGHT]]
    }
}

impl Type for Q4_0 {
    type Unit = [u8; 18];
    type Facts = Eight;

    const DTYPE: DType = DType::Q4_0;
    const BLOCKS: usize = 1;
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 18]) -> [u8; 32] {
        nibbles(part(unit, 2))
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
    fn pair<S: Set, const BLOCK: usize>(_: S, [a, b]: [&[u8; 18]; 2]) -> [[u8; 32]; 2] {
        nibbles_of_two([part(a, 2), part(b, 2)])
    }
}

impl Type for Q4_1 {
    type Unit = [u8; 20];
    type Facts = [Eight; 2];

    const DTYPE: DType = DType::Q4_1;
    const BLOCKS: usize = 1;
    const BITS: u32 = 4;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 20]) -> [u8; 32] {
        nibbles(part(unit, 4))
    }

    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&[u8; 20]; EIGHT]) -> [Eight; 2] {
        [half(s, units, 0), half(s, units, 2).map(|x| -x)] // it is added
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &[Eight; 2]) -> [Eight; 2] {
        *facts
    }

    #[inline(always)]
    fn pair<S: Set, const BLOCK: usize>(_: S, [a, b]: [&[u8; 20]; 2]) -> [[u8; 32]; 2] {
        nibbles_of_two([part(a, 4), part(b, 4)])
    }
}

impl Type for Q5_0 {
    type Unit = [u8; 22];
    type Facts = Eight;

    const DTYPE: DType = DType::Q5_0;
    const BLOCKS: usize = 1;
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;

    #[inline(always)]
    fn numbers<S: Set, const BLOCK: usize>(_: S, unit: &[u8; 22]) -> [u8; 32] {
        let mut all = nibbles(part(unit, 6));
        let fifth: &[u8; 4] = part(unit, 2);
        for (i, x) in all.iter_mut().enumerate() {
            *x |= u8::from(fifth[i / 8] & 1 << (i % 8) != 0) << 4;
        }
        all
    }

    #[inline(always)]
    fn facts<S: Set>(s: S, units: [&[u8; 22]; EIGHT]) -> Eight {
        half(s, units, 0)
    }

    #[inline(always)]
    fn scales<const BLOCK: usize>(facts: &Eight) -> [Eight; 2] {
        [*facts, [0.0; EIGHT]]
    }
}
