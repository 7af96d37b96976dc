//! Linear attention with gates.

use super::over_heads;
use crate::ops::prelude::*;

/// The operands of [`Context::gated_linear_attn`], all `f32` and contiguous, and `[size, heads, tokens]` except the
/// state. The tokens of all sequences are concatenated.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::GatedLinearAttnOperands;
/// # let ctx = Context::new();
/// let (size, heads, tokens) = (64, 2, 5);
/// let [k, v, q, g] = ["k", "v", "q", "g"].map(|name| ctx.input(name, DType::F32, [size, heads, tokens]));
/// let state = ctx.input("state", DType::F32, [size * size * heads, 1])?; // of one sequence
/// let operands = GatedLinearAttnOperands { k: k?, v: v?, q: q?, g: g?, state };
/// assert_eq!(ctx.gated_linear_attn(operands, 0.125)?.ne(), [size * heads, tokens + size, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct GatedLinearAttnOperands<'c> {
    /// Keys.
    pub k: Tensor<'c>,
    /// Values.
    pub v: Tensor<'c>,
    /// Queries.
    pub q: Tensor<'c>,
    /// Gates, the factors by which the state decays.
    pub g: Tensor<'c>,
    /// The states, `[size * size * heads, sequences]`.
    pub state: Tensor<'c>,
}

impl Context {
    /// Gated linear attention (`ggml_gated_linear_attn`). For each head and token the new state is `diag(g) state + k
    /// v^T`, with a row per key, and the output is `scale * q` times the new state.
    ///
    /// The result is `[size * heads, tokens + size * sequences]`: the outputs of all tokens, then the new states.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as in
    /// [`GatedLinearAttnOperands`], and the number of sequences divides that of tokens; [`Error::Param`](crate::Error::Param)
    /// unless `scale` is finite.
    #[doc(alias = "ggml_gated_linear_attn")]
    pub fn gated_linear_attn<'c>(&'c self, on: GatedLinearAttnOperands<'c>, scale: f32) -> Result<Tensor<'c>> {
        let GatedLinearAttnOperands { k, v, q, g, state } = on;
        let call = Call { op: entered!("gated_linear_attn"), operands: &[k, v, q, g, state] };
        call.param(scale.is_finite(), "scale", scale, "it must be finite")?;
        over_heads(call, &[k, v, q, g], state)?;
        build!(self, sys::ggml_gated_linear_attn(k, v, q, g, state; scale))
    }
}
