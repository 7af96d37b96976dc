//! The kernels for AVX-512.

#![expect(clippy::incompatible_msrv, reason = "the library needs Rust 1.88, this crate 1.89")]

mod activations;
mod amx;
mod bytes;
mod dot;
mod halves;
mod panel;
mod panels;
mod tiled;
mod types;

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64,
};
use std::cell::RefCell;
use std::sync::LazyLock;

use bytemuck::Zeroable;
use ggml::{Custom, CustomOp, DType, Operands, RowsMut};

use super::WIDTH;
use bytes::Scratch;
pub(crate) use panels::Panels;
use types::Facts;

/// Up to so many rows of activations, a matrix of `f16` is not unpacked.
const FEW: usize = 8;

/// Fetches the cache line of what lies so many bytes behind.
#[inline(always)]
fn fetch(bytes: &[u8], ahead: usize) {
    let line = bytes.as_ptr().wrapping_add(ahead);
    // SAFETY: any address may be prefetched.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

/// Lane `i` of four columns, side by side in each 128 bits, as vector `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn fours(columns: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(columns[0], columns[1]), _mm512_unpackhi_epi32(columns[0], columns[1]));
    let (c, d) = (_mm512_unpacklo_epi32(columns[2], columns[3]), _mm512_unpackhi_epi32(columns[2], columns[3]));
    [_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d), _mm512_unpackhi_epi64(b, d)]
}

/// Whether the processor has the instructions.
fn any() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("f16c")
}

/// The operation for matrices of a type, if the processor has the instructions. Each task computes some columns of all
/// rows, so that the matrix is read once.
pub(super) fn operation(dtype: DType) -> Option<&'static CustomOp<f32>> {
    static F16: LazyLock<CustomOp<f32>> = LazyLock::new(|| {
        CustomOp::new(Custom::new().with_split(1), |out, operands| {
            let [_, _, rows, _] = out.shape();
            let out = Out::new(out);
            // Steps are not worth configuring tiles.
            if let Some(tiles) = (rows > FEW).then(amx::Tiles::new).flatten() {
                TILES.with_borrow_mut(|scratch| {
                    // SAFETY: the processor has the target features: `operation` returns this only if `any` is true.
                    unsafe { tiled::multiply(&tiles, out, &operands, scratch) }
                });
                return;
            }
            PANEL.with_borrow_mut(|panel| {
                // SAFETY: as above.
                unsafe { halves::multiply(out, &operands, panel) }
            });
        })
    });
    static Q8_0: LazyLock<CustomOp<f32>> =
        LazyLock::new(of_blocks::<{ types::Q8_0 }, { Facts::of(types::Q8_0).bytes }>);
    static Q4_0: LazyLock<CustomOp<f32>> =
        LazyLock::new(of_blocks::<{ types::Q4_0 }, { Facts::of(types::Q4_0).bytes }>);
    static Q4_K: LazyLock<CustomOp<f32>> =
        LazyLock::new(of_blocks::<{ types::Q4_K }, { Facts::of(types::Q4_K).bytes }>);
    let op = match dtype {
        DType::F16 => &F16,
        DType::Q8_0 => &Q8_0,
        DType::Q4_0 => &Q4_0,
        DType::Q4_K => &Q4_K,
        _ => return None,
    };
    any().then_some(op)
}

fn of_blocks<const T: u8, const BYTES: usize>() -> CustomOp<f32> {
    CustomOp::new(Custom::new().with_split(1), |out, operands| {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: the processor has the target features: `operation` returns this only if `any` is true.
            unsafe { bytes::multiply::<T, BYTES>(Out::new(out), &operands, scratch) }
        });
    })
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static PANEL: RefCell<Vec<halves::Row>> = RefCell::default();
    static TILES: RefCell<tiled::Scratch> = RefCell::default();
}

/// A list of this length, which may have old values.
fn resize<T: Zeroable + Clone>(list: &mut Vec<T>, n: usize) -> &mut [T] {
    list.resize(n, T::zeroed());
    list
}

/// Rows of the matrix, for [`WIDTH`] columns of the product.
fn weights<'a>(operands: &Operands<'a>, part: usize) -> [&'a [u8]; WIDTH] {
    std::array::from_fn(|i| operands.bytes(0, [part * WIDTH + i, 0, 0]))
}

/// The columns of the product that a task computes, in parts of [`WIDTH`].
enum Out<'a> {
    /// Of a single row, part by part.
    One(RowsMut<'a, f32>),
    /// The parts of the first row, then those of the second, and so on; and the index of the first part.
    More { all: Vec<&'a mut [f32]>, parts: usize, first: usize },
}

impl<'a> Out<'a> {
    fn new(out: RowsMut<'a, f32>) -> Self {
        let [_, _, rows, _] = out.shape();
        if rows == 1 {
            return Self::One(out); // without a list, and so without allocating
        }
        let parts = out.len() / rows;
        let mut first = None;
        let all = out.map(|([part, ..], values)| {
            first.get_or_insert(part);
            values
        });
        Self::More { all: all.collect(), parts, first: first.unwrap_or(0) }
    }

    /// Calls `compute` for each part, with its index and with what stores the values of a row.
    fn each(&mut self, mut compute: impl FnMut(usize, &mut dyn FnMut(usize, &[f32]))) {
        match self {
            Self::One(out) => {
                for ([part, ..], to) in out {
                    compute(part, &mut |_, values| to.copy_from_slice(values));
                }
            }
            Self::More { all, parts, first } => {
                for p in 0..*parts {
                    compute(*first + p, &mut |row, values| all[row * *parts + p].copy_from_slice(values));
                }
            }
        }
    }
}
