//! Instruction sets: how a few columns times a few rows are summed. Loops and types are written for any of them.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod choice;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod plain;

use bytemuck::{Pod, Zeroable};

pub use choice::describe;
pub(crate) use choice::{Level, level, with_set};

use super::Out;
use super::activations::BLOCK;
use super::panel::{self, Panel};
use super::products::Group;
use super::types::Type;

/// Evaluates an expression, compiled for the instructions of a set, from what it uses by value. Functions that it calls must be
/// `#[inline(always)]`, as the closure here is: what is not inlined is not compiled for them.
macro_rules! compiled {
    ($s:expr, $f:expr) => {
        $s.run(
            #[inline(always)]
            move || $f,
        )
    };
}
pub(crate) use compiled;

/// Functions of a [`Set`] that are an instruction each, which a field of the set has.
#[cfg(target_arch = "x86_64")]
macro_rules! instructions {
    ($($name:ident($($x:ident: $of:ty),*) -> $to:ty = $($field:tt).+;)*) => {
        $(#[inline(always)]
        fn $name(self, $($x: $of),*) -> $to {
            self.$($field).+($($x),*)
        })*
    };
}
#[cfg(target_arch = "x86_64")]
use instructions;

/// Aligns the stack of the function that this is inlined to. Otherwise, vectors for which registers are too few may be stored across
/// cache lines, or across pages, which takes longer than a block of a panel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn align_stack() {
    #[repr(align(64))]
    struct Line {
        _bytes: [u8; 64],
    }
    let line = std::mem::MaybeUninit::<Line>::uninit();
    // SAFETY: no instruction at all.
    unsafe { std::arch::asm!("/* {} */", in(reg) &raw const line, options(nostack, readonly, preserves_flags)) };
}

