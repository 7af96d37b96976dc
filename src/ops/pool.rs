//! Pooling.

use ggml_sys as sys;

use super::check::Call;
use crate::context::{Context, build};
use crate::dtype::DType;
use crate::error::Result;
use crate::options::options;
use crate::tensor::Tensor;

/// The function of the elements in a window.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::{Pool, Pool1d};
/// # let ctx = Context::new();
/// let x = ctx.arange(0.0, 4.0, 1.0)?;
/// let [max, mean] = [Pool::Max, Pool::Avg].map(|pool| ctx.pool_1d(x, pool, Pool1d::new([2])));
/// let (max, mean) = (max?, mean?);
/// # let (graph, mut sched) = (ctx.graph([max, mean])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?; run.compute()?;
/// assert_eq!((run.get::<f32>(max)?, run.get::<f32>(mean)?), (vec![1.0, 3.0], vec![0.5, 2.5]));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_op_pool")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The maximum.
    Max,
    /// The mean. Padding counts as 0 in two dimensions, and does not count in one.
    Avg,
}

impl Pool {
    pub(crate) fn raw(self) -> sys::ggml_op_pool {
        match self {
            Self::Max => sys::GGML_OP_POOL_MAX,
            Self::Avg => sys::GGML_OP_POOL_AVG,
        }
    }
}

options! {
    /// The windows of a pooling. Each option has a value per dimension, the innermost first: `[horizontal]` or
    /// `[horizontal, vertical]`.
    ///
    /// ```
    /// use ggml::{Pool, Pool2d, prelude::*};
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [8, 6])?;
    /// assert_eq!(ctx.pool_2d(x, Pool::Max, Pool2d::new([2, 2]))?.ne(), [4, 3, 1, 1]);
    /// assert_eq!(ctx.pool_2d(x, Pool::Avg, Pool2d::new([2, 2]).with_stride([1, 1]))?.ne(), [7, 5, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Windows<const N: usize> {
        /// Adjacent windows of this size.
        new(window: [i32; N]);
        /// Sets the distance between neighbouring windows.
        with_stride(stride: [i32; N] = window);
        /// Sets the padding on each side of the input.
        with_padding(padding: [i32; N] = [0; N]);
    }
}

/// The windows of a 1-d pooling.
pub type Pool1d = Windows<1>;
/// The windows of a 2-d pooling.
pub type Pool2d = Windows<2>;

/// The largest dimension and stride. ggml computes output sizes in 32-bit floats, which are exact up to here.
const EXACT: i64 = 1 << 20;
/// The largest side of a window: the kernel multiplies the sides in 32 bits.
const LARGEST_WINDOW: i32 = (1 << 15) - 1;

