//! Padding, and rolling elements around.

use crate::op::PadOptions;
use crate::ops::prelude::*;

impl Context {
    /// Pads `a` (`ggml_pad_ext`, `ggml_pad_ext_circular`). Each dimension grows by `left + right`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::PadOptions;
    /// # let ctx = Context::new();
    /// let y = ctx.pad(ctx.arange(1.0, 3.0, 1.0)?, PadOptions::new().with_right([2, 0, 0, 0]))?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Param`](crate::Error::Param) where a number is
    /// negative, or one of `left` larger than the dimension while `circular`.
    #[doc(alias = "ggml_pad")]
    #[doc(alias = "ggml_pad_circular")]
    #[doc(alias = "ggml_pad_ext")]
    #[doc(alias = "ggml_pad_ext_circular")]
    pub fn pad<'c>(&'c self, a: Tensor<'c>, how: PadOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("pad"), operands: &[a] };
        let PadOptions { left, right, circular } = how;
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.param(left.iter().all(|&n| n >= 0), "left", left, "each must be 0 or more")?;
        call.param(right.iter().all(|&n| n >= 0), "right", right, "each must be 0 or more")?;
        // For circular padding, the kernel wraps around only once (H16).
        let once = !circular || left.iter().zip(a.ne()).all(|(&l, n)| i64::from(l) <= n);
        call.param(once, "left", left, "circular padding must be at most the dimension")?;
        let mut ne = a.ne();
        for (n, (l, r)) in ne.iter_mut().zip(left.into_iter().zip(right)) {
            *n = n.saturating_add(i64::from(l) + i64::from(r));
        }
        call.result(ne, DType::F32)?;
        let ([l0, l1, l2, l3], [r0, r1, r2, r3]) = (left, right);
        if circular {
            return build!(self, sys::ggml_pad_ext_circular(a; l0, r0, l1, r1, l2, r2, l3, r3));
        }
        build!(self, sys::ggml_pad_ext(a; l0, r0, l1, r1, l2, r2, l3, r3))
    }

    /// Pads each row of `a` with `left` elements before and `right` after it, which mirror the row at its first and
    /// last element (`ggml_pad_reflect_1d`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.pad_reflect_1d(ctx.arange(0.0, 4.0, 1.0)?, 2, 1)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [2.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, [`Error::Shape`](crate::Error::Shape) unless it is
    /// contiguous, [`Error::Param`](crate::Error::Param) unless both are at least 0 and less than the row length.
    #[doc(alias = "ggml_pad_reflect_1d")]
    pub fn pad_reflect_1d<'c>(&'c self, a: Tensor<'c>, left: i32, right: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("pad_reflect_1d"), operands: &[a] };
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        let [n0, n1, n2, n3] = a.ne();
        for (name, n) in [("left", left), ("right", right)] {
            call.param((0..n0).contains(&n.into()), name, n, "it must be at least 0 and less than the row length")?;
        }
        call.result([n0 + i64::from(left) + i64::from(right), n1, n2, n3], DType::F32)?;
        build!(self, sys::ggml_pad_reflect_1d(a; left, right))
    }

    /// Moves the elements of `a` cyclically by `shifts`, one number per dimension (`ggml_roll`). Positive numbers move
    /// towards higher indices.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.roll(ctx.arange(0.0, 4.0, 1.0)?, [1, 0, 0, 0])?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [3.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the rows of `a` are contiguous;
    /// [`Error::Param`](crate::Error::Param) unless the absolute value of each shift is less than the dimension.
    #[doc(alias = "ggml_roll")]
    pub fn roll<'c>(&'c self, a: Tensor<'c>, shifts: [i32; 4]) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("roll"), operands: &[a] };
        call.shape(a.layout().has_dense_rows(), "rows must be contiguous; use `cont`")?;
        let within = shifts.iter().zip(a.ne()).all(|(&s, n)| i64::from(s).abs() < n);
        call.param(within, "shifts", shifts, "the absolute value of each must be less than the dimension")?;
        let [s0, s1, s2, s3] = shifts;
        build!(self, sys::ggml_roll(a; s0, s1, s2, s3))
    }
}
