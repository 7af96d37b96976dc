//! Hyper-connections: residual connections over several streams, as `DeepSeek` V4 has them.

use ggml_sys as sys;

use super::check::{Call, Operands};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

const JOINED: &str = "the streams must be [n_embd, streams, n_tokens]";

/// How many streams ggml's mixing of them supports.
const STREAMS: i64 = 4;

impl Context {
    /// How four streams are mixed, from learned logits (`ggml_dsv4_hc_comb`). `mixes` is `[24, n_tokens]`, `base` is `[24]`
    /// and `scale` has at least 3 elements. The last 16 of `mixes`, multiplied by the third element of `scale` and with
    /// those of `base` added, make a matrix `[to, from]` for each token, which is the result, `[4, 4, n_tokens]`, after a
    /// softmax over `to`, `eps` added, and `n_iter` rounds in which it is divided by its sums (plus `eps`) over `from`
    /// and, before all rounds but the first, over `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are so, [`Error::DType`](crate::Error::DType) unless all are
    /// `f32`, [`Error::Param`](crate::Error::Param) unless `eps` is finite and `n_iter` at least 1.
    #[doc(alias = "ggml_dsv4_hc_comb")]
    pub fn dsv4_hc_comb<'c>(
        &'c self,
        mixes: Tensor<'c>,
        scale: Tensor<'c>,
        base: Tensor<'c>,
        eps: f32,
        n_iter: i32,
    ) -> Result<Tensor<'c>> {
        let operands = [mixes, scale, base];
        let call = Call { op: "dsv4_hc_comb", operands: &operands };
        call.all_f32(call.operands)?;
        call.param(eps.is_finite(), "eps", eps, "it must be finite")?;
        call.param(n_iter >= 1, "n_iter", n_iter, "it must be at least 1")?;
        let logits = (2 + STREAMS) * STREAMS;
        let ([_, tokens, ..], [scales, ..]) = (mixes.ne(), scale.ne());
        call.shape(mixes.ne() == [logits, tokens, 1, 1], "there must be 24 logits per token")?;
        call.shape(scales >= 3 && scale.ne() == [scales, 1, 1, 1], "there must be 3 scales")?;
        call.shape(base.ne() == [logits, 1, 1, 1], "there must be 24 base values")?;
        self.build("ggml_dsv4_hc_comb", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_dsv4_hc_comb(c, mixes.as_ptr(), scale.as_ptr(), base.as_ptr(), eps, n_iter) }
        })
    }

    /// The streams of each token as one, the sum of `x` `[n_embd, streams, n_tokens]` over streams with `weights`
    /// `[streams, n_tokens]` (`ggml_dsv4_hc_pre`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are so, [`Error::DType`](crate::Error::DType) unless both are
    /// `f32`.
    #[doc(alias = "ggml_dsv4_hc_pre")]
    pub fn dsv4_hc_pre<'c>(&'c self, x: Tensor<'c>, weights: Tensor<'c>) -> Result<Tensor<'c>> {
        let operands = [x, weights];
        let call = Call { op: "dsv4_hc_pre", operands: &operands };
        call.all_f32(&operands)?;
        let [width, streams, tokens, _] = x.ne();
        call.shape(x.ne() == [width, streams, tokens, 1], JOINED)?;
        call.shape(weights.ne() == [streams, tokens, 1, 1], "there must be a weight per stream and token")?;
        self.build("ggml_dsv4_hc_pre", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_dsv4_hc_pre(c, x.as_ptr(), weights.as_ptr()) }
        })
    }

    /// The streams of each token as one, `scale` times the sum of `x` `[n_embd, streams, n_tokens]` over streams with the
    /// sigmoid of `gate`, which has the same shape, as weights (`ggml_dsv4_hc_pre_gated`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are so, [`Error::DType`](crate::Error::DType) unless both are
    /// `f32`, [`Error::Param`](crate::Error::Param) unless `scale` is finite.
    #[doc(alias = "ggml_dsv4_hc_pre_gated")]
    pub fn dsv4_hc_pre_gated<'c>(&'c self, x: Tensor<'c>, gate: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        let operands = [x, gate];
        let call = Call { op: "dsv4_hc_pre_gated", operands: &operands };
        call.all_f32(&operands)?;
        let [.., batches] = x.ne();
        call.shape(batches == 1, JOINED)?;
        call.shape(gate.shape() == x.shape(), "gates must have the streams' shape")?;
        call.param(scale.is_finite(), "scale", scale, "it must be finite")?;
        self.build("ggml_dsv4_hc_pre_gated", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps them as sources.
            unsafe { sys::ggml_dsv4_hc_pre_gated(c, x.as_ptr(), gate.as_ptr(), scale) }
        })
    }

    /// One tensor into each stream of a token (`ggml_dsv4_hc_post`): `x` `[n_embd, n_tokens]` times `post`
    /// `[streams, n_tokens]`, plus `residual` `[n_embd, streams, n_tokens]`, its streams mixed by `comb`
    /// `[to, from, n_tokens]` if there is one. The result has the shape of `residual`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are so, [`Error::DType`](crate::Error::DType) unless all are
    /// `f32`.
    #[doc(alias = "ggml_dsv4_hc_post")]
    pub fn dsv4_hc_post<'c>(
        &'c self,
        x: Tensor<'c>,
        residual: Tensor<'c>,
        post: Tensor<'c>,
        comb: Option<Tensor<'c>>,
    ) -> Result<Tensor<'c>> {
        let operands = Operands::new(x, [Some(residual), Some(post), comb]);
        let call = Call { op: "dsv4_hc_post", operands: &operands };
        call.all_f32(call.operands)?;
        let ([width, tokens, ..], [_, streams, ..]) = (x.ne(), residual.ne());
        call.shape(x.ne() == [width, tokens, 1, 1], "the first operand must be a matrix")?;
        call.shape(residual.ne() == [width, streams, tokens, 1], "there must be a residual per stream and token")?;
        call.shape(post.ne() == [streams, tokens, 1, 1], "there must be a factor per stream and token")?;
        if let Some(comb) = comb {
            call.shape(
                comb.ne() == [streams, streams, tokens, 1],
                "there must be a square matrix of streams per token",
            )?;
        }
        let comb = comb.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        self.build("ggml_dsv4_hc_post", &operands, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above; without
            // a `comb` C takes NULL. The result keeps them as sources.
            unsafe { sys::ggml_dsv4_hc_post(c, x.as_ptr(), residual.as_ptr(), post.as_ptr(), comb) }
        })
    }
}
