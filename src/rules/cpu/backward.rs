//! The kernels of gradients and optimisers. C builds these operations itself, from operands of others, and checks
//! little. The kernels abort on their threads, or walk an operand by another one's strides.

use ggml_sys as sys;

use super::{EVEN, PACKED, ROWS, Verdict, need, rows_of, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

const FLAT: &str = "the CPU kernel needs contiguous operands; use `cont`";

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_IM2COL_BACK => sources(t).and_then(|[a, kernel]| {
            let types = a.dtype() == DType::F32 && matches!(kernel.dtype(), DType::F32 | DType::F16);
            need(types, "the CPU kernel takes gradients of f32 and a kernel of f32 or f16")?;
            need(a.is_contiguous(), FLAT)?;
            let near = t.nb().iter().all(|&nb| i32::try_from(nb).is_ok());
            need(near, "the CPU kernel needs planes and batches less than 2 GiB apart")
        }),
        // The kernel walks the forward operand by the strides of the result.
        sys::GGML_OP_POOL_2D_BACK => all_f32(t, |a, b| need(a.is_contiguous() && b.is_packed(), PACKED)),
        sys::GGML_OP_CROSS_ENTROPY_LOSS_BACK => {
            all_f32(t, |a, _| need(a.is_contiguous() && t.sources().skip(1).all(TensorPtr::is_packed), PACKED))
        }
        sys::GGML_OP_SOFT_MAX_BACK => all_f32(t, |a, b| {
            need(a.is_packed() && b.is_packed(), PACKED)?;
            let [_, max_bias, ..] = t.op_params();
            need(max_bias == 0, "the CPU kernel takes no `max_bias`")
        }),
        sys::GGML_OP_SILU_BACK => sources(t).and_then(|[a, b]| {
            for s in [a, b] {
                rows_of(s, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
                need(s.is_contiguous_1(), EVEN)?;
            }
            need(a.dtype() == b.dtype(), "the CPU kernel takes operands of one type")
        }),
        sys::GGML_OP_RMS_NORM_BACK => all_f32(t, |a, b| need(a.has_dense_rows() && b.has_dense_rows(), ROWS)),
        // The kernel walks gradient and moments by the parameter's strides (H18).
        sys::GGML_OP_OPT_STEP_ADAMW | sys::GGML_OP_OPT_STEP_SGD => {
            all_f32(t, |a, _| need(a.has_dense_rows() && t.sources().all(TensorPtr::is_contiguous), FLAT))
        }
        _ => return None,
    })
}

/// The verdict on an operation with two or more operands, all `f32`.
fn all_f32(t: TensorPtr, f: impl FnOnce(TensorPtr, TensorPtr) -> Verdict) -> Verdict {
    let [a, b] = sources(t)?;
    floats(t)?;
    f(a, b)
}

fn floats(t: TensorPtr) -> Verdict {
    need(t.sources().chain([t]).all(|t| t.dtype() == DType::F32), "the CPU kernel takes f32 only")
}
