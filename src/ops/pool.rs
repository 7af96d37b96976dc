//! Pooling.

use ggml_sys as sys;

use super::check::Call;
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

/// ggml computes output sizes in 32-bit floats, which hold integers up to here.
const EXACT: i64 = 1 << 24;

impl Context {
    /// Combines the elements in windows over the first two dimensions (`ggml_pool_2d`). The result is `f32`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` is contiguous and its first two dimensions are at least a
    /// window's, padding included, and below 2²⁴; [`Error::DType`](crate::Error::DType) unless it is `f32` or `f16`;
    /// [`Error::Param`](crate::Error::Param) unless windows and strides are positive and paddings at most half a window.
    #[doc(alias = "ggml_pool_2d")]
    pub fn pool_2d<'c>(&'c self, x: Tensor<'c>, pool: Pool, how: Pool2d) -> Result<Tensor<'c>> {
        let call = Call { op: "pool_2d", operands: &[x] };
        let Pool2d { window: k, stride: s, padding: p } = how;
        call.param(k.iter().all(|&k| k > 0), "window", k, "both must be positive")?;
        call.param(s.iter().all(|&s| s > 0), "stride", s, "both must be positive")?;
        let padding = p.iter().zip(k).all(|(&p, k)| p >= 0 && p <= k / 2);
        call.param(padding, "padding", p, "both must lie in 0 to half a window")?;
        call.dtype(matches!(x.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
        // The kernel walks from plane to plane by the third stride until the end of the memory (H11).
        call.shape(x.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        let fits = x.ne().iter().zip(k).zip(p).all(|((&n, k), p)| n < EXACT && n + 2 * i64::from(p) >= i64::from(k));
        call.shape(fits, "a window is larger than the padded input, or a dimension is 2^24 or more")?;
        let op = match pool {
            Pool::Max => sys::GGML_OP_POOL_MAX,
            Pool::Avg => sys::GGML_OP_POOL_AVG,
        };
        self.build("ggml_pool_2d", &[x], |c| {
            // SAFETY: the context is live and has room; `x` is live for 'c, contiguous, and at least one window large, so
            // that the output has positive sizes. The result keeps it as source.
            #[expect(clippy::cast_precision_loss, reason = "paddings are at most half a window, which is below 2^24")]
            unsafe {
                sys::ggml_pool_2d(c, x.as_ptr(), op, k[0], k[1], s[0], s[1], p[0] as f32, p[1] as f32)
            }
        })
    }
}
