//! Hyper-connections: residual connections over several streams, as in `DeepSeek` V4.

use super::check::OperandList;
use crate::ops::prelude::*;

const JOINED: &str = "the streams must be [n_embd, streams, n_tokens]";

/// The number of streams that `ggml_dsv4_hc_comb` supports.
const STREAMS: i64 = 4;

impl Context {
    /// The matrices that mix four streams, from learned logits (`ggml_dsv4_hc_comb`). `mixes` is `[24, n_tokens]`,
    /// `base` is `[24]` and `scale` has at least 3 elements. The last 16 of `mixes`, times the third element of
    /// `scale`, plus the last 16 of `base`, are a matrix `[to, from]` for each token. It goes through a softmax over
    /// `to`, gets `eps` added, and is divided `n_iter` times by its sums (plus `eps`) over `from`; before each round
    /// except the first, by its sums over `to`. The result is `[4, 4, n_tokens]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless
    /// all are `f32`, [`Error::Param`](crate::Error::Param) unless `eps` is finite and `n_iter` at least 1.
    #[doc(alias = "ggml_dsv4_hc_comb")]
    pub fn dsv4_hc_comb<'c>(
        &'c self,
        mixes: Tensor<'c>,
        scale: Tensor<'c>,
        base: Tensor<'c>,
        eps: f32,
        n_iter: i32,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("dsv4_hc_comb"), operands: &[mixes, scale, base] };
        call.all_f32(call.operands)?;
        call.param(eps.is_finite(), "eps", eps, "it must be finite")?;
        call.param(n_iter >= 1, "n_iter", n_iter, "it must be at least 1")?;
        let logits = (2 + STREAMS) * STREAMS;
        let ([_, tokens, ..], [scales, ..]) = (mixes.ne(), scale.ne());
        call.shape(mixes.ne() == [logits, tokens, 1, 1], "there must be 24 logits per token")?;
        call.shape(scales >= 3 && scale.ne() == [scales, 1, 1, 1], "there must be 3 scales")?;
        call.shape(base.ne() == [logits, 1, 1, 1], "there must be 24 base values")?;
        build!(self, sys::ggml_dsv4_hc_comb(mixes, scale, base; eps, n_iter))
    }

    /// Sums the streams of each token, weighted (`ggml_dsv4_hc_pre`): `x` is `[n_embd, streams, n_tokens]`, `weights`
    /// is `[streams, n_tokens]`, the result is `[n_embd, n_tokens]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 4.0, 1.0)?, [2, 2, 1])?; // streams 0, 1 and 2, 3
    /// let weights = ctx.reshape(ctx.arange(1.0, 3.0, 1.0)?, [2, 1])?; // 1 and 2
    /// let y = ctx.dsv4_hc_pre(x, weights)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [4.0, 7.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless
    /// both are `f32`.
    #[doc(alias = "ggml_dsv4_hc_pre")]
    pub fn dsv4_hc_pre<'c>(&'c self, x: Tensor<'c>, weights: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("dsv4_hc_pre"), operands: &[x, weights] };
        call.all_f32(call.operands)?;
        let [width, streams, tokens, _] = x.ne();
        call.shape(x.ne() == [width, streams, tokens, 1], JOINED)?;
        call.shape(weights.ne() == [streams, tokens, 1, 1], "there must be a weight per stream and token")?;
        build!(self, sys::ggml_dsv4_hc_pre(x, weights))
    }

    /// Sums the streams of each token, weighted by gates (`ggml_dsv4_hc_pre_gated`): `scale` times the sum over streams
    /// of `x * sigmoid(gate)`, both `[n_embd, streams, n_tokens]`. The result is `[n_embd, n_tokens]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless
    /// both are `f32`, [`Error::Param`](crate::Error::Param) unless `scale` is finite.
    #[doc(alias = "ggml_dsv4_hc_pre_gated")]
    pub fn dsv4_hc_pre_gated<'c>(&'c self, x: Tensor<'c>, gate: Tensor<'c>, scale: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("dsv4_hc_pre_gated"), operands: &[x, gate] };
        call.all_f32(call.operands)?;
        let [.., batches] = x.ne();
        call.shape(batches == 1, JOINED)?;
        call.shape(gate.shape() == x.shape(), "gates must have the streams' shape")?;
        call.param(scale.is_finite(), "scale", scale, "it must be finite")?;
        build!(self, sys::ggml_dsv4_hc_pre_gated(x, gate; scale))
    }

    /// Adds one tensor to each stream of a token (`ggml_dsv4_hc_post`): `x` `[n_embd, n_tokens]` times `post`
    /// `[streams, n_tokens]`, plus `residual` `[n_embd, streams, n_tokens]`, its streams mixed by `comb` `[to, from,
    /// n_tokens]`, if given. The result has the shape of `residual`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless
    /// all are `f32`.
    #[doc(alias = "ggml_dsv4_hc_post")]
    pub fn dsv4_hc_post<'c>(
        &'c self,
        x: Tensor<'c>,
        residual: Tensor<'c>,
        post: Tensor<'c>,
        comb: Option<Tensor<'c>>,
    ) -> Result<Tensor<'c>> {
        let operands = OperandList::new(x, [Some(residual), Some(post), comb]);
        let call = Call { op: entered!("dsv4_hc_post"), operands: &operands };
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
        build!(self, &operands, sys::ggml_dsv4_hc_post(x, residual, post, comb))
    }
}
