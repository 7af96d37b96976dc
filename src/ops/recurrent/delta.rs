//! The gated delta rule.

use super::snapshots;
use crate::ops::prelude::*;

/// The operands of [`Context::gated_delta_net`], all of `f32`.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::GatedDeltaNetOperands;
/// # let ctx = Context::new();
/// let (size, heads, tokens) = (32, 2, 5);
/// let input = |name, shape: [i64; 3]| ctx.input(name, DType::F32, shape);
/// let operands = GatedDeltaNetOperands {
///     q: input("q", [size, heads, tokens])?,
///     k: input("k", [size, heads, tokens])?,
///     v: input("v", [size, heads, tokens])?,
///     g: input("g", [1, heads, tokens])?,
///     beta: input("beta", [1, heads, tokens])?,
///     state: input("state", [size, size, heads])?,
/// };
/// assert_eq!(ctx.gated_delta_net(operands, 1)?.ne(), [size * heads, tokens + size, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct GatedDeltaNetOperands<'c> {
    /// Queries, `[size, qk_heads, tokens, sequences]`; head `i` of the values uses head `i % qk_heads` of these.
    pub q: Tensor<'c>,
    /// Keys, of the queries' shape.
    pub k: Tensor<'c>,
    /// Values, `[size, heads, tokens, sequences]`.
    pub v: Tensor<'c>,
    /// Gates, the logarithm of the state's decay factor: `[1, heads, tokens, sequences]`, or one per key element in the
    /// values' shape.
    pub g: Tensor<'c>,
    /// The learning rate of a value, `[1, heads, tokens, sequences]`.
    pub beta: Tensor<'c>,
    /// The states, `[size, size, heads, sequences]`; the first dimension belongs to keys, the second to values.
    pub state: Tensor<'c>,
}

impl Context {
    /// The gated delta rule (`ggml_gated_delta_net`). For each head and token, the state decays to `s * exp(g)`, then
    /// becomes `s + k (beta * (v - s^T k))^T`; the output is `s^T q / sqrt(size)`.
    ///
    /// The result has rows of `size * heads`: the output of each token, sequence after sequence, then the states of all
    /// sequences after the last token, then those after the token before, and so on `n_snapshots` times.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as in
    /// [`GatedDeltaNetOperands`], with contiguous rows of queries, keys and values, and all others contiguous;
    /// [`Error::Param`](crate::Error::Param) unless `n_snapshots` is at least 1 and at most the number of tokens.
    #[doc(alias = "ggml_gated_delta_net")]
    pub fn gated_delta_net<'c>(&'c self, on: GatedDeltaNetOperands<'c>, n_snapshots: i64) -> Result<Tensor<'c>> {
        let GatedDeltaNetOperands { q, k, v, g, beta, state } = on;
        let call = Call { op: entered!("gated_delta_net"), operands: &[q, k, v, g, beta, state] };
        call.all_f32(call.operands)?;
        call.all_contiguous(&[g, beta, state])?;
        let rows = [q, k, v].iter().all(|t| t.ptr().has_contiguous_rows());
        call.shape(rows, "rows of queries, keys and values must be contiguous; use `cont`")?;
        // H18: C compares neither the shapes of queries, keys and `beta` with that of the values, nor all dimensions of
        // the gates.
        let [size, heads, tokens, sequences] = v.ne();
        let [_, qk_heads, ..] = q.ne();
        let learned = q.ne() == [size, qk_heads, tokens, sequences] && k.shape() == q.shape();
        call.shape(learned, "queries and keys must have the values' shape, except the number of heads")?;
        call.shape(heads % qk_heads == 0, "the heads of queries must divide those of values")?;
        let one_each = [1, heads, tokens, sequences];
        call.shape(g.ne() == one_each || g.shape() == v.shape(), "there must be a gate per head, or per key element")?;
        call.shape(beta.ne() == one_each, "there must be one `beta` per head")?;
        call.shape(state.ne() == [size, size, heads, sequences], "the state must be [size, size, heads, sequences]")?;
        snapshots(call, n_snapshots, tokens)?;
        let of_states = n_snapshots.checked_mul(size).and_then(|n| n.checked_mul(sequences));
        let n = tokens.checked_mul(sequences).zip(of_states).and_then(|(n, of_states)| n.checked_add(of_states));
        let width = size.checked_mul(heads);
        call.result([width.unwrap_or(i64::MAX), n.unwrap_or(i64::MAX), 1, 1], DType::F32)?;
        build!(self, sys::ggml_gated_delta_net(q, k, v, g, beta, state; n_snapshots))
    }
}
