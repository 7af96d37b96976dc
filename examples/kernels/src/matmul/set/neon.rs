//! Two vectors of 128 bits at a time: NEON, the products of four bytes (`dotprod`), and those of small matrices (`i8mm`).

use std::arch::aarch64::{float32x4_t, int8x16_t, int32x4_t};
use std::arch::asm;

use pulp::core_arch::aarch64::{self as has, Dotprod, I8mm};

use super::Set;
use crate::matmul::panel::{self, Panel};

/// Products of bytes in 16 bits.
const NEON: u8 = 0;
/// Four products are added to a lane.
const DOTPROD: u8 = 1;
/// Besides, two rows are multiplied by two columns, eight numbers deep.
const I8MM: u8 = 2;

pub(crate) type NeonAlone = Neon<NEON>;
pub(crate) type NeonDot = Neon<DOTPROD>;
pub(crate) type NeonI8mm = Neon<I8MM>;

/// # Invariants
///
/// Values exist only where the processor has NEON, and what `PRODUCTS` names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon<const PRODUCTS: u8>(has::Neon);

impl<const PRODUCTS: u8> Neon<PRODUCTS> {
    /// If the processor has it.
    pub(crate) fn new() -> Option<Self> {
        let products = match PRODUCTS {
            NEON => true,
            DOTPROD => Dotprod::is_available(),
            _ => Dotprod::is_available() && I8mm::is_available(),
        };
        has::Neon::try_new().filter(|_| products).map(Self)
    }

    /// Adds the products of four bytes in each lane.
    #[inline(always)]
    fn dot4(self, mut to: int32x4_t, weights: int32x4_t, x: int32x4_t) -> int32x4_t {
        if PRODUCTS == NEON {
            let (v, weights, x): (_, int8x16_t, int8x16_t) = (self.0, bytemuck::cast(weights), bytemuck::cast(x));
            // Two products fit in 16 bits: no activation is -128, except where the largest of a block is below 1e-36.
            let low = v.vmull_s8(v.vget_low_s8(weights), v.vget_low_s8(x));
            return v.vpadalq_s16(to, v.vpaddq_s16(low, v.vmull_high_s8(weights, x)));
        }
        // SAFETY: the processor has the instruction, for which `new` looked (the type's invariant). It reads and writes nothing
        // but these registers. (Rust's function for it is not stable.)
        unsafe {
            asm!(".arch_extension dotprod", "sdot {to:v}.4s, {weights:v}.16b, {x:v}.16b", to = inout(vreg) to,
                weights = in(vreg) weights, x = in(vreg) x, options(pure, nomem, nostack, preserves_flags));
        }
        to
    }

    /// Adds the products of two rows and two columns of eight bytes: those of the first row, then of the second.
    #[expect(clippy::unused_self, reason = "it shows that the processor has the instruction")]
    #[inline(always)]
    fn matrix(self, mut to: int32x4_t, rows: int32x4_t, columns: int32x4_t) -> int32x4_t {
        assert!(PRODUCTS == I8MM, "a set with products of matrices");
        // SAFETY: as in `dot4`. The line above says that this is the set for which `new` looked for `i8mm`.
        unsafe {
            asm!(".arch_extension i8mm", "smmla {to:v}.4s, {rows:v}.16b, {columns:v}.16b", to = inout(vreg) to,
                rows = in(vreg) rows, columns = in(vreg) columns, options(pure, nomem, nostack, preserves_flags));
        }
        to
    }

    /// From four columns of two rows to two columns of both rows, twice, and back.
    #[inline(always)]
    fn twos(self, a: int32x4_t, b: int32x4_t) -> [int32x4_t; 2] {
        let (a, b) = (bytemuck::cast(a), bytemuck::cast(b));
        [bytemuck::cast(self.0.vzip1q_s64(a, b)), bytemuck::cast(self.0.vzip2q_s64(a, b))]
    }

    /// [`Self::twos`] of each pair of rows.
    #[expect(clippy::needless_range_loop, reason = "the compiler unrolls it, so that sums stay in registers")]
    #[inline(always)]
    fn turn_pairs<const R: usize, const V: usize>(self, sums: &mut [[[int32x4_t; 2]; V]; R]) {
        for r in (0..R).step_by(2) {
            for v in 0..V {
                for h in 0..2 {
                    [sums[r][v][h], sums[r + 1][v][h]] = self.twos(sums[r][v][h], sums[r + 1][v][h]);
                }
            }
        }
    }

    /// From four rows to four columns.
    #[inline(always)]
    fn turn(self, [a, b, c, d]: [int32x4_t; 4]) -> [int32x4_t; 4] {
        let v = self.0;
        let [ab, cd] = [(a, b), (c, d)].map(|(a, b)| [v.vtrn1q_s32(a, b), v.vtrn2q_s32(a, b)]);
        let [even, odd] = [self.twos(ab[0], cd[0]), self.twos(ab[1], cd[1])];
        [even[0], odd[0], even[1], odd[1]]
    }
}

// All code is compiled for NEON, and what else there is, is named where it is used.
impl<const PRODUCTS: u8> Set for Neon<PRODUCTS> {
    type Ints = [int32x4_t; 2];
    type Floats = [float32x4_t; 2];
    type Bytes2 = [u8; 16];
    type Bytes4 = [u8; 32];
    type Square = [[int32x4_t; 2]; 8];
    type Short = Self;

    const SIGNED: bool = true;
    /// As for AVX2: 256 numbers of 16 columns take 10 KiB at most.
    const DEEP: usize = 8;
    const PAIRS: bool = PRODUCTS == I8MM;

