//! Sums, means, positions of the largest elements, and counts.

use super::check::Entered;
use crate::ops::prelude::*;

impl Context {
    /// The sum of all elements (`ggml_sum`): a tensor of one element, of the operand's type.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.arange(1.0, 5.0, 1.0)?; // 1, 2, 3, 4
    /// let sum = ctx.sum(x)?;
    /// # let (graph, mut sched) = (ctx.graph([sum])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(sum)?, [10.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`;
    /// [`Error::Shape`](crate::Error::Shape) unless its rows are contiguous. Since ggml 0.28, `f32` may have any layout.
    #[doc(alias = "ggml_sum")]
    pub fn sum<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("sum"), operands: &[a] };
        call.dtype(a.dtype().is_float(), "the operand must be f32, f16 or bf16")?;
        let any = cfg!(ggml_0_28) && a.dtype() == DType::F32;
        call.shape(any || a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")?;
        build!(self, sys::ggml_sum(a))
    }

    /// The sum of each row (`ggml_sum_rows`): `[n, …]` becomes `[1, …]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?; // rows 0, 1, 2 and 3, 4, 5
    /// let sums = ctx.sum_rows(x)?;
    /// # let (graph, mut sched) = (ctx.graph([sums])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!((sums.ne(), run.get::<f32>(sums)?), ([1, 2, 1, 1], vec![3.0, 12.0]));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless its rows
    /// are contiguous.
    #[doc(alias = "ggml_sum_rows")]
    pub fn sum_rows<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        rows_of_f32(entered!("sum_rows"), a)?;
        build!(self, sys::ggml_sum_rows(a))
    }

    /// The mean of each row (`ggml_mean`): `[n, …]` becomes `[1, …]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?; // rows 0, 1, 2 and 3, 4, 5
    /// let means = ctx.mean(x)?;
    /// # let (graph, mut sched) = (ctx.graph([means])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(means)?, [1.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::sum_rows`].
    #[doc(alias = "ggml_mean")]
    pub fn mean<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        rows_of_f32(entered!("mean"), a)?;
        build!(self, sys::ggml_mean(a))
    }

    /// The index of the largest element of each row (`ggml_argmax`): `[n, rows]` becomes `[rows]`, of `i32`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let scores = ctx.input("scores", DType::F32, [3, 2])?;
    /// let best = ctx.argmax(scores)?;
    /// # let (graph, mut sched) = (ctx.graph([best])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(scores, &[0.1_f32, 0.7, 0.2, 0.5, 0.3, 0.2])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<i32>(best)?, [1, 0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::sum_rows`]; [`Error::Shape`](crate::Error::Shape) unless the upper two dimensions are 1.
    #[doc(alias = "ggml_argmax")]
    pub fn argmax<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        rows_of_f32(entered!("argmax"), a)?;
        let [n, _, a2, a3] = a.ne();
        let matrix = a2 == 1 && a3 == 1 && i32::try_from(n).is_ok();
        Call { op: entered!("argmax"), operands: &[a] }
            .shape(matrix, "the operand must be a matrix with less than 2^31 elements per row")?;
        build!(self, sys::ggml_argmax(a))
    }

    /// The cumulative sums of each row (`ggml_cumsum`): element `i` is the sum of elements 0 to `i`. The shape stays.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let sums = ctx.cumsum(ctx.arange(1.0, 5.0, 1.0)?)?; // of 1, 2, 3, 4
    /// # let (graph, mut sched) = (ctx.graph([sums])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(sums)?, [1.0, 3.0, 6.0, 10.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::sum_rows`].
    #[doc(alias = "ggml_cumsum")]
    pub fn cumsum<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        rows_of_f32(entered!("cumsum"), a)?;
        build!(self, sys::ggml_cumsum(a))
    }

    /// Counts the elements of `a` that equal those of `b` at the same index (`ggml_count_equal`): one `i64`.
    ///
    /// The CPU kernel takes vectors and matrices only; `reshape` others.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::I32, [4])?, ctx.input("b", DType::I32, [4])?];
    /// let n = ctx.count_equal(a, b)?;
    /// # let (graph, mut sched) = (ctx.graph([n])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(a, &[1, 2, 3, 4])?;
    /// run.set(b, &[1, 0, 3, 0])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<i64>(n)?, [2]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both are `i32`; [`Error::Shape`](crate::Error::Shape) unless both
    /// have the same shape.
    #[doc(alias = "ggml_count_equal")]
    pub fn count_equal<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("count_equal"), operands: &[a, b] };
        call.dtype([a, b].iter().all(|t| t.dtype() == DType::I32), "both operands must be i32")?;
        call.shape(a.ne() == b.ne(), "both operands must have the same shape")?;
        build!(self, sys::ggml_count_equal(a, b))
    }
}

fn rows_of_f32(op: Entered, a: Tensor<'_>) -> Result<()> {
    let call = Call { op, operands: &[a] };
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.shape(a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")
}
