//! Rules of the CPU for products with repacked weights (H27). The device's claim depends only on the type of the second
//! operand; the kernels need more.

use super::prelude::*;
use crate::buffer::{self, extra::Packing};

const F32: &str = "repacked weights can be multiplied by f32 only";

pub(super) fn mul_mat(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    need(b.dtype() == DType::F32, F32)?;
    // Both kernels for repacked weights read several rows of the second operand as one (H109).
    need(b.is_packed(), PACKED)?;
    let [k, n, planes, last] = b.ne();
    match packing(a)? {
        Packing::Repack => {
            need(last == 1, "the CPU kernel for repacked weights takes three dimensions")?;
            let numbers = k.checked_mul(n).is_some_and(|numbers| numbers / 32 < MOST);
            need(numbers, "the CPU kernel for repacked weights takes less than 2^36 numbers in a matrix")
        }
        // The AMX kernel computes wrong offsets for planes after the first, and counts elements and bytes in 32 bits.
        Packing::Amx => {
            need([planes, last] == [1, 1], "the AMX kernel takes matrices only")?;
            let bytes = b.span().is_some_and(|bytes| i32::try_from(bytes).is_ok());
            need(bytes && countable_whole(t), "the AMX kernel takes less than 2^31 bytes, and makes fewer elements")
        }
    }
}

/// `rules/indices.rs` makes sure that the experts of each token are distinct, so the kernel's table is large enough
/// (H108).
pub(super) fn mul_mat_id(a: TensorPtr, b: TensorPtr) -> Verdict {
    need(b.dtype() == DType::F32, F32)?;
    need(b.has_dense_rows(), ROWS)?;
    need(packing(a)? == Packing::Repack, "there is no AMX kernel for experts")
}

fn packing(a: TensorPtr) -> Verdict<Packing> {
    buffer::type_of(a)
        .and_then(Packing::of)
        .ok_or(Refusal("this crate knows no CPU kernel for weights in this buffer type"))
}
