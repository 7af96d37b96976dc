//! Pooling.

use crate::op::{Pool1dOptions, Pool2dOptions, PoolOp, PoolOptions};
use crate::ops::prelude::*;

/// The largest dimension and stride of a pooling. ggml computes output sizes in 32-bit floats, which are exact up to
/// here.
const EXACT: i64 = 1 << 20;
/// The largest side of a window: the kernel multiplies the sides in 32 bits.
const LARGEST_WINDOW: i32 = (1 << 15) - 1;

impl<const N: usize> PoolOptions<N> {
    /// The shape of the result of pooling `input`. The windows move over the first `N` dimensions.
    fn outputs(self, call: Call<'_, '_>, input: Tensor<'_>) -> Result<[i64; 4]> {
        let Self { window: k, stride: s, padding: p } = self;
        let windows = k.iter().all(|k| (1..=LARGEST_WINDOW).contains(k));
        call.param(windows, "window", k, format_args!("each must lie in 1 to {LARGEST_WINDOW}"))?;
        let strides = s.iter().all(|&s| (1..=EXACT).contains(&s.into()));
        call.param(strides, "stride", s, format_args!("each must lie in 1 to {EXACT}"))?;
        let padding = p.iter().all(|&p| (0..=EXACT).contains(&p.into()));
        call.param(padding, "padding", p, format_args!("each must lie in 0 to {EXACT}"))?;
        let mut outputs = input.ne();
        let windows = k.into_iter().zip(s).zip(p).map(|((k, s), p)| [k, s, p].map(i64::from));
        for (output, (n, [k, s, p])) in outputs.iter_mut().zip(input.ne().into_iter().zip(windows)) {
            let room = n.saturating_add(2 * p) - k;
            *output = if room < 0 || n > EXACT { 0 } else { room / s + 1 };
        }
        let fits = outputs.iter().all(|&n| n > 0);
        call.shape(fits, "a window is larger than the padded input, or a dimension is above 2^20")?;
        call.result(outputs, DType::F32)?;
        Ok(outputs)
    }
}

impl Context {
    /// Pools windows over the first dimension (`ggml_pool_1d`). The result has one `f32` per window.
    ///
    /// # Errors
    ///
    /// As [`Context::pool_2d`], for one dimension.
    #[doc(alias = "ggml_pool_1d")]
    pub fn pool_1d<'c>(&'c self, x: Tensor<'c>, pool: PoolOp, how: Pool1dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("pool_1d"), operands: &[x] };
        operand(call, x)?;
        how.outputs(call, x)?;
        let PoolOptions { window: [k], stride: [s], padding: [p] } = how;
        build!(self, sys::ggml_pool_1d(x; pool.raw(), k, s, p))
    }

    /// Pools windows over the first two dimensions (`ggml_pool_2d`). The result has one `f32` per window.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::{Pool2dOptions, PoolOp};
    /// # let ctx = Context::new();
    /// let image = ctx.reshape(ctx.arange(0.0, 16.0, 1.0)?, [4, 4])?;
    /// let y = ctx.pool_2d(image, PoolOp::Max, Pool2dOptions::new([2, 2]))?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [5.0, 7.0, 13.0, 15.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` has the strides of a new tensor, and its first two dimensions are
    /// at least a window's, padding included, and at most 2²⁰; [`Error::DType`](crate::Error::DType) unless it is `f32` or
    /// `f16`; [`Error::Param`](crate::Error::Param) unless windows lie in 1 to 2¹⁵ - 1, strides in 1 to 2²⁰, and paddings in
    /// 0 to 2²⁰.
    #[doc(alias = "ggml_pool_2d")]
    pub fn pool_2d<'c>(&'c self, x: Tensor<'c>, pool: PoolOp, how: Pool2dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("pool_2d"), operands: &[x] };
        operand(call, x)?;
        how.outputs(call, x)?;
        let PoolOptions { window: [k0, k1], stride: [s0, s1], padding } = how;
        let [p0, p1] = padding.map(small);
        build!(self, sys::ggml_pool_2d(x; pool.raw(), k0, k1, s0, s1, p0, p1))
    }

    /// The gradient of [`Context::pool_2d`] with respect to `x`, from that of its result, `grad` (`ggml_pool_2d_back`).
    /// The mean spreads a gradient over its window; the maximum passes it to the first largest element.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `grad` is contiguous and has the shape of the forward result;
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`; otherwise as [`Context::pool_2d`].
    #[doc(alias = "ggml_pool_2d_back")]
    pub fn pool_2d_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        x: Tensor<'c>,
        pool: PoolOp,
        how: Pool2dOptions,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("pool_2d_back"), operands: &[grad, x] };
        operand(call, x)?;
        call.dtype([grad, x].iter().all(|t| t.dtype() == DType::F32), "both operands must be f32")?;
        // The kernel assumes that gradient and operand have shapes that belong together (H12).
        let fits = grad.ne() == how.outputs(call, x)? && grad.is_contiguous();
        call.shape(fits, "the gradient must be contiguous, and have the shape that `pool_2d` makes of the operand")?;
        let PoolOptions { window: [k0, k1], stride: [s0, s1], padding } = how;
        let [p0, p1] = padding.map(small);
        build!(self, sys::ggml_pool_2d_back(grad, x; pool.raw(), k0, k1, s0, s1, p0, p1))
    }
}

fn operand(call: Call<'_, '_>, x: Tensor<'_>) -> Result<()> {
    call.dtype(matches!(x.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
    // Kernels find row `i` at `i * nb[1]` (H10), or step by `nb[2]` to the end of the memory (H11), so the operand must
    // be packed.
    call.shape(x.layout().is_packed(), "the operand must have the strides of a new tensor; use `cont`")
}

#[expect(clippy::cast_precision_loss, reason = "paddings are at most 2^20")]
fn small(padding: i32) -> f32 {
    padding as f32
}
