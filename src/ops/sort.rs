//! Sorting rows by index: `argsort` and `top_k`.
//!
//! ggml's CPU kernels pass a comparison by `<` to `std::sort` and `std::partial_sort`. With NaN, `<` is no order: the
//! behaviour is undefined, and the results, which are used as indices, may be out of range. So each builder here first
//! clamps its operand to the infinities, which keeps all numbers and replaces NaN.

use crate::op::SortOrder;
use crate::ops::prelude::*;

impl Context {
    /// The indices that sort each row (`ggml_argsort`): `i32`, of the shape of `a`. Equal elements come in any order.
    /// NaN counts as infinite, on the CPU as positive infinity.
    ///
    /// The result may be used as indices, such as those of [`Context::get_rows`].
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::SortOrder;
    /// # let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3])?;
    /// let order = ctx.argsort(x, SortOrder::Desc)?;
    /// # let (graph, mut sched) = (ctx.graph([order])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[0.2_f32, 0.9, 0.5])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<i32>(order)?, [1, 2, 0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless its rows
    /// are contiguous, evenly spaced, and shorter than 2³¹.
    #[doc(alias = "ggml_argsort")]
    pub fn argsort<'c>(&'c self, a: Tensor<'c>, order: SortOrder) -> Result<Tensor<'c>> {
        sortable(Call { op: entered!("argsort"), operands: &[a] }, a)?;
        let a = self.without_nan(a)?;
        build!(self, sys::ggml_argsort(a; order.raw()))
    }

    /// The indices of the `k` largest elements of each row, the largest first (`ggml_argsort_top_k`): `[k, …]`, a view
    /// of the result of [`Context::argsort`].
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("logits", DType::F32, [5])?;
    /// let best = ctx.argsort_top_k(x, 2)?;
    /// # let (graph, mut sched) = (ctx.graph([best])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[0.1_f32, 0.5, 0.2, 0.9, 0.3])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<i32>(best)?, [3, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::argsort`]; [`Error::Param`](crate::Error::Param) unless `k` lies in 1 to the row length.
    #[doc(alias = "ggml_argsort_top_k")]
    pub fn argsort_top_k<'c>(&'c self, a: Tensor<'c>, k: i32) -> Result<Tensor<'c>> {
        some_of_row(Call { op: entered!("argsort_top_k"), operands: &[a] }, a, k)?;
        let a = self.without_nan(a)?;
        build!(self, sys::ggml_argsort_top_k(a; k))
    }

    /// The indices of the `k` largest elements of each row, in any order (`ggml_top_k`): `[k, …]`, `i32`. NaN: as in
    /// [`Context::argsort`].
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let scores = ctx.input("scores", DType::F32, [8, 5])?; // of 8 experts, for 5 tokens
    /// let picked = ctx.top_k(scores, 2)?;
    /// assert_eq!((picked.ne(), picked.dtype()), ([2, 5, 1, 1], DType::I32));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::argsort_top_k`].
    #[doc(alias = "ggml_top_k")]
    pub fn top_k<'c>(&'c self, a: Tensor<'c>, k: i32) -> Result<Tensor<'c>> {
        some_of_row(Call { op: entered!("top_k"), operands: &[a] }, a, k)?;
        let a = self.without_nan(a)?;
        build!(self, sys::ggml_top_k(a; k))
    }

    /// A copy of `a` without NaN: both comparisons in the clamp's kernel are false for NaN, so the result is one of the
    /// limits.
    fn without_nan<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.clamp(a, f32::NEG_INFINITY, f32::INFINITY)
    }
}

fn sortable(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    let [n, ..] = a.ne();
    call.shape(i32::try_from(n).is_ok(), "rows must be shorter than 2^31")?;
    // The kernel of the clamp before the sort finds row `i` at `i * nb[1]`, too (H10), so rows must be evenly spaced.
    let even = a.ptr().has_contiguous_rows() && a.ptr().is_contiguous_1();
    call.shape(even, "rows must be contiguous and evenly spaced; use `cont`")
}

fn some_of_row(call: Call<'_, '_>, a: Tensor<'_>, k: i32) -> Result<()> {
    sortable(call, a)?;
    let [n, ..] = a.ne();
    call.param(k >= 1 && i64::from(k) <= n, "k", k, format_args!("it must lie in 1 to {n}"))
}
