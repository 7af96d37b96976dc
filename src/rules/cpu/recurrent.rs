//! Rules of the CPU for recurrences over tokens. Builders check types and shapes, because kernels check almost none
//! (H18).

use super::prelude::*;

/// The kernel of RWKV-7 takes four vectors of elements at a time (64 elements on some machines), and has no code for a
/// remainder: it would read and write out of bounds (H50).
pub(super) fn rwkv_wkv7(t: TensorPtr) -> Verdict {
    let [r] = sources(t)?;
    let [size, ..] = r.ne();
    need(size % 64 == 0, "the CPU kernel takes heads of a multiple of 64 elements")
}

/// The kernel of the gated delta rule scales each state as one row.
pub(super) fn gated_delta_net(t: TensorPtr) -> Verdict {
    let [_, _, v] = sources(t)?;
    let [size, ..] = v.ne();
    need(counted(&[size, size]), "the CPU kernel takes states of less than 2^31 - 2^16 elements per head")
}

/// The kernel of `ssm_conv` finds channels at multiples of the row length, which it computes in 32 bits.
pub(super) fn ssm_conv(t: TensorPtr) -> Verdict {
    let [sx, c] = sources(t)?;
    need(sx.has_dense_rows() && c.has_dense_rows(), ROWS)?;
    let [length, channels, ..] = sx.ne();
    let whole = sx.layout().has_dense_planes() && c.is_contiguous();
    need(whole, "the CPU kernel needs contiguous kernels, and contiguous channels per sequence; use `cont`")?;
    need(counted(&[length, channels]), "the CPU kernel takes sequences of less than 2^31 - 2^16 elements")
}

/// The kernel of `ssm_scan` writes new states by the strides of the old ones, even if there is only one state. It
/// counts in 32 bits only inside one row of the result, whose length `countable` limits.
pub(super) fn ssm_scan(t: TensorPtr) -> Verdict {
    let srcs: [_; 7] = sources(t)?;
    let [s, ..] = srcs;
    need(srcs.into_iter().all(TensorPtr::has_dense_rows), ROWS)?;
    need(s.is_packed(), PACKED)
}

/// Whether a kernel can count the product of these factors in 32 bits.
fn counted(factors: &[i64]) -> bool {
    factors.iter().try_fold(1, |n: i64, &f| n.checked_mul(f)).is_some_and(|n| n < MOST)
}
