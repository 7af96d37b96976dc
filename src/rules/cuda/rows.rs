//! What CUDA's kernels take that copy, normalise, rotate or pick rows, and those of recurrent models.

use super::{APART, FLOATS, GRID, MANY, WHOLE, begins, few, near, reads};
use crate::dtype::DType;
use crate::header::TensorPtr;
use crate::op::{Operation as Op, Pool2dOptions, RopeMode, RopeOptions};
use crate::rules::{Verdict, need};

pub(super) fn copy(a: TensorPtr, t: TensorPtr) -> Verdict {
    if a.dtype() != t.dtype() || (a.is_contiguous() && t.is_contiguous()) {
        return Ok(());
    }
    let size = match t.dtype() {
        DType::F32 | DType::I32 => 4,
        DType::F16 | DType::BF16 | DType::I16 => 2,
        _ => return need(false, "CUDA copies this type from and to contiguous tensors only"),
    };
    let ([n0, n1, _, n3], [nb0, nb1, nb2, _]) = (a.ne(), a.nb());
    let bytes = |n: i64| usize::try_from(n).unwrap_or(usize::MAX).saturating_mul(size);
    // What looks like a transposed matrix is copied as one, whatever the first stride is.
    let turned = nb1 == size && n3 == 1 && nb2 == bytes(n0.saturating_mul(n1));
    need(!turned || n0 == 1 || nb0 == bytes(n1), "CUDA takes the operand for a transposed matrix")
}

pub(super) fn norm(t: TensorPtr, a: TensorPtr) -> Verdict {
    need(a.has_dense_rows() && t.is_contiguous(), WHOLE)?;
    let [_, _, n2, n3] = a.ne();
    if cfg!(ggml_0_28) { Ok(()) } else { few(&[n2, n3]) }
}

pub(super) fn rope(t: TensorPtr, how: RopeOptions<'_>) -> Verdict {
    need(t.ne()[0] <= 1 << 24, MANY)?;
    if how.mode == RopeMode::Normal { pairs(t) } else { Ok(()) }
}

/// Whether pairs of numbers can be written at once.
fn pairs(t: TensorPtr) -> Verdict {
    need(super::aligned(t, 2 * t.dtype().type_size()), APART)
}

pub(super) fn pool_2d(t: TensorPtr, a: TensorPtr, how: Pool2dOptions) -> Verdict {
    need(a.dtype() == DType::F32, FLOATS)?;
    let [w0, w1] = how.window;
    if cfg!(not(ggml_0_28)) || w0.saturating_mul(w1) < 32 {
        return Ok(());
    }
    let near = how.padding.iter().zip(how.window).all(|(&padding, window)| padding <= window);
    need(
        near && t.elements() <= 1 << 27,
        "CUDA takes no padding that is larger than a large window, and less than 2^27 of them",
    )
}

/// Rows that were rotated right before are written at once, as if all of them were.
pub(super) fn set_rows(t: TensorPtr, values: TensorPtr, ids: TensorPtr, to: TensorPtr) -> Verdict {
    let of_rope = |x: TensorPtr| match Op::of(x.root()) {
        Some(Op::Rope(how)) if matches!(Op::of(x), Some(Op::View)) => Some(how),
        _ => None,
    };
    need(of_rope(to).is_none(), "CUDA takes the rows that are written to for the values; use `cont`")?;
    let Some(how) = of_rope(values) else { return Ok(()) };
    let [r0, r1, r2, _] = values.root().ne();
    let all = values.ne() == [r0.saturating_mul(r1), r2, 1, 1] && begins(values, usize::MAX);
    need(all, "CUDA writes all rotated rows or none: view all, as rows of a token each; or use `cont`")?;
    need(ids.is_contiguous(), WHOLE)?;
    let joins = |op| matches!(op, Op::Mul | Op::RmsNorm { .. } | Op::Rope(_));
    let own = reads(values.root(), to.root(), 3, joins);
    need(!own, "CUDA may write rows that it still rotates; use `cont`")?;
    if how.mode == RopeMode::Normal { pairs(t) } else { Ok(()) }
}

pub(super) fn gated_delta_net(q: TensorPtr, k: TensorPtr, v: TensorPtr) -> Verdict {
    let [size, heads, _, sequences] = v.ne();
    need(matches!(size, 16 | 32 | 64 | 128), "CUDA has kernels for heads of 16, 32, 64 and 128 numbers")?;
    need(q.nb() == k.nb(), "CUDA needs queries and keys with the same strides")?;
    few(&[heads, sequences])
}

pub(super) fn ssm_conv(t: TensorPtr, x: TensorPtr, kernel: TensorPtr) -> Verdict {
    let [width, channels, ..] = kernel.ne();
    let known = matches!(width, 3 | 4 | 5 | 9 | 15) || (cfg!(ggml_0_28) && width == 7);
    need(known, "CUDA has kernels for convolutions of 3, 4, 5, 7 (since 0.28), 9 and 15 tokens")?;
    need([x, kernel, t].into_iter().all(near) && channels <= 128 * GRID && t.ne()[1] <= 32 * GRID, MANY)
}

pub(super) fn ssm_scan(t: TensorPtr) -> Verdict {
    let slots = t.slots();
    let [Some(state), Some(x), _, Some(a), ..] = slots else {
        return need(false, "it lacks an operand");
    };
    let [per_head, ..] = a.ne();
    need(a.nb()[1] == 4 * usize::try_from(per_head).unwrap_or(0), WHOLE)?;
    let [_, heads, _, sequences] = x.ne();
    few(&[heads, sequences])?;
    let counted = |t: &TensorPtr| near(*t) && t.nb().iter().all(|&nb| i32::try_from(nb).is_ok());
    let all = slots.iter().take(6).flatten().all(counted);
    let states = usize::try_from(sequences).ok().and_then(|n| n.checked_mul(state.nb()[3]));
    need(all && states.is_some_and(|n| i32::try_from(n).is_ok()), MANY)
}
