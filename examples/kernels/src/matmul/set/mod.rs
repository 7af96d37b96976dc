//! Instruction sets: how a few columns times a few rows are summed. Loops and types are written for any of them.

#[cfg(target_arch = "x86_64")]
mod avx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod choice;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;

use bytemuck::Pod;
use ggml::ops::CustomOp;
use pulp::NullaryFnOnce;

pub use choice::describe;
#[cfg(test)]
pub(crate) use choice::levels;
pub(crate) use choice::{Level, level, with_set};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{DOTPROD, I8MM, NEON, Neon};
pub(crate) use plain::Plain;
#[cfg(target_arch = "x86_64")]
pub(crate) use {
    avx::{Avx, NONE, VEX},
    avx512::Avx512,
};

use super::Out;
use super::activations::{self, BLOCK, Block};
use super::few_rows::FewRows;
use super::panel::{self, Quad};
use super::types::Type;

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
    const LANES: usize;
    /// Whether [`Set::dot`] can take signed weights. Otherwise 128 is added to those of 8 bits.
    const SIGNED: bool;
    /// The blocks of a panel whose columns are multiplied while they are in the nearest cache.
    const DEEP: usize;
    /// Whether [`Set::dot_flipped`] differs from [`Set::dot`].
    const FLIPS: bool = false;
    /// Whether [`Set::add`] takes an even number of rows.
    const PAIRS: bool = false;

    /// Runs a function that is compiled for the instructions.
    fn run<O: NullaryFnOnce>(self, op: O) -> O::Output;
    /// The set for a block.
    fn short(self) -> Self::Short;

    /// The number with these bits of an `f16`.
    fn half(self, bits: u16) -> f32;
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
    /// `c - a b`.
    fn mul_sub(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The sum of all lanes.
    fn sum(self, x: Self::Floats) -> f32;

    /// How many products of weights of so many bits [`Set::dot`] adds, before [`Set::end`] must be called.
    fn most(bits: u32) -> usize;
    /// What products are added to, after `sums` of earlier ones.
    fn begin(self, sums: Self::Ints) -> Self::Ints;
    /// Adds the products of four weights and four signed bytes in each lane. Weights are signed, or below `2^bits`.
    fn dot(self, bits: u32, to: Self::Ints, weights: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// The same, but with `-1 - x` for `x` where weights of 8 bits are negative, which takes one instruction less. The sums of
    /// [`Set::negatives`] make up for it.
    #[inline(always)]
    fn dot_flipped(self, bits: u32, to: Self::Ints, weights: Self::Ints, x: Self::Ints) -> Self::Ints {
        self.dot(bits, to, weights, x)
    }
    /// The sum of the sizes of all negative bytes.
    #[inline(always)]
    fn negatives(self, bytes: Self::Ints) -> i32 {
        bytemuck::bytes_of(&bytes).iter().map(|&x| -i32::from(x.cast_signed().min(0))).sum()
    }
    /// `x`, computed before what follows in the source. If the compiler takes another order, registers are too few.
    #[inline(always)]
    fn in_turn(self, x: Self::Ints) -> Self::Ints {
        x
    }
    /// The earlier sums and the products.
    fn end(self, sums: Self::Ints, products: Self::Ints) -> Self::Ints;
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
    /// The first half of a block twice, and the second half.
    #[inline(always)]
    fn twice(self, numbers: &[i8; BLOCK]) -> [Self::Ints; 2] {
        let numbers = bytemuck::pod_read_unaligned(bytemuck::bytes_of(numbers));
        self.pair(numbers, numbers)
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
    /// From columns to rows.
    fn transpose(self, square: Self::Square) -> Self::Square;

    /// Columns of a block from rows, four numbers of each after the other, as [`Set::add`] takes them.
    #[inline(always)]
    fn quads(self, square: Self::Square) -> Self::Square {
        self.transpose(square)
    }
    /// Adds the products of some quads of a panel, in its vectors from `V * at` on, and of as many in rows of activations.
    #[inline(always)]
    fn add<const R: usize, const V: usize, const Q: usize>(
        self,
        bits: u32,
        quads: &[Quad; Q],
        at: usize,
        x: [&[[u8; 4]; Q]; R],
        sums: &mut [[Self::Ints; V]; R],
    ) {
        panel::add(self, bits, quads, at, x, sums);
    }

    /// Rounds values to a block; with the sum of its first half, where halves have scales of their own.
    #[inline(always)]
    fn quantise(self, from: &[f32; BLOCK], halves: usize, to: &mut Block) {
        activations::plain(from, halves, to);
    }

    /// Fetches the cache line of what lies so many bytes behind.
    fn fetch<T>(self, at: &T, ahead: usize);

    /// Up to so many rows of activations, the matrix is not unpacked.
    fn few<T: Type>(self) -> usize {
        8
    }

    /// Computes the products of few rows, if there is a function for the type that does it faster than [`super::blocks`].
    fn multiply_few<T: Type>(self, _: &mut Out<'_>, _: &FewRows<'_>) -> bool {
        false
    }

    /// The operation for matrices of `f16` by tiles, if the set has them.
    fn tiles_operation(self) -> Option<CustomOp<f32>> {
        None
    }
}
