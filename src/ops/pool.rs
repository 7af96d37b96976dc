//! Pooling.

use ggml_sys as sys;

use super::check::{Call, is_packed};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// What is made of the elements in a window.
#[doc(alias = "ggml_op_pool")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The largest.
    Max,
    /// The mean; elements beyond the border count as 0.
    Avg,
}

/// The windows of a 2-d pooling; both values of a pair are `[horizontal, vertical]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pool2d {
    /// Sizes of a window.
    pub window: [i32; 2],
    /// Steps between neighbouring windows.
    pub stride: [i32; 2],
    /// Elements added on each side of the input.
    pub padding: [i32; 2],
}

impl Pool2d {
    /// Square windows of `n` by `n` that touch but don't overlap.
    pub fn square(n: i32) -> Self {
        Self { window: [n; 2], stride: [n; 2], padding: [0; 2] }
    }
}

/// ggml computes output sizes in 32-bit floats. Where no number is above this, they are exact.
const EXACT: i64 = 1 << 20;
/// The kernel multiplies the sides of a window in 32 bits.
const LARGEST_WINDOW: i32 = (1 << 15) - 1;

impl Context {
    /// Combines the elements in windows over the first two dimensions (`ggml_pool_2d`). The result is `f32`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` has the strides of a new tensor, and its first two dimensions are
    /// at least a window's, padding included, and at most 2²⁰; [`Error::DType`](crate::Error::DType) unless it is `f32` or
    /// `f16`; [`Error::Param`](crate::Error::Param) unless windows lie in 1 to 2¹⁵ - 1, strides in 1 to 2²⁰, and paddings are
    /// at most half a window.
    #[doc(alias = "ggml_pool_2d")]
    pub fn pool_2d<'c>(&'c self, x: Tensor<'c>, pool: Pool, how: Pool2d) -> Result<Tensor<'c>> {
        let call = Call { op: "pool_2d", operands: &[x] };
        let Pool2d { window: k, stride: s, padding: p } = how;
        let windows = k.iter().all(|k| (1..=LARGEST_WINDOW).contains(k));
        call.param(windows, "window", k, format!("both must lie in 1 to {LARGEST_WINDOW}"))?;
        let strides = s.iter().all(|&s| (1..=EXACT).contains(&s.into()));
        call.param(strides, "stride", s, format!("both must lie in 1 to {EXACT}"))?;
        let padding = p.iter().zip(k).all(|(&p, k)| p >= 0 && p <= k / 2);
        call.param(padding, "padding", p, "both must lie in 0 to half a window")?;
        call.dtype(matches!(x.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
        // The kernel walks from plane to plane by the third stride until the end of the memory (H11).
        call.shape(is_packed(x.ptr()), "the operand must have the strides of a new tensor; use `cont`")?;
        let fits = x.ne().iter().zip(k).zip(p).all(|((&n, k), p)| n <= EXACT && n + 2 * i64::from(p) >= i64::from(k));
        call.shape(fits, "a window is larger than the padded input, or a dimension is above 2^20")?;
        let op = match pool {
            Pool::Max => sys::GGML_OP_POOL_MAX,
            Pool::Avg => sys::GGML_OP_POOL_AVG,
        };
        self.build("ggml_pool_2d", &[x], |c| {
            // SAFETY: the context is live and has room; `x` is live for 'c, packed, and at least one window large, so that
            // the output has positive sizes. The result keeps it as source.
            #[expect(clippy::cast_precision_loss, reason = "paddings are at most half a window")]
            unsafe {
                sys::ggml_pool_2d(c, x.as_ptr(), op, k[0], k[1], s[0], s[1], p[0] as f32, p[1] as f32)
            }
        })
    }
}
