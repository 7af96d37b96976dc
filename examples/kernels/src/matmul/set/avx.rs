//! Vectors of 256 bits: AVX2 with FMA and F16C, and VNNI.

#![expect(clippy::incompatible_msrv, reason = "the library needs Rust 1.88, this crate 1.89")]

mod few;

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T1, _mm_prefetch, _mm256_cvtph_ps, _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32,
    _mm256_dpwssd_epi32,
};

use bytemuck::Zeroable;

use super::Set;
use crate::matmul::Out;
use crate::matmul::activations::BLOCK;
use crate::matmul::floats::FEW;
use crate::matmul::products::Group;
use crate::matmul::types::Type;

pulp::simd_type! {
    /// What all of them have.
    struct Common {
        sse: "sse",
        avx: "avx",
        avx2: "avx2",
        fma: "fma",
        f16c: "f16c",
    }
}

/// No VNNI.
const NONE: u8 = 0;
/// That of processors without AVX-512.
const VEX: u8 = 1;
/// That of AVX-512.
const EVEX: u8 = 2;

pub(crate) type Avx2 = Avx<NONE>;
pub(crate) type AvxVnni = Avx<VEX>;
pub(super) type AvxEvex = Avx<EVEX>;

/// # Invariants
///
/// Values exist only where the processor has what [`Common`] names, and the VNNI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx<const VNNI: u8>(Common);

impl<const VNNI: u8> Avx<VNNI> {
    /// If the processor has it.
    pub(crate) fn new() -> Option<Self> {
        let vnni = match VNNI {
            NONE => true,
            VEX => is_x86_feature_detected!("avxvnni"),
            _ => is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512vnni"),
        };
        Common::try_new().filter(|_| vnni).map(Self)
    }
}

#[target_feature(enable = "avx,avx2,fma,f16c")]
fn run<R>(op: impl FnOnce() -> R) -> R {
    super::align_stack();
    op()
}

#[target_feature(enable = "avx,avx2,fma,f16c,avxvnni")]
fn run_vex<R>(op: impl FnOnce() -> R) -> R {
    super::align_stack();
    op()
}

#[target_feature(enable = "avx,avx2,fma,f16c,avx512vl,avx512vnni")]
fn run_evex<R>(op: impl FnOnce() -> R) -> R {
    super::align_stack();
    op()
}

/// Keeps the order of what is computed.
#[inline]
#[target_feature(enable = "avx")]
fn in_turn(mut x: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) };
    x
}

/// [`Set::words`]. (LLVM would compute sum after sum, by two instructions.)
#[inline]
#[target_feature(enable = "avx,avxvnni")]
fn words(mut to: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the processor has the instruction (the target feature).
    unsafe {
        asm!("{{vex}} vpdpwssd {}, {}, {}", inout(ymm_reg) to, in(ymm_reg) a, in(ymm_reg) b,
            options(nomem, nostack, preserves_flags));
    }
    to
}

// Closures and `map` are not always inlined; what isn't, isn't compiled for the instructions.
impl<const VNNI: u8> Set for Avx<VNNI> {
    type Ints = __m256i;
    type Floats = __m256;
    type Bytes2 = [u8; 16];
    type Bytes4 = [u8; 32];
    type Square = [__m256i; 8];
    type Short = Self;

    const NARROW: bool = VNNI == NONE;
    const WORDS: bool = true;
    /// 256 numbers of a panel take 10 KiB, besides the rows that are multiplied.
    const DEEP: usize = 8;

    #[inline(always)]
    fn run<R>(self, op: impl FnOnce() -> R) -> R {
        match VNNI {
            // SAFETY: the processor has the target features (the type's invariant).
            NONE => unsafe { run(op) },
            // SAFETY: as above.
            VEX => unsafe { run_vex(op) },
            // SAFETY: as above.
            _ => unsafe { run_evex(op) },
        }
    }

