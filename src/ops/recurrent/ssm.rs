//! State space models (Mamba).

use super::snapshots;
use crate::ops::index;
use crate::ops::prelude::*;

/// The operands of [`Context::ssm_scan`], all `f32` except `ids`.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::SsmScanOperands;
/// # let ctx = Context::new();
/// let (d_state, size, heads, tokens) = (16, 8, 2, 5);
/// let input = |name, shape: [i64; 4]| ctx.input(name, DType::F32, shape);
/// let operands = SsmScanOperands {
///     s: input("s", [d_state, size, heads, 1])?,
///     x: input("x", [size, heads, tokens, 1])?,
///     dt: input("dt", [heads, tokens, 1, 1])?,
///     a: input("a", [1, heads, 1, 1])?,
///     b: input("b", [d_state, 1, tokens, 1])?,
///     c: input("c", [d_state, 1, tokens, 1])?,
///     ids: ctx.input("ids", DType::I32, [1])?,
/// };
/// let outputs = size * heads * tokens;
/// assert_eq!(ctx.ssm_scan(operands, 1)?.ne(), [outputs + d_state * size * heads, 1, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SsmScanOperands<'c> {
    /// The initial states, `[d_state, head_size, heads, states]`, contiguous.
    pub s: Tensor<'c>,
    /// Inputs, `[head_size, heads, tokens, sequences]`, contiguous for each token.
    pub x: Tensor<'c>,
    /// Time steps before the softplus, `[heads, tokens, sequences]`, contiguous.
    pub dt: Tensor<'c>,
    /// Decay rates, negative: `[1, heads]` (Mamba-2) or `[d_state, heads]` (Mamba-1), contiguous.
    pub a: Tensor<'c>,
    /// Input matrices, `[d_state, groups, tokens, sequences]`, contiguous for each token; each group serves `heads /
    /// groups` consecutive heads.
    pub b: Tensor<'c>,
    /// Output matrices, of the shape and layout of `b`.
    pub c: Tensor<'c>,
    /// The index of each sequence's state in `s`, `[sequences]`, `i32`: an input, which is checked when it is set.
    pub ids: Tensor<'c>,
}

impl Context {
    /// Convolves each channel with its own kernel over time (`ggml_ssm_conv`). `sx` is `[d_conv - 1 + tokens, channels,
    /// sequences]`, `c` is `[d_conv, channels]`; the result is `[channels, tokens, sequences]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 4.0, 1.0)?, [4, 1, 1])?; // one channel: 0, 1, 2, 3
    /// let kernel = ctx.reshape(ctx.arange(1.0, 3.0, 1.0)?, [2, 1])?; // 1, 2
    /// let y = ctx.ssm_conv(x, kernel)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [2.0, 5.0, 8.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, with at least one token,
    /// [`Error::DType`](crate::Error::DType) unless both are `f32`.
    #[doc(alias = "ggml_ssm_conv")]
    pub fn ssm_conv<'c>(&'c self, sx: Tensor<'c>, c: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("ssm_conv"), operands: &[sx, c] };
        call.all_f32(call.operands)?;
        let ([length, channels, sequences, _], [d_conv, ..]) = (sx.ne(), c.ne());
        let kernels = c.ne() == [d_conv, channels, 1, 1];
        call.shape(
            sx.ne() == [length, channels, sequences, 1] && kernels && length >= d_conv,
            "there must be one kernel per channel, no longer than the input, which has three dimensions",
        )?;
        call.result([channels, length - d_conv + 1, sequences, 1], DType::F32)?;
        build!(self, sys::ggml_ssm_conv(sx, c))
    }

    /// The selective scan (`ggml_ssm_scan`). For each head and token, with `d = softplus(dt)`, the new state is `s *
    /// exp(d * a) + d * b x^T` and the output is `c` times the new state.
    ///
    /// The result has one dimension: the outputs, in the order of `x`, then the states of all sequences after the last
    /// token, then those after the token before, and so on `n_snapshots` times.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as in
    /// [`SsmScanOperands`]; [`Error::Param`](crate::Error::Param) unless `n_snapshots` is at least 1, at most the number of
    /// tokens, and 1 where `a` has a rate per element of a state.
    #[doc(alias = "ggml_ssm_scan")]
    pub fn ssm_scan<'c>(&'c self, on: SsmScanOperands<'c>, n_snapshots: i64) -> Result<Tensor<'c>> {
        let SsmScanOperands { s, x, dt, a, b, c, ids } = on;
        let call = Call { op: entered!("ssm_scan"), operands: &[s, x, dt, a, b, c, ids] };
        call.all_f32(&[s, x, dt, a, b, c])?;
        call.dtype(ids.dtype() == DType::I32, "the indices of states (`ids`) must be i32")?;
        call.all_contiguous(&[s, dt, a])?;
        // C asserts the first two strides of `x`, `b` and `c`, even for rows of one element and planes of one row.
        let gapless = [x, b, c].into_iter().all(|t| t.layout().has_dense_planes());
        call.shape(gapless, "`x`, `b` and `c` must be contiguous for each token; use `cont`")?;
        let [d_state, s1, s2, states] = s.ne();
        let [size, heads, tokens, sequences] = x.ne();
        call.shape([s1, s2] == [size, heads], "states and inputs must agree on heads and their size")?;
        call.shape(dt.ne() == [heads, tokens, sequences, 1], "there must be a time step per head and token")?;
        let [rates, ..] = a.ne();
        let decay = a.ne() == [rates, heads, 1, 1] && (rates == 1 || rates == d_state);
        call.shape(decay, "there must be a decay rate per head, or per head and element of a state")?;
        let [_, groups, ..] = b.ne();
        let grouped = b.ne() == [d_state, groups, tokens, sequences] && c.shape() == b.shape();
        call.shape(
            grouped && heads % groups == 0,
            "`b` and `c` must have a row per group and token, and the groups must divide the heads",
        )?;
        call.shape(ids.ne() == [sequences, 1, 1, 1], "there must be one state index per sequence")?;
        index::check(call, ids, states)?;
        snapshots(call, n_snapshots, tokens)?;
        call.param(rates == 1 || n_snapshots == 1, "n_snapshots", n_snapshots, "it must be 1 for rates per element")?;
        let end = [d_state, size, heads, sequences].into_iter().try_fold(n_snapshots, i64::checked_mul);
        let outputs = i64::try_from(x.elements()).ok();
        let all = outputs.zip(end).and_then(|(n, end)| n.checked_add(end));
        call.result([all.unwrap_or(i64::MAX), 1, 1, 1], DType::F32)?;
        build!(self, sys::ggml_ssm_scan(s, x, dt, a, b, c, ids; n_snapshots))
    }
}