/// The instructions of a processor. A value shows that the processor has them.
pub(crate) trait Set: Copy + Send + Sync + 'static {
    /// A vector of integers, or of four bytes in each lane.
    type Ints: Pod;
    /// A vector of floats, as many.
    type Floats: Pod;
    /// The bytes of as many numbers of 16 bits.
    type Bytes2: Pod;
    /// The bytes of as many numbers of 32 bits.
    type Bytes4: Pod;
    /// As many vectors of integers as one has lanes.
    type Square: Pod;
    /// The set for a block of 32 bytes, whose vectors have 8 lanes.
    type Short: Set;

    /// The lanes of a vector.
    const LANES: usize = size_of::<Self::Floats>() / size_of::<f32>();
    /// Whether [`Set::dot`] can take signed weights. Otherwise 128 is added to those of 8 bits.
    const SIGNED: bool = false;
    /// The blocks of a panel whose columns are multiplied while they are in the nearest cache.
    const DEEP: usize;
    /// Whether [`Set::dot`] sums to 16 bits.
    const NARROW: bool = false;
    /// Whether [`Set::words`] takes the place of products of floats, which is faster, or, in plain Rust, tests it.
    const WORDS: bool = false;
    /// Whether [`Set::add`] takes an even number of rows.
    const PAIRS: bool = false;

    /// Runs a function that is compiled for the instructions: see [`compiled`].
    #[inline(always)]
    fn run<R>(self, op: impl FnOnce() -> R) -> R {
        op()
    }
    /// The set for a block.
    fn short(self) -> Self::Short;

    /// The number with these bits of an `f16`.
    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        let mut bytes = Self::Bytes2::zeroed();
        bytemuck::bytes_of_mut(&mut bytes)[..2].copy_from_slice(&bits.to_le_bytes());
        let numbers = self.halves(&bytes);
        bytemuck::cast_slice(std::slice::from_ref(&numbers))[0]
    }
    /// Numbers from bytes of `f16`.
    fn halves(self, bytes: &Self::Bytes2) -> Self::Floats;
    /// Entries of a table, whose indices are below 16.
    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32];

    /// The number in each lane.
    fn ints(self, x: i32) -> Self::Ints;
    /// The number in each lane.
    fn floats(self, x: f32) -> Self::Floats;
    /// Integers as floats.
    fn convert(self, x: Self::Ints) -> Self::Floats;
    /// `a b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a b + c`.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The sum of all lanes.
    fn sum(self, x: Self::Floats) -> f32;

    /// How many products of weights of so many bits [`Set::dot`] adds, before [`Set::end`] must be called.
    #[inline(always)]
    fn most(_: u32) -> usize {
        8
    }
    /// What products are added to, after `sums` of earlier ones.
    #[inline(always)]
    fn begin(self, sums: Self::Ints) -> Self::Ints {
        sums
    }
    /// Adds the products of four weights and four signed bytes in each lane. Weights are signed, or below `2^bits`.
    fn dot(self, to: Self::Ints, weights: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// Adds the products of the two integers of 16 bits in each lane.
    #[inline(always)]
    fn words(self, mut to: Self::Ints, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        let sums: &mut [i32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut to));
        let [a, b]: [&[i16]; 2] = [&a, &b].map(|x| bytemuck::cast_slice(std::slice::from_ref(x)));
        for ((sum, a), b) in sums.iter_mut().zip(a.as_chunks::<2>().0).zip(b.as_chunks::<2>().0) {
            *sum += i32::from(a[0]) * i32::from(b[0]) + i32::from(a[1]) * i32::from(b[1]);
        }
        to
    }
    /// The sums of the signed bytes in each half, of a vector of 8 lanes.
    #[inline(always)]
    fn sums_of_bytes(self, bytes: Self::Ints) -> [i32; 2] {
        let zero = self.ints(0);
        let fours = self.end(zero, self.dot(self.begin(zero), self.ints(0x0101_0101), bytes), self.ones());
        let sums = self.eight(zero, [fours; 4]);
        let sums: &[i32] = bytemuck::cast_slice(std::slice::from_ref(&sums));
        [sums[0], sums[4]]
    }
    /// `x`, computed before what follows in the source. If the compiler takes another order, registers are too few.
    #[inline(always)]
    fn in_turn(self, x: Self::Ints) -> Self::Ints {
        x
    }
    /// The earlier sums and the products. Those of 16 bits are multiplied by others before, and added in pairs.
    #[inline(always)]
    fn end(self, _: Self::Ints, products: Self::Ints, _by: Self::Ints) -> Self::Ints {
        products
    }
    /// 1 for [`Set::end`].
    #[inline(always)]
    fn ones(self) -> Self::Ints {
        self.ints(0x1_0001)
    }
    /// The first or the second 16 bits of each lane, twice; only where products have as many.
    #[inline(always)]
    fn both<const HALF: usize>(self, x: Self::Ints) -> Self::Ints {
        x
    }
    /// The first halves of two vectors, and the second ones.
    #[inline(always)]
    fn pair(self, a: Self::Ints, b: Self::Ints) -> [Self::Ints; 2] {
        let mut all = [a, b];
        let bytes = size_of::<Self::Ints>() / 2;
        let halves: &mut [u8] = bytemuck::cast_slice_mut(&mut all);
        let (first, second) = halves.split_at_mut(2 * bytes);
        first[bytes..].swap_with_slice(&mut second[..bytes]);
        all
    }
    /// The sums of the lanes of the first halves of four vectors, then those of the second ones, plus `start`.
    #[inline(always)]
    fn eight(self, start: Self::Ints, all: [Self::Ints; 4]) -> Self::Ints {
        let mut sums = start;
        let lanes: &mut [i32] = bytemuck::cast_slice_mut(std::slice::from_mut(&mut sums));
        let halves: &[i32] = bytemuck::cast_slice(&all);
        for (i, half) in halves.chunks_exact(lanes.len() / 2).enumerate() {
            lanes[i / 2 + i % 2 * 4] += half.iter().sum::<i32>();
        }
        sums
    }
    /// The lower halves of bytes, and the upper ones.
    #[inline(always)]
    fn nibbles(self, x: Self::Ints) -> [Self::Ints; 2] {
        let mut all = [x; 2];
        let [low, high]: [&mut [u32]; 2] = all.each_mut().map(|x| bytemuck::cast_slice_mut(std::slice::from_mut(x)));
        for (low, high) in low.iter_mut().zip(high) {
            (*low, *high) = (*low & 0x0f0f_0f0f, *high >> 4 & 0x0f0f_0f0f);
        }
        all
    }
    /// The lanes of four vectors, in each half: the first ones, the second ones and so on.
    #[inline(always)]
    fn fours(self, all: [Self::Ints; 4]) -> [Self::Ints; 4] {
        let mut turned = all;
        let (from, to): (&[i32], &mut [i32]) = (bytemuck::cast_slice(&all), bytemuck::cast_slice_mut(&mut turned));
        for (i, x) in from.iter().enumerate() {
            let (vector, half, lane) = (i / 8, i / 4 % 2, i % 4);
            to[8 * lane + 4 * half + vector] = *x;
        }
        turned
    }
    /// From columns to rows, of vectors of 8 lanes.
    #[inline(always)]
    fn transpose(self, square: Self::Square) -> Self::Square {
        let [a, b, c, d, e, f, g, h]: [Self::Ints; 8] = bytemuck::cast(square);
        let [[a, e], [b, f], [c, g], [d, h]] = [self.pair(a, e), self.pair(b, f), self.pair(c, g), self.pair(d, h)];
        bytemuck::cast([self.fours([a, b, c, d]), self.fours([e, f, g, h])])
    }

    /// Four numbers of each column in a vector as [`Set::add`] takes them.
    #[inline(always)]
    fn quads(self, quads: [Self::Ints; 8]) -> [Self::Ints; 8] {
        quads
    }
    /// Adds the products of `Q` quads, a part of a panel's block, in vectors from `V * at` on, and of as many in rows of activations.
    #[inline(always)]
    fn add<const R: usize, const V: usize, const Q: usize>(
        self,
        bits: u32,
        (block, part, at): (&Panel, usize, usize),
        x: [&[[u8; 4]; Q]; R],
        sums: &mut [[Self::Ints; V]; R],
    ) {
        panel::add(self, bits, (block, part, at), [self.ones(); V], x, sums);
    }

    /// Numbers times a factor as the nearest integers, which bytes must hold.
    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are the number")]
    #[inline(always)]
    fn round(self, from: &[f32; BLOCK], by: f32) -> [i8; BLOCK] {
        let mut all = [0; BLOCK];
        for (to, x) in all.iter_mut().zip(from) {
            *to = (x * by + crate::math::WHOLE).to_bits() as i8;
        }
        all
    }

    /// Fetches the cache line of what lies so many bytes behind, to the second cache: there is room for more than is used at once.
    #[inline(always)]
    fn fetch<T>(self, _at: &T, _ahead: usize) {}

    /// Computes the products of few rows, if there is a function for the type that does it faster than [`super::blocks`].
    fn multiply_few<T: Type>(self, _: &mut Out<'_>, _: &Group<'_>) -> bool {
        false
    }
}
