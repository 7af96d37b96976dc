//! Constants, sequences and embeddings of time steps.

use crate::ops::prelude::*;

impl Context {
    /// A tensor of the operand's shape and type with `value` in all elements (`ggml_fill`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let ones = ctx.fill(ctx.input("like", DType::F32, [2, 3])?, 1.0)?;
    /// # let (graph, mut sched) = (ctx.graph([ones])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// # run.set_at(graph.tensor("like").unwrap(), 0, &[0.0_f32])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(ones)?, [1.0; 6]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16`; [`Error::Shape`](crate::Error::Shape) unless it
    /// is contiguous.
    #[doc(alias = "ggml_fill")]
    pub fn fill<'c>(&'c self, a: Tensor<'c>, value: f32) -> Result<Tensor<'c>> {
        fillable(Call { op: entered!("fill"), operands: &[a] }, a)?;
        build!(self, sys::ggml_fill(a; value))
    }

    /// Writes `value` to all elements of `a`, and returns a view of it (`ggml_fill_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::fill`] and [`Context::relu_inplace`].
    #[doc(alias = "ggml_fill_inplace")]
    pub fn fill_inplace<'c>(&'c self, a: Tensor<'c>, value: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("fill_inplace"), operands: &[a] };
        call.in_place(a, &[])?;
        fillable(call, a)?;
        build!(self, sys::ggml_fill_inplace(a; value))
    }

    /// The numbers from `start` to below `stop` in steps of `step` (`ggml_arange`): `[n]`, of `f32`. The count is
    /// computed in `f32` too.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.arange(0.0, 1.0, 0.25)?;
    /// # let (graph, mut sched) = (ctx.graph([x])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(x)?, [0.0, 0.25, 0.5, 0.75]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless all three are finite, `stop` is above `start` and `step` above 0;
    /// [`Error::Shape`](crate::Error::Shape) where there would be too many numbers.
    #[doc(alias = "ggml_arange")]
    pub fn arange(&self, start: f32, stop: f32, step: f32) -> Result<Tensor<'_>> {
        let call = Call { op: entered!("arange"), operands: &[] };
        call.param(start.is_finite(), "start", start, "it must be finite")?;
        call.param(stop.is_finite() && stop > start, "stop", stop, "it must be finite and above `start`")?;
        // C's builder and kernel compute the number of steps in the same way.
        let count = ((stop - start) / step).ceil();
        let steps = step.is_finite() && step > 0.0 && count >= 1.0;
        call.param(steps, "step", step, "it must be finite, above 0, and not too small or large for the range")?;
        #[expect(clippy::cast_possible_truncation, reason = "what is too large becomes the largest, which is refused")]
        let n = count as i64;
        call.result([n, 1, 1, 1], DType::F32)?;
        build!(self, sys::ggml_arange(; start, stop, step))
    }

    /// Embeds each time step in `dim` numbers (`ggml_timestep_embedding`): the cosines, then the sines, of its products
    /// with `dim / 2` frequencies, from 1 down towards `1 / max_period`; an odd `dim` ends in 0. `[n]` becomes `[dim,
    /// n]`, of `f32`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let steps = ctx.arange(0.0, 2.0, 1.0)?;
    /// let y = ctx.timestep_embedding(steps, 4, 10_000)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?[..4], [1.0, 1.0, 0.0, 0.0]); // cosines and sines of 0
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless the steps are `f32`; [`Error::Shape`](crate::Error::Shape) unless
    /// they are one contiguous row; [`Error::Param`](crate::Error::Param) unless `dim` and `max_period` are above 0.
    #[doc(alias = "ggml_timestep_embedding")]
    pub fn timestep_embedding<'c>(&'c self, steps: Tensor<'c>, dim: i32, max_period: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("timestep_embedding"), operands: &[steps] };
        call.dtype(steps.dtype() == DType::F32, "the steps must be f32")?;
        let [n, rest @ ..] = steps.ne();
        call.shape(rest == [1; 3] && steps.is_contiguous(), "the steps must be one contiguous row")?;
        call.param(dim > 0, "dim", dim, "it must be above 0")?;
        call.param(max_period > 0, "max_period", max_period, "it must be above 0")?;
        call.result([dim.into(), n, 1, 1], DType::F32)?;
        build!(self, sys::ggml_timestep_embedding(steps; dim, max_period))
    }
}

fn fillable(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the operand must be f32 or f16")?;
    call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")
}
