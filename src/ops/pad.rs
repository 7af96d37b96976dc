//! More elements at the borders, and elements that move beyond one border back in at the other.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// What is added to a tensor at its borders; one value per dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pad {
    /// Elements before the first.
    pub left: [i32; 4],
    /// Elements after the last.
    pub right: [i32; 4],
    /// Whether they repeat the tensor, as if it lay on a torus, rather than being zeros.
    pub circular: bool,
}

impl Pad {
    /// Zeros after the last elements (as `ggml_pad`).
    #[doc(alias = "ggml_pad")]
    pub fn right(n: [i32; 4]) -> Self {
        Self { right: n, ..Self::default() }
    }

    /// The tensor again after its last elements (as `ggml_pad_circular`).
    #[doc(alias = "ggml_pad_circular")]
    pub fn circular(n: [i32; 4]) -> Self {
        Self { circular: true, ..Self::right(n) }
    }
}

impl Context {
    /// `a` with more elements at its borders (`ggml_pad_ext`, `ggml_pad_ext_circular`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Param`](crate::Error::Param) where a number is
    /// negative, or one of `left` larger than the dimension while `circular`.
    #[doc(alias = "ggml_pad_ext")]
    #[doc(alias = "ggml_pad_ext_circular")]
    pub fn pad<'c>(&'c self, a: Tensor<'c>, how: Pad) -> Result<Tensor<'c>> {
        let call = Call { op: "pad", operands: &[a] };
        let Pad { left, right, circular } = how;
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.param(left.iter().all(|&n| n >= 0), "left", left, "each must be 0 or more")?;
        call.param(right.iter().all(|&n| n >= 0), "right", right, "each must be 0 or more")?;
        // The kernel goes round once only (H16).
        let once = !circular || left.iter().zip(a.ne()).all(|(&l, n)| i64::from(l) <= n);
        call.param(once, "left", left, "circular padding must be at most the dimension")?;
        let mut ne = a.ne();
        for (n, (l, r)) in ne.iter_mut().zip(left.into_iter().zip(right)) {
            *n = n.saturating_add(i64::from(l) + i64::from(r));
        }
        call.result(ne, DType::F32)?;
        let ([l0, l1, l2, l3], [r0, r1, r2, r3]) = (left, right);
        if circular {
            return self.build("ggml_pad_ext_circular", &[a], |c| {
                // SAFETY: as below; no left padding is larger than its dimension.
                unsafe { sys::ggml_pad_ext_circular(c, a.as_ptr(), l0, r0, l1, r1, l2, r2, l3, r3) }
            });
        }
        self.build("ggml_pad_ext", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c; paddings are not negative, and the result has a
            // size that fits. It keeps `a` as source.
            unsafe { sys::ggml_pad_ext(c, a.as_ptr(), l0, r0, l1, r1, l2, r2, l3, r3) }
        })
    }

    /// Each row of `a` with `left` elements before and `right` after it, which mirror it at its first and its last element
    /// (`ggml_pad_reflect_1d`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, [`Error::Shape`](crate::Error::Shape) unless it is
    /// contiguous, [`Error::Param`](crate::Error::Param) unless both numbers lie in 0 to below the length of a row.
    #[doc(alias = "ggml_pad_reflect_1d")]
    pub fn pad_reflect_1d<'c>(&'c self, a: Tensor<'c>, left: i32, right: i32) -> Result<Tensor<'c>> {
        let call = Call { op: "pad_reflect_1d", operands: &[a] };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        let [n0, n1, n2, n3] = a.ne();
        for (name, n) in [("left", left), ("right", right)] {
            call.param((0..n0).contains(&n.into()), name, n, "it must lie in 0 to below the length of a row")?;
        }
        call.result([n0 + i64::from(left) + i64::from(right), n1, n2, n3], DType::F32)?;
        self.build("ggml_pad_reflect_1d", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c, contiguous and `f32`; paddings lie in what C
            // asserts. The result keeps it as source.
            unsafe { sys::ggml_pad_reflect_1d(c, a.as_ptr(), left, right) }
        })
    }

    /// `a` with its elements moved by `shifts` places, one number per dimension; what moves beyond the end comes in at the
    /// beginning, and the other way round for negative numbers (`ggml_roll`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the elements of each row of `a` lie side by side;
    /// [`Error::Param`](crate::Error::Param) unless each shift is less than the dimension, either way.
    #[doc(alias = "ggml_roll")]
    pub fn roll<'c>(&'c self, a: Tensor<'c>, shifts: [i32; 4]) -> Result<Tensor<'c>> {
        let call = Call { op: "roll", operands: &[a] };
        call.shape(a.layout().has_dense_rows(), "the elements of each row must lie side by side; use `cont`")?;
        let within = shifts.iter().zip(a.ne()).all(|(&s, n)| i64::from(s).abs() < n);
        call.param(within, "shifts", shifts, "each must be less than the dimension, either way")?;
        let [s0, s1, s2, s3] = shifts;
        self.build("ggml_roll", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c, has dense rows, and is larger than the shifts,
            // all that C asserts. The result keeps it as source.
            unsafe { sys::ggml_roll(c, a.as_ptr(), s0, s1, s2, s3) }
        })
    }
}