impl<const N: usize> Windows<N> {
    /// The output sizes in the first `N` dimensions of `input`, which the windows move over.
    fn outputs(self, call: Call<'_, '_>, input: Tensor<'_>) -> Result<[i64; N]> {
        let Self { window: k, stride: s, padding: p } = self;
        let windows = k.iter().all(|k| (1..=LARGEST_WINDOW).contains(k));
        call.param(windows, "window", k, format_args!("each must lie in 1 to {LARGEST_WINDOW}"))?;
        let strides = s.iter().all(|&s| (1..=EXACT).contains(&s.into()));
        call.param(strides, "stride", s, format_args!("each must lie in 1 to {EXACT}"))?;
        let padding = p.iter().zip(k).all(|(&p, k)| p >= 0 && p <= k / 2);
        call.param(padding, "padding", p, "each must lie in 0 to half a window")?;
        let mut outputs = [0; N];
        let windows = k.into_iter().zip(s).zip(p).map(|((k, s), p)| [k, s, p].map(i64::from));
        for (output, (n, [k, s, p])) in outputs.iter_mut().zip(input.ne().into_iter().zip(windows)) {
            let room = n.saturating_add(2 * p) - k;
            *output = if room < 0 || n > EXACT { 0 } else { room / s + 1 };
        }
        let fits = outputs.iter().all(|&n| n > 0);
        call.shape(fits, "a window is larger than the padded input, or a dimension is above 2^20")?;
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
    pub fn pool_1d<'c>(&'c self, x: Tensor<'c>, pool: Pool, how: Pool1d) -> Result<Tensor<'c>> {
        let call = Call { op: "pool_1d", operands: &[x] };
        operand(call, x)?;
        how.outputs(call, x)?;
        let Windows { window: [k], stride: [s], padding: [p] } = how;
        // SAFETY: the context is live and has room; `x` is live for 'c and packed (`operand`); `outputs` has
        // checked that at least one window fits, so the output sizes are positive. The result keeps `x` as source.
        unsafe { build!(self, &[x], sys::ggml_pool_1d(c, x.as_ptr(), pool.raw(), k, s, p)) }
    }

    /// Pools windows over the first two dimensions (`ggml_pool_2d`). The result has one `f32` per window.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::{Pool, Pool2d};
    /// # let ctx = Context::new();
    /// let image = ctx.reshape(ctx.arange(0.0, 16.0, 1.0)?, [4, 4])?;
    /// let y = ctx.pool_2d(image, Pool::Max, Pool2d::new([2, 2]))?;
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
    /// `f16`; [`Error::Param`](crate::Error::Param) unless windows lie in 1 to 2¹⁵ - 1, strides in 1 to 2²⁰, and paddings are
    /// at most half a window.
    #[doc(alias = "ggml_pool_2d")]
    pub fn pool_2d<'c>(&'c self, x: Tensor<'c>, pool: Pool, how: Pool2d) -> Result<Tensor<'c>> {
        let call = Call { op: "pool_2d", operands: &[x] };
        operand(call, x)?;
        how.outputs(call, x)?;
        let Windows { window: [k0, k1], stride: [s0, s1], padding } = how;
        let [p0, p1] = padding.map(small);
        // SAFETY: as in `pool_1d`.
        unsafe { build!(self, &[x], sys::ggml_pool_2d(c, x.as_ptr(), pool.raw(), k0, k1, s0, s1, p0, p1)) }
    }

    /// The gradient of [`Context::pool_2d`] with respect to `x`, from that of its result, `grad` (`ggml_pool_2d_back`).
    /// The mean spreads a gradient over its window; the maximum passes it to the first largest element.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `grad` is contiguous and has the shape of the forward result;
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`; otherwise as [`Context::pool_2d`].
    #[doc(alias = "ggml_pool_2d_back")]
    pub fn pool_2d_back<'c>(&'c self, grad: Tensor<'c>, x: Tensor<'c>, pool: Pool, how: Pool2d) -> Result<Tensor<'c>> {
        let call = Call { op: "pool_2d_back", operands: &[grad, x] };
        operand(call, x)?;
        call.dtype([grad, x].iter().all(|t| t.dtype() == DType::F32), "both operands must be f32")?;
        let ([w, h], [_, _, n2, n3]) = (how.outputs(call, x)?, x.ne());
        // The kernel assumes that their shapes belong together (H12).
        let fits = grad.ne() == [w, h, n2, n3] && grad.is_contiguous();
        call.shape(fits, "the gradient must be contiguous, and have the shape that `pool_2d` makes of the operand")?;
        let Windows { window: [k0, k1], stride: [s0, s1], padding } = how;
        let [p0, p1] = padding.map(small);
        // SAFETY: the context is live and has room; the operands are live for 'c and `f32`, `x` is packed and
        // `grad` has the shape of its pooling (all checked above). The result keeps both.
        unsafe {
            build!(
                self,
                &[grad, x],
                sys::ggml_pool_2d_back(c, grad.as_ptr(), x.as_ptr(), pool.raw(), k0, k1, s0, s1, p0, p1)
            )
        }
    }
}

fn operand(call: Call<'_, '_>, x: Tensor<'_>) -> Result<()> {
    call.dtype(matches!(x.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
    // Kernels find row `i` at `i * nb[1]` (H10), or step by `nb[2]` to the end of the memory (H11).
    call.shape(x.layout().is_packed(), "the operand must have the strides of a new tensor; use `cont`")
}

#[expect(clippy::cast_precision_loss, reason = "paddings are at most half a window")]
fn small(padding: i32) -> f32 {
    padding as f32
}
