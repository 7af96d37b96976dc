//! Rules of the CPU for `set` and `acc`, which write or add to a part of a tensor. The builder checks that the part is
//! in bounds (H5).

use super::prelude::*;

pub(super) fn set(t: TensorPtr) -> Verdict {
    part(t, &[DType::F32, DType::I32])
}

pub(super) fn acc(t: TensorPtr) -> Verdict {
    part(t, &[DType::F32])
}

fn part(t: TensorPtr, types: &[DType]) -> Verdict {
    let [a, b] = sources(t)?;
    need(types.contains(&a.dtype()), "the CPU kernel sets f32 or i32, and adds f32")?;
    need(a.is_contiguous(), "the CPU kernel needs a contiguous first operand; use `cont`")?;
    need(b.has_dense_rows(), ROWS)
}
