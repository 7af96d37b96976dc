//! Tiles: matrices of 16 rows of 64 bytes in the processor (AMX), which Linux lends to a process that asks.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::LazyLock;

use bytemuck::{Pod, Zeroable};

/// 16 rows: of 32 numbers in `bf16`; or, for a right operand, of 16 columns with two numbers below each other; or of 16 sums in
/// `f32`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct AmxTile(pub(super) [[u32; 16]; 16]);

/// A tile of numbers rounded to `bf16`, and one of the rests.
pub(super) type Split = [AmxTile; 2];

/// Two halves of a panel's columns: those of numbers rounded to `bf16`, and those of the rests.
pub(super) type Pair = [[AmxTile; 2]; 2];

/// Whether there are tiles of `bf16`, and Linux has lent them to this process.
pub(super) fn any() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    static LENT: LazyLock<bool> =
        LazyLock::new(|| __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES && ask());
    *LENT
}

/// Asks Linux for the tiles' registers, which it saves for threads that use them.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILE_DATA: libc::c_ulong = 18;
    // SAFETY: the call changes only what the process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// The tiles of this thread, configured for 16 rows of 64 bytes each.
pub(super) struct AmxTiles(PhantomData<*const ()>);

/// What `ldtilecfg` reads: the palette, from byte 16 on the bytes of a row of each tile, as 16 bits, and from byte 48 on their rows.
#[repr(align(64))]
struct Config([u8; 64]);

impl AmxTiles {
    /// Configures them, if there are any.
    pub(super) fn new() -> Option<Self> {
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for tile in 0..8 {
            (config.0[16 + 2 * tile], config.0[48 + tile]) = (64, 16);
        }
        if !any() {
            return None;
        }
        // SAFETY: the processor has the instruction, and the process may use it (`any`); it reads the 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly, preserves_flags)) };
        Some(Self(PhantomData))
    }

    /// The products of two tiles of rows, for each 32 numbers, and of pairs of columns: of rows 0 and columns 0, rows 0 and
    /// columns 1, rows 1 and columns 0, rows 1 and columns 1. The product of the two rests is left out: it is below what
    /// a rest lacks.
    #[expect(clippy::unused_self, reason = "it shows that tiles are configured")]
    pub(super) fn product(&self, [first, second]: [&[Split]; 2], columns: &[Pair], sums: &mut [AmxTile; 4]) {
        let n = columns.len();
        assert!(n > 0 && first.len() == n && second.len() == n, "operands of one depth");
        // SAFETY: tiles are configured for this thread, which `self` can't leave. The pointers go through the `n` elements of
        // the three slices, of 2, 2 and 4 KiB, and nothing beyond; the results take the 4 KiB of `sums`. Nothing else uses
        // the tiles' registers: they are set here before they are read.
        unsafe {
            asm!(
                "tilezero tmm0", "tilezero tmm1",
                "tilezero tmm2", "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{a} + {row}*1]",
                "tileloadd tmm6, [{w} + {row}*1]", "tileloadd tmm7, [{w} + {row}*1 + 1024]",
                "tileloadd tmm5, [{b} + {row}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a} + {row}*1 + 1024]", "tileloadd tmm5, [{b} + {row}*1 + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a} + {row}*1]",
                "tileloadd tmm6, [{w} + {row}*1 + 2048]", "tileloadd tmm7, [{w} + {row}*1 + 3072]",
                "tileloadd tmm5, [{b} + {row}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 2048", "add {b}, 2048", "add {w}, 4096",
                "dec {n}",
                "jnz 2b",
                "tilestored [{sums} + {row}*1], tmm0", "tilestored [{sums} + {row}*1 + 1024], tmm1",
                "tilestored [{sums} + {row}*1 + 2048], tmm2", "tilestored [{sums} + {row}*1 + 3072], tmm3",
                a = inout(reg) first.as_ptr() => _,
                b = inout(reg) second.as_ptr() => _,
                w = inout(reg) columns.as_ptr() => _,
                n = inout(reg) n => _,
                sums = in(reg) sums.as_mut_ptr(),
                row = in(reg) 64_usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Drop for AmxTiles {
    fn drop(&mut self) {
        // SAFETY: the processor has the instruction, since `new` has used another one.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}
