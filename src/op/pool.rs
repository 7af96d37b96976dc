//! The options of pooling.

use ggml_sys as sys;

use super::numbered::numbered;
use crate::options::options;

numbered! {
    /// The function that a pooling applies to the elements in a window.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::{Pool1dOptions, PoolOp};
    /// # let ctx = Context::new();
    /// let x = ctx.arange(0.0, 4.0, 1.0)?;
    /// let [max, mean] = [PoolOp::Max, PoolOp::Avg].map(|pool| ctx.pool_1d(x, pool, Pool1dOptions::new([2])));
    /// let (max, mean) = (max?, mean?);
    /// # let (graph, mut sched) = (ctx.graph([max, mean])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!((run.get::<f32>(max)?, run.get::<f32>(mean)?), (vec![1.0, 3.0], vec![0.5, 2.5]));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_op_pool")]
    pub enum PoolOp: sys::ggml_op_pool {
        /// The maximum of the elements. For a window of padding alone, the least finite `f32`.
        Max = GGML_OP_POOL_MAX;
        /// The mean of the elements. Padding counts as 0 in two dimensions, and does not count in one. For a window of
        /// padding alone, 0.
        Avg = GGML_OP_POOL_AVG;
    }
}

options! {
    /// The windows of a pooling. Each option has a value per dimension, the innermost first: `[horizontal]` or
    /// `[horizontal, vertical]`.
    ///
    /// ```
    /// use ggml::{ops::{Pool2dOptions, PoolOp}, prelude::*};
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [8, 6])?;
    /// assert_eq!(ctx.pool_2d(x, PoolOp::Max, Pool2dOptions::new([2, 2]))?.ne(), [4, 3, 1, 1]);
    /// assert_eq!(ctx.pool_2d(x, PoolOp::Avg, Pool2dOptions::new([2, 2]).with_stride([1, 1]))?.ne(), [7, 5, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PoolOptions<const N: usize> {
        /// Windows of this size, side by side.
        new(window: [i32; N]);
        /// Sets the distance between neighbouring windows.
        with_stride(stride: [i32; N] = window);
        /// Sets the padding on each side of the input.
        with_padding(padding: [i32; N] = [0; N]);
    }
}

/// The windows of a 1-d pooling.
pub type Pool1dOptions = PoolOptions<1>;

/// The windows of a 2-d pooling.
pub type Pool2dOptions = PoolOptions<2>;