    #[inline(always)]
    fn short(self) -> Self {
        self
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 16]) -> __m256 {
        // SAFETY: the processor has the instruction (the type's invariant).
        unsafe { _mm256_cvtph_ps(bytemuck::cast(*bytes)) }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32] {
        let table = self.0.avx2._mm256_broadcastsi128_si256(bytemuck::cast(*table));
        bytemuck::cast(self.0.avx2._mm256_shuffle_epi8(table, bytemuck::cast(at)))
    }

    super::instructions! {
        ints(x: i32) -> __m256i = 0.avx._mm256_set1_epi32;
        floats(x: f32) -> __m256 = 0.avx._mm256_set1_ps;
        convert(x: __m256i) -> __m256 = 0.avx._mm256_cvtepi32_ps;
        mul(a: __m256, b: __m256) -> __m256 = 0.avx._mm256_mul_ps;
        mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = 0.fma._mm256_fmadd_ps;
    }

    #[inline(always)]
    fn sum(self, x: __m256) -> f32 {
        let x: [f32; 8] = bytemuck::cast(x);
        let four = [x[0] + x[4], x[1] + x[5], x[2] + x[6], x[3] + x[7]];
        (four[0] + four[2]) + (four[1] + four[3])
    }

    /// Without VNNI, pairs of products are added in 16 bits: weights of 8 bits fill them.
    #[inline(always)]
    fn most(bits: u32) -> usize {
        if VNNI == NONE { 1 << (7 - bits.clamp(4, 7)) } else { 8 }
    }

    #[inline(always)]
    fn begin(self, sums: __m256i) -> __m256i {
        if VNNI == NONE { __m256i::zeroed() } else { sums }
    }

    #[inline(always)]
    fn dot(self, to: __m256i, weights: __m256i, x: __m256i) -> __m256i {
        let avx2 = self.0.avx2;
        match VNNI {
            NONE => avx2._mm256_add_epi16(to, avx2._mm256_maddubs_epi16(weights, x)),
            // SAFETY: the processor has the instruction (the type's invariant).
            VEX => unsafe { _mm256_dpbusd_avx_epi32(to, weights, x) },
            // SAFETY: as above.
            _ => unsafe { _mm256_dpbusd_epi32(to, weights, x) },
        }
    }

    #[inline(always)]
    fn words(self, to: __m256i, a: __m256i, b: __m256i) -> __m256i {
        match VNNI {
            NONE => self.end(to, a, b),
            // SAFETY: the processor has the target features (the type's invariant).
            VEX => unsafe { words(to, a, b) },
            // SAFETY: the processor has the instruction (the type's invariant).
            _ => unsafe { _mm256_dpwssd_epi32(to, a, b) },
        }
    }

    #[inline(always)]
    fn in_turn(self, x: __m256i) -> __m256i {
        match VNNI {
            // SAFETY: the processor has the target feature (the type's invariant).
            NONE => unsafe { in_turn(x) },
            _ => x,
        }
    }

    #[inline(always)]
    fn end(self, sums: __m256i, products: __m256i, by: __m256i) -> __m256i {
        if VNNI != NONE {
            return products;
        }
        self.in_turn(self.0.avx2._mm256_add_epi32(sums, self.0.avx2._mm256_madd_epi16(products, by)))
    }

    #[inline(always)]
    fn both<const HALF: usize>(self, x: __m256i) -> __m256i {
        const EACH: [u32; 4] = [0x0100_0100, 0x0504_0504, 0x0908_0908, 0x0d0c_0d0c];
        const ORDER: [[[u32; 4]; 2]; 2] = [[EACH; 2], [[0x0302_0302, 0x0706_0706, 0x0b0a_0b0a, 0x0f0e_0f0e]; 2]];
        self.0.avx2._mm256_shuffle_epi8(x, bytemuck::cast(ORDER[HALF]))
    }

    #[inline(always)]
    fn pair(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        let avx2 = self.0.avx2;
        [avx2._mm256_permute2x128_si256::<0x20>(a, b), avx2._mm256_permute2x128_si256::<0x31>(a, b)]
    }

    #[inline(always)]
    fn eight(self, start: __m256i, [a, b, c, d]: [__m256i; 4]) -> __m256i {
        let avx2 = self.0.avx2;
        let sums = avx2._mm256_hadd_epi32(avx2._mm256_hadd_epi32(a, b), avx2._mm256_hadd_epi32(c, d));
        avx2._mm256_add_epi32(start, sums)
    }

    #[inline(always)]
    fn round(self, from: &[f32; BLOCK], by: f32) -> [i8; BLOCK] {
        let Common { avx, avx2, .. } = self.0;
        let values: [__m256; 4] = bytemuck::cast(*from);
        let mut whole = [__m256i::zeroed(); 4];
        for (whole, x) in whole.iter_mut().zip(values) {
            *whole = avx._mm256_cvtps_epi32(avx._mm256_mul_ps(x, avx._mm256_set1_ps(by)));
        }
        let [a, b, c, d] = whole;
        let bytes = avx2._mm256_packs_epi16(avx2._mm256_packs_epi32(a, b), avx2._mm256_packs_epi32(c, d));
        let order = avx._mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        bytemuck::cast(avx2._mm256_permutevar8x32_epi32(bytes, order))
    }

    #[inline(always)]
    fn nibbles(self, x: __m256i) -> [__m256i; 2] {
        let (avx2, mask) = (self.0.avx2, self.0.avx._mm256_set1_epi8(15));
        [avx2._mm256_and_si256(x, mask), avx2._mm256_and_si256(avx2._mm256_srli_epi16::<4>(x), mask)]
    }

    #[inline(always)]
    fn fours(self, [a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
        let v = self.0.avx2;
        let (ab, cd) = (v._mm256_unpacklo_epi32(a, b), v._mm256_unpacklo_epi32(c, d));
        let (ef, gh) = (v._mm256_unpackhi_epi32(a, b), v._mm256_unpackhi_epi32(c, d));
        [
            v._mm256_unpacklo_epi64(ab, cd),
            v._mm256_unpackhi_epi64(ab, cd),
            v._mm256_unpacklo_epi64(ef, gh),
            v._mm256_unpackhi_epi64(ef, gh),
        ]
    }

    fn multiply_few<T: Type>(self, out: &mut Out<'_>, group: &Group<'_>) -> bool {
        let can = T::INTEGERS && T::BITS < 8 && group.rows.len() <= FEW;
        if can {
            few::multiply::<VNNI, T>(self, out, group);
        }
        can
    }

    #[inline(always)]
    fn fetch<T>(self, at: &T, ahead: usize) {
        let line = (&raw const *at).cast::<i8>().wrapping_add(ahead);
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line) };
    }
}
