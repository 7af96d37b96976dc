//! Rules of the CPU for gradients and optimisers. C builds these operations itself, with operands of other operations,
//! and checks little. The kernels abort on their threads, or walk an operand by another one's strides.

use super::prelude::*;

const FLAT: &str = "the CPU kernel needs contiguous operands; use `cont`";

pub(super) fn im2col_back(t: TensorPtr) -> Verdict {
    let [a, kernel] = sources(t)?;
    let types = a.dtype() == DType::F32 && matches!(kernel.dtype(), DType::F32 | DType::F16);
    need(types, "the CPU kernel takes gradients of f32 and a kernel of f32 or f16")?;
    need(a.is_contiguous(), FLAT)?;
    let near = t.nb().iter().all(|&nb| i32::try_from(nb).is_ok());
    need(near, "the CPU kernel needs planes and batches less than 2 GiB apart")
}

/// The kernel of `pool_2d_back` walks the forward operand by the strides of the result.
pub(super) fn pool_2d_back(t: TensorPtr) -> Verdict {
    let [a, b] = floats(t)?;
    need(a.is_contiguous() && b.is_packed(), PACKED)
}

pub(super) fn cross_entropy_loss_back(t: TensorPtr) -> Verdict {
    let [a, _] = floats(t)?;
    need(a.is_contiguous() && t.sources().skip(1).all(TensorPtr::is_packed), PACKED)
}

pub(super) fn soft_max_back(t: TensorPtr) -> Verdict {
    let [a, b] = floats(t)?;
    need(a.is_packed() && b.is_packed(), PACKED)
}

pub(super) fn silu_back(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    for s in [a, b] {
        rows_of(s, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
        need(s.is_contiguous_1(), EVEN)?;
    }
    need(a.dtype() == b.dtype(), "the CPU kernel takes operands of one type")
}

pub(super) fn rms_norm_back(t: TensorPtr) -> Verdict {
    let [a, b] = floats(t)?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)
}

/// The kernels of optimiser steps walk gradient and moments by the parameter's strides (H18).
pub(super) fn opt_step(t: TensorPtr) -> Verdict {
    let [a, _] = floats(t)?;
    need(a.has_dense_rows() && t.sources().all(TensorPtr::is_contiguous), FLAT)
}

/// The first two operands, if all operands and the result are `f32`; else a refusal.
fn floats(t: TensorPtr) -> Verdict<[TensorPtr; 2]> {
    let first = sources(t)?;
    need(t.sources().chain([t]).all(|t| t.dtype() == DType::F32), "the CPU kernel takes f32 only")?;
    Ok(first)
}
