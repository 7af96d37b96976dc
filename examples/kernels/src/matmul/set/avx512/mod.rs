//! AVX-512 with VNNI.

#![expect(clippy::incompatible_msrv, reason = "the library needs Rust 1.88, this crate 1.89")]

mod transpose;

use std::arch::asm;
use std::arch::x86_64::{__m512, __m512i, _mm512_dpbusd_epi32};

use super::Set;
use super::avx::AvxEvex;

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
/// Values exist only where the processor has what [`Instructions`] names, and what [`AvxEvex`] has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512 {
    has: Instructions,
    short: AvxEvex,
}

impl Avx512 {
    /// If the processor has it.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { has: Instructions::try_new()?, short: AvxEvex::new()? })
    }
}

#[target_feature(enable = "avx,avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn run<R>(op: impl FnOnce() -> R) -> R {
    super::align_stack();
    op()
}

/// Keeps the order of what is computed.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_turn(mut x: __m512i) -> __m512i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(zmm_reg) x, options(nomem, nostack, preserves_flags)) };
    x
}

/// [`Set::words`]. (LLVM would compute sum after sum, by two instructions.)
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn words(mut to: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the processor has the instruction (the target feature).
    unsafe {
        asm!("vpdpwssd {}, {}, {}", inout(zmm_reg) to, in(zmm_reg) a, in(zmm_reg) b,
            options(nomem, nostack, preserves_flags));
    }
    to
}

impl Set for Avx512 {
    type Ints = __m512i;
    type Floats = __m512;
    type Bytes2 = [u8; 32];
    type Bytes4 = [u8; 64];
    type Square = [__m512i; 16];
    type Short = AvxEvex;

    /// The second cache is read as fast as a panel is multiplied.
    const DEEP: usize = usize::MAX;
    const WORDS: bool = true;

    #[inline(always)]
    fn run<R>(self, op: impl FnOnce() -> R) -> R {
        // SAFETY: the processor has the target features (the type's invariant).
        unsafe { run(op) }
    }

    #[inline(always)]
    fn short(self) -> AvxEvex {
        self.short
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 32]) -> __m512 {
        self.has.avx512f._mm512_cvtph_ps(bytemuck::cast(*bytes))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32] {
        self.short.lookup(table, at)
    }

    super::instructions! {
        ints(x: i32) -> __m512i = has.avx512f._mm512_set1_epi32;
        floats(x: f32) -> __m512 = has.avx512f._mm512_set1_ps;
        convert(x: __m512i) -> __m512 = has.avx512f._mm512_cvtepi32_ps;
        mul(a: __m512, b: __m512) -> __m512 = has.avx512f._mm512_mul_ps;
        mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = has.avx512f._mm512_fmadd_ps;
        sum(x: __m512) -> f32 = has.avx512f._mm512_reduce_add_ps;
    }

    #[inline(always)]
    fn dot(self, to: __m512i, weights: __m512i, x: __m512i) -> __m512i {
        // SAFETY: the processor has the instruction (the type's invariant).
        unsafe { _mm512_dpbusd_epi32(to, weights, x) }
    }

    #[inline(always)]
    fn words(self, to: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the processor has the target features (the type's invariant).
        unsafe { words(to, a, b) }
    }

    #[inline(always)]
    fn in_turn(self, x: __m512i) -> __m512i {
        // SAFETY: the processor has the target feature (the type's invariant).
        unsafe { in_turn(x) }
    }

    #[inline(always)]
    fn transpose(self, square: [__m512i; 16]) -> [__m512i; 16] {
        // SAFETY: the processor has the target features (the type's invariant).
        unsafe { transpose::transpose(&square) }
    }

    #[inline(always)]
    fn fetch<T>(self, at: &T, ahead: usize) {
        self.short.fetch(at, ahead);
    }
}
