//! RWKV, versions 6 and 7.

use super::over_heads;
use crate::ops::prelude::*;

/// The operands of [`Context::rwkv_wkv6`], all `f32` and contiguous. The tokens of all sequences are concatenated.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::RwkvWkv6Operands;
/// # let ctx = Context::new();
/// let (size, heads, tokens) = (64, 2, 5);
/// let [k, v, r, td] = ["k", "v", "r", "td"].map(|name| ctx.input(name, DType::F32, [size, heads, tokens]));
/// let tf = ctx.input("tf", DType::F32, [size, heads])?;
/// let state = ctx.input("state", DType::F32, [size * size * heads, 1])?; // of one sequence
/// let operands = RwkvWkv6Operands { k: k?, v: v?, r: r?, tf, td: td?, state };
/// assert_eq!(ctx.rwkv_wkv6(operands)?.ne(), [size * heads, tokens + size, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RwkvWkv6Operands<'c> {
    /// Keys, `[size, heads, tokens]`.
    pub k: Tensor<'c>,
    /// Values, of the keys' shape.
    pub v: Tensor<'c>,
    /// Receptance, of the keys' shape.
    pub r: Tensor<'c>,
    /// The weight of a token's own key and value in its output ("time first"), `[size, heads]`.
    pub tf: Tensor<'c>,
    /// The factors by which the state decays ("time decay"), of the keys' shape.
    pub td: Tensor<'c>,
    /// The states, `[size * size * heads, sequences]`.
    pub state: Tensor<'c>,
}

/// The operands of [`Context::rwkv_wkv7`], all `f32` and contiguous, and `[size, heads, tokens]` except the state. The
/// tokens of all sequences are concatenated.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::RwkvWkv7Operands;
/// # let ctx = Context::new();
/// let (size, heads, tokens) = (64, 2, 5);
/// let input = |name| ctx.input(name, DType::F32, [size, heads, tokens]);
/// let state = ctx.input("state", DType::F32, [size * size * heads, 1])?; // of one sequence
/// let (r, w, k, v) = (input("r")?, input("w")?, input("k")?, input("v")?);
/// let operands = RwkvWkv7Operands { r, w, k, v, a: input("a")?, b: input("b")?, state };
/// assert_eq!(ctx.rwkv_wkv7(operands)?.ne(), [size * heads, tokens + size, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RwkvWkv7Operands<'c> {
    /// Receptance.
    pub r: Tensor<'c>,
    /// The factors by which the state decays.
    pub w: Tensor<'c>,
    /// Keys.
    pub k: Tensor<'c>,
    /// Values.
    pub v: Tensor<'c>,
    /// The vector that is looked up in the state.
    pub a: Tensor<'c>,
    /// The vector under which the looked-up value is written back.
    pub b: Tensor<'c>,
    /// The states, `[size * size * heads, sequences]`.
    pub state: Tensor<'c>,
}

impl Context {
    /// The recurrence of RWKV-6 (`ggml_rwkv_wkv6`). For each head and token, with `kv` as the outer product of key and
    /// value, the output is `r (state + tf * kv)`, and the new state is `td * state + kv`; `tf` and `td` scale rows,
    /// one per key element.
    ///
    /// The result is `[size * heads, tokens + size * sequences]`: the outputs of all tokens, then the new states.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as in
    /// [`RwkvWkv6Operands`], and the number of sequences divides that of tokens.
    #[doc(alias = "ggml_rwkv_wkv6")]
    pub fn rwkv_wkv6<'c>(&'c self, on: RwkvWkv6Operands<'c>) -> Result<Tensor<'c>> {
        let RwkvWkv6Operands { k, v, r, tf, td, state } = on;
        let call = Call { op: entered!("rwkv_wkv6"), operands: &[k, v, r, tf, td, state] };
        over_heads(call, &[k, v, r, td], state)?;
        let [size, heads, ..] = k.ne();
        // C does not check the shape of `tf` (H18).
        call.shape(tf.elements() == elements(size, heads), "there must be a factor (`tf`) per element of a token")?;
        build!(self, sys::ggml_rwkv_wkv6(k, v, r, tf, td, state))
    }

    /// The recurrence of RWKV-7 (`ggml_rwkv_wkv7`). For each head and token, for states with a row per value and a
    /// column per key, the new state is `state diag(w) + v k^T + (state a) b^T`, and the output is the new state times
    /// `r`.
    ///
    /// The result is `[size * heads, tokens + size * sequences]`: the outputs of all tokens, then the new states.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as in
    /// [`RwkvWkv7Operands`], and the number of sequences divides that of tokens.
    #[doc(alias = "ggml_rwkv_wkv7")]
    pub fn rwkv_wkv7<'c>(&'c self, on: RwkvWkv7Operands<'c>) -> Result<Tensor<'c>> {
        let RwkvWkv7Operands { r, w, k, v, a, b, state } = on;
        let operands = [r, w, k, v, a, b, state];
        over_heads(Call { op: entered!("rwkv_wkv7"), operands: &operands }, &[r, w, k, v, a, b], state)?;
        build!(self, sys::ggml_rwkv_wkv7(r, w, k, v, a, b, state))
    }
}

fn elements(size: i64, heads: i64) -> usize {
    size.checked_mul(heads).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}
