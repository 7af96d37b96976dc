//! RWKV, versions 6 and 7.

use ggml_sys as sys;

use super::over_heads;
use crate::context::Context;
use crate::error::Result;
use crate::ops::check::Call;
use crate::tensor::Tensor;

/// The operands of [`Context::rwkv_wkv6`], all of `f32` and contiguous; tokens of all sequences lie behind each other.
#[derive(Debug, Clone, Copy)]
pub struct RwkvWkv6<'c> {
    /// Keys, `[size, heads, tokens]`.
    pub k: Tensor<'c>,
    /// Values, of the keys' shape.
    pub v: Tensor<'c>,
    /// Receptance, of the keys' shape.
    pub r: Tensor<'c>,
    /// What a token's own key and value count for it ("time first"), `[size, heads]`.
    pub tf: Tensor<'c>,
    /// What remains of the state ("time decay"), of the keys' shape.
    pub td: Tensor<'c>,
    /// The states, `[size * size * heads, sequences]`.
    pub state: Tensor<'c>,
}

/// The operands of [`Context::rwkv_wkv7`], all of `f32` and contiguous, and of `[size, heads, tokens]` but for the state;
/// tokens of all sequences lie behind each other.
#[derive(Debug, Clone, Copy)]
pub struct RwkvWkv7<'c> {
    /// Receptance.
    pub r: Tensor<'c>,
    /// What remains of the state.
    pub w: Tensor<'c>,
    /// Keys.
    pub k: Tensor<'c>,
    /// Values.
    pub v: Tensor<'c>,
    /// What is looked up in the state.
    pub a: Tensor<'c>,
    /// Where what was looked up is put.
    pub b: Tensor<'c>,
    /// The states, `[size * size * heads, sequences]`.
    pub state: Tensor<'c>,
}

impl Context {
    /// The recurrence of RWKV-6 (`ggml_rwkv_wkv6`). For each head and token, with `kv` as the outer product of key and
    /// value, the output is `r (state + tf * kv)`, and the new state `td * state + kv`, where `tf` and `td` are factors of
    /// the rows (those of keys).
    ///
    /// The result has rows of `size * heads`: first the output of each token, then the states after the last tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as
    /// [`RwkvWkv6`] says, and the sequences divide the tokens.
    #[doc(alias = "ggml_rwkv_wkv6")]
    pub fn rwkv_wkv6<'c>(&'c self, on: RwkvWkv6<'c>) -> Result<Tensor<'c>> {
        let RwkvWkv6 { k, v, r, tf, td, state } = on;
        let operands = [k, v, r, tf, td, state];
        let call = Call { op: "rwkv_wkv6", operands: &operands };
        over_heads(call, &[k, v, r, td], state)?;
        let [size, heads, ..] = k.ne();
        // C doesn't look at it (H18).
        call.shape(tf.elements() == elements(size, heads), "there must be a factor (`tf`) per element of a token")?;
        self.build("ggml_rwkv_wkv6", &operands, |c| {
            let [k, v, r, tf, td, state] = operands.map(Tensor::as_ptr);
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_rwkv_wkv6(c, k, v, r, tf, td, state) }
        })
    }

    /// The recurrence of RWKV-7 (`ggml_rwkv_wkv7`). For each head and token, with states that have a row per value and a
    /// column per key, the new state is `state diag(w) + v k^T + (state a) b^T`, and the output is that times `r`.
    ///
    /// The result has rows of `size * heads`: first the output of each token, then the states after the last tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) unless the operands are as
    /// [`RwkvWkv7`] says, and the sequences divide the tokens.
    #[doc(alias = "ggml_rwkv_wkv7")]
    pub fn rwkv_wkv7<'c>(&'c self, on: RwkvWkv7<'c>) -> Result<Tensor<'c>> {
        let RwkvWkv7 { r, w, k, v, a, b, state } = on;
        let operands = [r, w, k, v, a, b, state];
        over_heads(Call { op: "rwkv_wkv7", operands: &operands }, &[r, w, k, v, a, b], state)?;
        self.build("ggml_rwkv_wkv7", &operands, |c| {
            let [r, w, k, v, a, b, state] = operands.map(Tensor::as_ptr);
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_rwkv_wkv7(c, r, w, k, v, a, b, state) }
        })
    }
}

fn elements(size: i64, heads: i64) -> usize {
    size.checked_mul(heads).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}