    #[inline(always)]
    fn short(self) -> Self {
        self
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 16]) -> [float32x4_t; 2] {
        let bytes: int8x16_t = bytemuck::cast(*bytes);
        let (low, high): (float32x4_t, float32x4_t);
        // SAFETY: all processors with NEON have the instructions, which read and write nothing but these registers.
        unsafe {
            asm!("fcvtl {low:v}.4s, {bytes:v}.4h", "fcvtl2 {high:v}.4s, {bytes:v}.8h", low = out(vreg) low,
                high = lateout(vreg) high, bytes = in(vreg) bytes, options(pure, nomem, nostack, preserves_flags));
        }
        [low, high]
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32] {
        let (table, [a, b]): (_, [_; 2]) = (bytemuck::cast(*table), bytemuck::cast(at));
        bytemuck::cast([self.0.vqtbl1q_u8(table, a), self.0.vqtbl1q_u8(table, b)])
    }

    #[inline(always)]
    fn ints(self, x: i32) -> [int32x4_t; 2] {
        [self.0.vdupq_n_s32(x); 2]
    }

    #[inline(always)]
    fn floats(self, x: f32) -> [float32x4_t; 2] {
        [self.0.vdupq_n_f32(x); 2]
    }

    #[inline(always)]
    fn convert(self, x: [int32x4_t; 2]) -> [float32x4_t; 2] {
        [self.0.vcvtq_f32_s32(x[0]), self.0.vcvtq_f32_s32(x[1])]
    }

    #[inline(always)]
    fn mul(self, a: [float32x4_t; 2], b: [float32x4_t; 2]) -> [float32x4_t; 2] {
        [self.0.vmulq_f32(a[0], b[0]), self.0.vmulq_f32(a[1], b[1])]
    }

    #[inline(always)]
    fn mul_add(self, a: [float32x4_t; 2], b: [float32x4_t; 2], c: [float32x4_t; 2]) -> [float32x4_t; 2] {
        [self.0.vfmaq_f32(c[0], a[0], b[0]), self.0.vfmaq_f32(c[1], a[1], b[1])]
    }

    #[inline(always)]
    fn sum(self, x: [float32x4_t; 2]) -> f32 {
        self.0.vaddvq_f32(self.0.vaddq_f32(x[0], x[1]))
    }

    #[inline(always)]
    fn dot(self, to: [int32x4_t; 2], weights: [int32x4_t; 2], x: [int32x4_t; 2]) -> [int32x4_t; 2] {
        [self.dot4(to[0], weights[0], x[0]), self.dot4(to[1], weights[1], x[1])]
    }

    #[inline(always)]
    fn pair(self, [a, b]: [int32x4_t; 2], [c, d]: [int32x4_t; 2]) -> [[int32x4_t; 2]; 2] {
        [[a, c], [b, d]]
    }

    #[inline(always)]
    fn eight(self, start: [int32x4_t; 2], [a, b, c, d]: [[int32x4_t; 2]; 4]) -> [int32x4_t; 2] {
        let v = self.0;
        let mut sums = start;
        for (h, sum) in sums.iter_mut().enumerate() {
            *sum = v.vaddq_s32(*sum, v.vpaddq_s32(v.vpaddq_s32(a[h], b[h]), v.vpaddq_s32(c[h], d[h])));
        }
        sums
    }

    #[inline(always)]
    fn fours(self, all: [[int32x4_t; 2]; 4]) -> [[int32x4_t; 2]; 4] {
        let [low, high] = [0, 1].map(|h| self.turn([all[0][h], all[1][h], all[2][h], all[3][h]]));
        [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
    }

    /// For products of matrices, eight bytes of a column lie together.
    #[inline(always)]
    fn quads(self, mut quads: [[int32x4_t; 2]; 8]) -> [[int32x4_t; 2]; 8] {
        if PRODUCTS == I8MM {
            for two in quads.as_chunks_mut::<2>().0 {
                let [a, b] = *two;
                *two = [0, 1].map(|h| [self.0.vzip1q_s32(a[h], b[h]), self.0.vzip2q_s32(a[h], b[h])]);
            }
        }
        quads
    }

    #[inline(always)]
    fn add<const R: usize, const V: usize, const Q: usize>(
        self,
        bits: u32,
        (block, part, at): (&Panel, usize, usize),
        x: [&[[u8; 4]; Q]; R],
        sums: &mut [[[int32x4_t; 2]; V]; R],
    ) {
        if PRODUCTS != I8MM {
            return panel::add(self, bits, (block, part, at), [self.ones(); V], x, sums);
        }
        assert!(R.is_multiple_of(2), "pairs of rows");
        self.turn_pairs(sums);
        for k in (0..Q).step_by(2) {
            let quad = |k| panel::vectors::<Self, Self::Ints, V>(block, part * Q + k, at);
            let columns = [quad(k), quad(k + 1)];
            for r in (0..R).step_by(2) {
                let eight = |r: usize| bytemuck::pod_read_unaligned(x[r][k..k + 2].as_flattened());
                let rows = self.0.vcombine_s32(eight(r), eight(r + 1));
                for v in 0..V {
                    for h in 0..2 {
                        sums[r][v][h] = self.matrix(sums[r][v][h], rows, columns[h][v][0]);
                        sums[r + 1][v][h] = self.matrix(sums[r + 1][v][h], rows, columns[h][v][1]);
                    }
                }
            }
        }
        self.turn_pairs(sums);
    }

    #[inline(always)]
    fn fetch<T>(self, at: &T, ahead: usize) {
        let line = (&raw const *at).cast::<u8>().wrapping_add(ahead).addr();
        // SAFETY: any address may be prefetched; no memory is read that a program sees.
        unsafe { asm!("prfm pldl2keep, [{line}]", line = in(reg) line, options(nomem, nostack, preserves_flags)) };
    }
}
