//! Matrix products.

use ggml_sys as sys;

use super::{ROWS, Verdict, copy, countable_whole, need, packed, rows_of, sources};
use crate::dtype::DType;
use crate::header::{Owner, TensorPtr};

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_MUL_MAT => sources(t).and_then(|[a, b]| {
            let [_, hint, ..] = t.op_params();
            if a.owner() == Owner::Packed {
                return packed::mul_mat(a, b, t);
            }
            if hint == sys::GGML_HINT_SRC0_IS_HADAMARD.cast_signed() { hadamard(a, b) } else { mul_mat(a, b) }
        }),
        sys::GGML_OP_OUT_PROD => sources(t).and_then(|[a, b]| out_prod(a, b, t)),
        sys::GGML_OP_SOLVE_TRI => sources(t).and_then(|srcs: [_; 2]| {
            need(srcs.iter().all(|s| s.dtype() == DType::F32), "the CPU kernel takes f32 only")?;
            need(srcs.into_iter().all(TensorPtr::is_contiguous), "the CPU kernel needs contiguous operands; use `cont`")
        }),
        _ => return None,
    })
}

fn mul_mat(a: TensorPtr, b: TensorPtr) -> Verdict {
    has_dot_product(a)?;
    let types = match (a.dtype(), b.dtype()) {
        (_, DType::F32) | (DType::F32, DType::BF16) => true,
        (x, y) => x.is_float() && x == y,
    };
    need(types, "the CPU kernel takes a second operand of f32, of the first one's float type, or of bf16 with f32")?;
    need(a.has_dense_rows() && b.has_dense_rows(), ROWS)
}

/// H14: for types without a dot product, the kernel would call NULL.
pub(super) fn has_dot_product(a: TensorPtr) -> Verdict {
    let has = a.dtype().is_float() || a.dtype().is_f8() || copy::has_float_rows(a.dtype());
    need(has, "the CPU has no dot product for the type of the first operand (or of keys)")
}

/// H15: the transform reads only the second operand, and writes rows of that operand's length.
fn hadamard(a: TensorPtr, b: TensorPtr) -> Verdict {
    let ([a0, a1, ..], [b0, ..]) = (a.ne(), b.ne());
    need(a0 == a1 && a0 == b0 && a0.count_ones() == 1, "the CPU transform needs a square matrix of a power of two")?;
    rows_of(b, &[DType::F32, DType::F16], "the CPU transform takes a second operand of f32 or f16")?;
    // The size of the work buffer follows from its type, as without the hint.
    need(a.dtype() == DType::F32, "the CPU transform takes a first operand of f32")
}

fn out_prod(a: TensorPtr, b: TensorPtr, t: TensorPtr) -> Verdict {
    need(b.dtype() == DType::F32, "the CPU kernel takes a second operand of f32")?;
    need(a.has_dense_rows(), ROWS)?;
    // The kernel clears the result as one row.
    need(countable_whole(t), "the CPU kernel makes less than 2^31 - 2^16 elements")?;
    if a.dtype() == DType::F32 {
        // The kernel takes 32 rows at a time, whose offsets (31 strides) it computes in 32 bits.
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
    use super::*;

    fn traits(t: sys::ggml_type) -> Option<&'static sys::ggml_type_traits_cpu> {
        // SAFETY: `t` is a type that exists, so C returns an entry of a static table.
        let traits = unsafe { sys::ggml_get_type_traits_cpu(t) };
        // SAFETY: the pointer is into a static table, which is not written to after ggml's initialisation.
        unsafe { traits.as_ref() }
    }

    /// A type with a dot product must also convert its second operand from `f32`, which the kernels don't check.
    #[test]
    fn dot_product_types_equal_ggml() {
        for &t in DType::ALL {
            let known = t.is_float() || t.is_f8() || copy::has_float_rows(t);
            let of_ggml = traits(t.raw()).unwrap();
            assert_eq!(known, of_ggml.vec_dot.is_some(), "{t}");
            assert!(!known || traits(of_ggml.vec_dot_type).unwrap().from_float.is_some(), "{t}");
        }
    }

    #[test]
    fn quantisable_types_equal_ggml() {
        for &t in DType::ALL {
            assert!(!copy::can_quantise(t) || t.has_floats_in_blocks());
            assert!(!copy::can_quantise(t) || traits(t.raw()).unwrap().from_float.is_some(), "{t}");
        }
    }
}
