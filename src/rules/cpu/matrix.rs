//! Rules of the CPU for matrix products.

use super::prelude::*;
use super::{copy, packed};
use crate::header::Owner;
use crate::op::MulMatOptions;

pub(super) fn mul_mat(t: TensorPtr, how: MulMatOptions) -> Verdict {
    let [a, b] = sources(t)?;
    match (a.owner(), how.hadamard) {
        (Owner::Packed, hadamard) => {
            need(!hadamard, "a Hadamard matrix must not be repacked")?;
            packed::mul_mat(a, b, t)
        }
        (_, true) => hadamard(a, b),
        (_, false) => product(a, b),
    }
}

pub(super) fn solve_tri(t: TensorPtr) -> Verdict {
    let srcs: [_; 2] = sources(t)?;
    need(srcs.iter().all(|s| s.dtype() == DType::F32), "the CPU kernel takes f32 only")?;
    need(srcs.into_iter().all(TensorPtr::is_contiguous), "the CPU kernel needs contiguous operands; use `cont`")
}

fn product(a: TensorPtr, b: TensorPtr) -> Verdict {
    has_dot_product(a)?;
    let types = match (a.dtype(), b.dtype()) {
        (_, DType::F32) | (DType::F32, DType::BF16) => true,
        (x, y) => x.is_float() && x == y,
    };
    need(types, "the CPU kernel takes a second operand of f32, of the first one's float type, or of bf16 with f32")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)
}

/// H14: for a first operand of a type without a dot product, the kernel would call NULL.
pub(super) fn has_dot_product(a: TensorPtr) -> Verdict {
    let has = a.dtype().is_float() || a.dtype().is_f8() || copy::has_float_rows(a.dtype());
    need(has, "the CPU has no dot product for the type of the first operand (or of keys)")
}

/// The rule for products with a Hadamard matrix. H15: the transform reads only the second operand, and writes rows of
/// that operand's length.
fn hadamard(a: TensorPtr, b: TensorPtr) -> Verdict {
    let ([a0, a1, ..], [b0, ..]) = (a.ne(), b.ne());
    need(a0 == a1 && a0 == b0 && a0.count_ones() == 1, "the CPU transform needs a square matrix of a power of two")?;
    rows_of(b, &[DType::F32, DType::F16], "the CPU transform takes a second operand of f32 or f16")?;
    // The size of the work buffer depends on this type, as if the operation were no Hadamard transform.
    need(a.dtype() == DType::F32, "the CPU transform takes a first operand of f32")
}

pub(super) fn out_prod(t: TensorPtr) -> Verdict {
    let [a, b] = sources(t)?;
    need(b.dtype() == DType::F32, "the CPU kernel takes a second operand of f32")?;
    need(a.has_dense_rows(), ROWS)?;
    // The kernel of `out_prod` clears the result as one row.
    need(countable_whole(t), "the CPU kernel makes less than 2^31 - 2^16 elements")?;
    if a.dtype() == DType::F32 {
        // The kernel takes 32 rows at a time. The offsets of these rows, up to 31 strides, are computed in 32 bits.
        let near = |t: TensorPtr| {
            let [_, nb1, ..] = t.nb();
            nb1.checked_mul(31).is_some_and(|n| i32::try_from(n).is_ok())
        };
        let [_, rows, ..] = a.ne();
        return need(rows < 32 || (near(a) && near(b)), "the CPU kernel needs rows less than 2^31 / 31 bytes apart");
    }
    let types = a.dtype() == DType::F16 || copy::has_float_rows(a.dtype());
    need(types, "the CPU kernel takes a first operand of f32, f16 or blocks")?;
    let upper = |t: TensorPtr| {
        let [_, _, n2, n3] = t.ne();
        (n2, n3)
    };
    need(upper(a) == upper(b), "the CPU kernel repeats a first operand of f32 only; use `repeat`")
}

#[cfg(all(test, not(feature = "dynamic-backends")))]
mod tests {
    use ggml_sys as sys;

    use super::*;
    use crate::dtype::CType as _;

    fn traits(t: sys::ggml_type) -> Option<&'static sys::ggml_type_traits_cpu> {
        // SAFETY: the type `t` exists, so C returns an entry of a static table.
        let traits = unsafe { sys::ggml_get_type_traits_cpu(t) };
        // SAFETY: the pointer is into a static table, which is not written to after ggml's initialisation.
        unsafe { traits.as_ref() }
    }

    /// For each type with a dot product, ggml must also convert `f32` to the type of the second operand. The kernels
    /// don't check that it can.
    #[test]
    fn dot_product_types_equal_ggml() {
        for &t in DType::ALL.iter().filter(|t| t.is_known()) {
            let known = t.is_float() || t.is_f8() || copy::has_float_rows(t);
            let of_ggml = traits(t.raw()).unwrap();
            assert_eq!(known, of_ggml.vec_dot.is_some(), "{t}");
            assert!(!known || traits(of_ggml.vec_dot_type).unwrap().from_float.is_some(), "{t}");
        }
    }

    #[test]
    fn quantisable_types_equal_ggml() {
        for &t in DType::ALL.iter().filter(|t| t.is_known()) {
            let both_ways = t.has_floats_in_blocks() && traits(t.raw()).unwrap().from_float.is_some();
            assert_eq!(copy::can_quantise(t), both_ways, "{t}");
        }
    }
}
