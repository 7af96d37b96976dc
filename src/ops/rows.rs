//! Rows picked by index.

use super::index::{self, Indices};
use crate::ops::prelude::*;

impl Context {
    /// Gathers rows of `a` by the indices in `rows` (`ggml_get_rows`): with `a` of ggml shape `[n, m, n2, n3]` and
    /// `rows` of `[k, n2, n3]`, the result is `[n, k, n2, n3]`, of `f32`, or `i32` for an `a` of `i32`.
    ///
    /// The indices must be an input, a view of one, or made by `argsort` or `top_k`. Those of an input are checked when
    /// it is set, because ggml's kernels abort on indices that are out of range, or read out of bounds.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let table = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [2, 3])?; // an embedding of 3 tokens
    /// let tokens = ctx.input("tokens", DType::I32, [2])?;
    /// let embedded = ctx.get_rows(table, tokens)?;
    /// # let (graph, mut sched) = (ctx.graph([embedded])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// assert!(run.set(tokens, &[2, 3]).is_err(), "there are rows 0, 1 and 2");
    /// run.set(tokens, &[2, 0])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(embedded)?, [4.0, 5.0, 0.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `rows` is `i32`; [`Error::Shape`](crate::Error::Shape) unless its
    /// indices are known to be in range, and shapes are as above.
    #[doc(alias = "ggml_get_rows")]
    pub fn get_rows<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("get_rows");
        self.rows_of(a, rows, Indices::Checked)
    }

    /// [`Context::get_rows`] with unchecked indices, such as those in a [`State`](crate::State) or from any operation.
    ///
    /// # Errors
    ///
    /// As [`Context::get_rows`], except that indices may come from anywhere. Those of an input are still checked.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all indices must be at least 0 and less than the second dimension of `a`:
    /// kernels read out of bounds otherwise, or end the process.
    pub unsafe fn get_rows_unchecked<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("get_rows_unchecked");
        self.rows_of(a, rows, Indices::Promised)
    }

    fn rows_of<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>, indices: Indices) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("get_rows"), operands: &[a, rows] };
        call.dtype(rows.dtype() == DType::I32, "the row indices (second) must be i32")?;
        let ([n, n_rows, a2, a3], [r0, r1, r2, r3]) = (a.ne(), rows.ne());
        call.shape(
            a2 == r1 && a3 == r2 && r3 == 1,
            "the upper dimensions of the row indices must be those of the first operand",
        )?;
        call.shape(a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")?;
        indices.check(call, rows, n_rows)?;
        call.result([n, r0, r1, r2], DType::F32)?;
        build!(self, sys::ggml_get_rows(a, rows))
    }

    /// The gradient of [`Context::get_rows`] (`ggml_get_rows_back`): adds the rows of `a` to the rows, given by the
    /// indices in `rows`, of a zero matrix of the shape of `like`. Rows with several indices get the sum.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16` and `rows` is `i32`;
    /// [`Error::Shape`](crate::Error::Shape) unless `a` and `like` are matrices with the same row length, `rows` has no
    /// more indices than `a` has rows, and the indices are known to be in range, as for [`Context::get_rows`].
    #[doc(alias = "ggml_get_rows_back")]
    pub fn get_rows_back<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("get_rows_back"), operands: &[a, rows, like] };
        call.dtype(rows.dtype() == DType::I32, "the row indices (second) must be i32")?;
        call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the rows (first) must be f32 or f16")?;
        let ([n, n_rows, a2, a3], [l0, l1, l2, l3]) = (a.ne(), like.ne());
        call.shape([a2, a3, l2, l3] == [1; 4], "rows and result must be matrices")?;
        call.shape(n == l0, "the first dimensions of `a` and `like` must be equal")?;
        // H12: C takes any number of indices, even more than there are rows.
        let [n_indices, r1, r2, r3] = rows.ne();
        let fits = n_indices <= n_rows && [r1, r2, r3] == [1; 3];
        call.shape(fits, "the indices must be a vector that is not longer than the first operand has rows")?;
        index::check(call, rows, l1)?;
        call.result([n, l1, 1, 1], DType::F32)?;
        build!(self, sys::ggml_get_rows_back(a, rows, like))
    }

    /// Scatters the rows of `b` to the rows of `a` given by the indices in `rows`, converts them to the type of `a`,
    /// and returns a view of `a` (`ggml_set_rows`). With `a` of ggml shape `[n, m, n2, n3]`, `b` is `[n, k, n2, n3]`
    /// and `rows` is `[k, m2, m3]`, where `m2` divides `n2` and `m3` divides `n3`.
    ///
    /// The indices must be an input, a view of one, or made by `argsort` or `top_k`, and distinct in each plane of `a`,
    /// because threads write rows in parallel. So an input must be set as a whole, which fails if an index is repeated.
    ///
    /// Operations that read `a` itself are not ordered after the write: let them read the result. `a` may be of blocks, and
    /// of `i32` as in [`Context::cast`]; before ggml 0.28, the CPU wrote rows of `f16` to `f16` only.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("cache", DType::F32, [2, 4])?;
    /// let state = builder.place_state(Device::cpu()?)?;
    /// let new = ctx.reshape(ctx.arange(1.0, 5.0, 1.0)?, [2, 2])?;
    /// let slots = ctx.input("slots", DType::I64, [2])?;
    /// let cache = ctx.set_rows(state.tensor("cache")?, new, slots)?;
    /// # let (graph, mut sched) = (ctx.graph([cache])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(slots, &[3_i64, 0])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(cache)?, [3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `b` is `f32` or `f16` and `rows` is `i32` or `i64`;
    /// [`Error::Shape`](crate::Error::Shape) where shapes do not fit, indices are not known to be in range and
    /// distinct, rows of `a` or `b` are not contiguous, both share memory, or `a` lies in an input;
    /// [`Error::Frozen`](crate::Error::Frozen) where it lies in weights.
    #[doc(alias = "ggml_set_rows")]
    pub fn set_rows<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("set_rows");
        self.with_rows(a, b, rows, Indices::Checked)
    }

    /// [`Context::set_rows`] with unchecked indices, such as those in a [`State`](crate::State) or from any operation.
    ///
    /// # Errors
    ///
    /// As [`Context::set_rows`], except that indices may come from anywhere. Those of an input are still checked.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all indices must be at least 0 and less than the second dimension of `a`, and
    /// distinct in each row of `rows`: kernels write out of bounds otherwise, end the process, or write to one row from
    /// two threads.
    pub unsafe fn set_rows_unchecked<'c>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        rows: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        entered!("set_rows_unchecked");
        self.with_rows(a, b, rows, Indices::Promised)
    }

    fn with_rows<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, rows: Tensor<'c>, indices: Indices) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("set_rows"), operands: &[a, b, rows] };
        call.writable(a)?;
        call.dtype(matches!(b.dtype(), DType::F32 | DType::F16), "the rows (second) must be f32 or f16")?;
        call.dtype(matches!(rows.dtype(), DType::I32 | DType::I64), "the row indices (third) must be i32 or i64")?;
        let ([a0, a1, a2, a3], [b0, b1, b2, b3], [r0, r1, r2, r3]) = (a.ne(), b.ne(), rows.ne());
        call.shape([a0, a2, a3] == [b0, b2, b3], "both must have the same dimensions, except the number of rows")?;
        call.shape(r0 == b1 && r3 == 1, "there must be one index for each row of the second operand")?;
        call.shape(b2 % r1 == 0 && b3 % r2 == 0, "the upper dimensions of the indices must divide those of the rows")?;
        let dense = a.ptr().has_contiguous_rows() && b.ptr().has_contiguous_rows();
        call.shape(dense, "rows must be contiguous; use `cont`")?;
        let apart = !a.ptr().overlaps(b.ptr()) && !a.ptr().overlaps(rows.ptr());
        call.shape(apart, "the first operand must not share memory with another; copy that (`dup`) before")?;
        indices.check(call, rows, a1)?;
        indices.check_distinct(call, rows)?;
        build!(self, sys::ggml_set_rows(a, b, rows))
    }
}
