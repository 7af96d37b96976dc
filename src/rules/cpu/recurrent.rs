//! Recurrences over tokens. Builders check types and shapes, because kernels check almost none (H18).

use ggml_sys as sys;

use super::{MOST, PACKED, ROWS, Verdict, need, sources};
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_SSM_CONV => sources(t).and_then(|[sx, c]| ssm_conv(sx, c)),
        sys::GGML_OP_SSM_SCAN => sources(t).and_then(ssm_scan),
        sys::GGML_OP_RWKV_WKV6 | sys::GGML_OP_GATED_LINEAR_ATTN => Ok(()),
        // The kernel takes four vectors of elements at a time, 64 on some machines, and has no code for a remainder: it
        // would read and write out of bounds (H50).
        sys::GGML_OP_RWKV_WKV7 => sources(t).and_then(|[r]| {
            let [size, ..] = r.ne();
            need(size % 64 == 0, "the CPU kernel takes heads of a multiple of 64 elements")
        }),
        sys::GGML_OP_GATED_DELTA_NET => sources(t).and_then(|[_, _, v]| {
            let [size, ..] = v.ne();
            // The kernel scales a state as one row.
            need(counted(&[size, size]), "the CPU kernel takes states of less than 2^31 - 2^16 elements per head")
        }),
        _ => return None,
    })
}

/// The kernel finds channels at multiples of the row length, which it computes in 32 bits.
fn ssm_conv(sx: TensorPtr, c: TensorPtr) -> Verdict {
    need(sx.has_dense_rows() && c.has_dense_rows(), ROWS)?;
    let [length, channels, ..] = sx.ne();
    let whole = sx.layout().has_dense_planes() && c.is_contiguous();
    need(whole, "the CPU kernel needs contiguous kernels, and contiguous channels per sequence; use `cont`")?;
    need(counted(&[length, channels]), "the CPU kernel takes sequences of less than 2^31 - 2^16 elements")
}

/// The kernel writes states by the strides of the old ones, even of a single one. All that it counts in 32 bits lies in
/// one row of the result, whose length `countable` limits.
fn ssm_scan(srcs: [TensorPtr; 7]) -> Verdict {
    let [s, ..] = srcs;
    need(srcs.into_iter().all(TensorPtr::has_dense_rows), ROWS)?;
    need(s.is_packed(), PACKED)
}

/// Whether a kernel can count the product of `factors` in 32 bits.
fn counted(factors: &[i64]) -> bool {
    factors.iter().try_fold(1, |n: i64, &f| n.checked_mul(f)).is_some_and(|n| n < MOST)
}
