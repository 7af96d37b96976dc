//! AVX-512 with VNNI, and tiles (AMX).

#![expect(clippy::incompatible_msrv, reason = "the library needs Rust 1.88, this crate 1.89")]

mod amx;
mod tiled;
mod transpose;

use std::arch::asm;
use std::arch::x86_64::{__m512, __m512i, _mm512_dpbusd_epi32};
use std::cell::RefCell;

use ggml::DType;
use ggml::ops::{CustomOp, CustomOptions};
use pulp::NullaryFnOnce;

use super::Set;
use super::avx::{Avx, EVEX};
use crate::matmul::Out;
use crate::matmul::activations::{BLOCK, Block};
use crate::matmul::few_rows::FewRows;
use crate::matmul::float_rows::FEW;
use crate::matmul::floats::{self, F16};
use crate::matmul::types::Type;
pub(super) use amx::any as has_tiles;

pulp::simd_type! {
    /// The instructions.
    struct Instructions {
        avx512f: "avx512f",
        avx512bw: "avx512bw",
        avx512dq: "avx512dq",
        avx512vl: "avx512vl",
        avx512vnni: "avx512vnni",
        f16c: "f16c",
    }
}

/// # Invariants
///
/// Values exist only where the processor has what [`Instructions`] names, and what [`Avx`] has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512 {
    has: Instructions,
    short: Avx<EVEX>,
}

impl Avx512 {
    /// If the processor has it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { has: Instructions::try_new()?, short: Avx::new()? })
    }
}

#[target_feature(enable = "avx,avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn run<O: NullaryFnOnce>(op: O) -> O::Output {
    op.call()
}

/// Keeps the order of what is computed.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_turn(mut x: __m512i) -> __m512i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(zmm_reg) x, options(nomem, nostack, preserves_flags)) };
    x
}

impl Set for Avx512 {
    type Ints = __m512i;
    type Floats = __m512;
    type Bytes2 = [u8; 32];
    type Bytes4 = [u8; 64];
    type Square = [__m512i; 16];
    type Short = Avx<EVEX>;

    const LANES: usize = 16;
    const SIGNED: bool = false;
    /// The second cache is read as fast as a panel is multiplied.
    const DEEP: usize = usize::MAX;

    #[inline(always)]
    fn run<O: NullaryFnOnce>(self, op: O) -> O::Output {
        // SAFETY: the processor has the target features (the type's invariant).
        unsafe { run(op) }
    }

    #[inline(always)]
    fn short(self) -> Avx<EVEX> {
        self.short
    }

    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        self.short.half(bits)
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 32]) -> __m512 {
        self.has.avx512f._mm512_cvtph_ps(bytemuck::cast(*bytes))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32] {
        self.short.lookup(table, at)
    }

    #[inline(always)]
    fn ints(self, x: i32) -> __m512i {
        self.has.avx512f._mm512_set1_epi32(x)
    }

    #[inline(always)]
    fn floats(self, x: f32) -> __m512 {
        self.has.avx512f._mm512_set1_ps(x)
    }

    #[inline(always)]
    fn convert(self, x: __m512i) -> __m512 {
        self.has.avx512f._mm512_cvtepi32_ps(x)
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        self.has.avx512f._mm512_mul_ps(a, b)
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.has.avx512f._mm512_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    fn mul_sub(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.has.avx512f._mm512_fnmadd_ps(a, b, c)
    }

    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        self.has.avx512f._mm512_reduce_add_ps(x)
    }

    #[inline(always)]
    fn most(_: u32) -> usize {
        8
    }

    #[inline(always)]
    fn begin(self, sums: __m512i) -> __m512i {
        sums
    }

    #[inline(always)]
    fn dot(self, _: u32, to: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        // SAFETY: the processor has the instruction (the type's invariant).
        unsafe { _mm512_dpbusd_epi32(to, weights, x) }
    }

    #[inline(always)]
    fn in_turn(self, x: __m512i) -> __m512i {
        // SAFETY: the processor has the target feature (the type's invariant).
        unsafe { in_turn(x) }
    }

    #[inline(always)]
    fn end(self, _: __m512i, products: __m512i) -> __m512i {
        products
    }

    #[inline(always)]
    fn transpose(self, square: [__m512i; 16]) -> [__m512i; 16] {
        // SAFETY: the processor has the target features (the type's invariant).
        bytemuck::cast(unsafe { transpose::transpose(&bytemuck::cast(square)) })
    }

    #[inline(always)]
    fn fetch<T>(self, at: &T, ahead: usize) {
        self.short.fetch(at, ahead);
    }

    #[inline(always)]
    fn quantise(self, from: &[f32; BLOCK], halves: usize, to: &mut Block) {
        let f = self.has.avx512f;
        let [a, b]: [__m512; 2] = bytemuck::cast(*from);
        // The order of sizes is that of their bits; that of a NaN is above all.
        let mask = f._mm512_set1_epi32(i32::MAX);
        let sizes = [f._mm512_and_si512(bytemuck::cast(a), mask), f._mm512_and_si512(bytemuck::cast(b), mask)];
        let largest = f32::from_bits(f._mm512_reduce_max_epu32(f._mm512_max_epu32(sizes[0], sizes[1])));
        let by = f._mm512_set1_ps(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let [a, b] = [f._mm512_cvtps_epi32(f._mm512_mul_ps(a, by)), f._mm512_cvtps_epi32(f._mm512_mul_ps(b, by))];
        to.numbers = bytemuck::cast([f._mm512_cvtepi32_epi8(a), f._mm512_cvtepi32_epi8(b)]);
        to.sum = f._mm512_reduce_add_epi32(f._mm512_add_epi32(a, b));
        to.first = if halves == 1 { 0 } else { f._mm512_reduce_add_epi32(a) };
        to.finish(largest);
    }

    #[inline(always)]
    fn few<T: Type>(self) -> usize {
        // As measured: these are unpacked fast.
        if matches!(T::DTYPE, DType::Q4_0) { 4 } else { 8 }
    }

    fn multiply_few<T: Type>(self, out: &mut Out<'_>, few: &FewRows<'_>) -> bool {
        self.short.multiply_few::<T>(out, few)
    }

    fn tiles_operation(self) -> Option<CustomOp<f32>> {
        Some(tiles_operation(self))
    }
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static TILES: RefCell<tiled::AmxScratch> = RefCell::default();
}

/// The operation for matrices of `f16` by tiles.
fn tiles_operation(s: Avx512) -> CustomOp<f32> {
    CustomOp::new(CustomOptions::new().with_split(1), move |out, operands| {
        let [_, _, rows, _] = out.shape();
        let out = Out::new(out);
        // Steps are not worth configuring tiles.
        if let Some(tiles) = (rows > FEW).then(amx::AmxTiles::new).flatten() {
            TILES.with_borrow_mut(|scratch| {
                // SAFETY: the processor has the target features, as `s` shows.
                unsafe { tiled::multiply(s, &tiles, out, &operands, scratch) }
            });
        } else {
            floats::multiply::<_, F16>(s, out, &operands);
        }
    })
}
