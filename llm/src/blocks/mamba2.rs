//! Mamba-2's layer: a convolution over the last tokens and a selective scan, both with a state per sequence.

use ggml::{Result, Tensor, ops::SsmScanOperands};

use super::Build;
use crate::config::Ssm;
use crate::declare::{Declare, Role, W};
use crate::error;

/// The tensors of a layer.
#[derive(Debug)]
pub(crate) struct Mamba2 {
    config: Ssm,
    input: W,
    conv: W,
    conv_bias: W,
    dt_bias: W,
    a: W,
    d: W,
    norm: W,
    output: W,
}

impl Mamba2 {
    pub(crate) fn declare(d: &mut Declare<'_>, n_embd: usize, config: &Ssm) -> error::Result<Self> {
        let Ssm { d_conv, d_inner, n_head, n_group, .. } = *config;
        let channels = config.conv_channels();
        Ok(Self {
            input: d.matrix("ssm_in.weight", [n_embd, d_inner + channels + n_head])?,
            conv: d.need("ssm_conv1d.weight", [d_conv, channels], Role::Vector)?,
            conv_bias: d.vector("ssm_conv1d.bias", channels)?,
            dt_bias: d.vector("ssm_dt.bias", n_head)?,
            a: d.need("ssm_a", [1, n_head], Role::Vector)?,
            d: d.need("ssm_d", [1, n_head], Role::Vector)?,
            norm: d.need("ssm_norm.weight", [d_inner / n_group, n_group], Role::Vector)?,
            output: d.matrix("ssm_out.weight", [d_inner, n_embd])?,
            config: config.clone(),
        })
    }

    pub(crate) fn apply<'c>(&self, b: &Build<'c>, layer: usize, x: Tensor<'c>) -> Result<Tensor<'c>> {
        let (ctx, states) = (b.ctx, b.states());
        let Ssm { d_conv, d_inner, d_state, n_head, n_group } = self.config;
        let (channels, head) = (self.config.conv_channels(), d_inner / n_head);
        let (seqs, tokens) = (states.n_seqs, b.n_tokens / states.n_seqs);

        let all = b.weights.mul_mat(ctx, self.input, x)?;
        let [unit, row, ..] = all.nb();
        // Of each token: z, then x, b and c, which are convolved, then dt.
        let part = |shape: [usize; 2], offset: usize| {
            let [n0, n1] = shape;
            ctx.view(all, [n0, n1, tokens, seqs], [n0 * unit, row, row * tokens], offset * unit)
        };
        let z = part([head, n_head], 0)?;
        let mixed = ctx.view(all, [channels, tokens, seqs], [row, row * tokens, row * b.n_tokens], d_inner * unit)?;
        let offset = (d_inner + channels) * unit;
        let dt = ctx.view(all, [n_head, tokens, seqs], [row, row * tokens, row * b.n_tokens], offset)?;

        let past = ctx.reshape(states.conv(ctx, layer)?, [d_conv - 1, channels, seqs])?;
        let mixed = ctx.concat(past, ctx.transpose(mixed)?, 0)?;
        let [unit, nb1, nb2, nb3] = mixed.nb();
        let last = ctx.view(mixed, [d_conv - 1, channels, seqs], [nb1, nb2, nb3], tokens * unit)?;
        b.write(states.keep_conv(ctx, layer, ctx.cont(last)?)?);
        let mixed = ctx.silu(ctx.add(ctx.ssm_conv(mixed, b.at(self.conv))?, b.at(self.conv_bias))?)?;

        let [unit, row, plane, _] = mixed.nb();
        let part = |[n0, n1]: [usize; 2], offset: usize| {
            ctx.view(mixed, [n0, n1, tokens, seqs], [n0 * unit, row, plane], offset * unit)
        };
        let x = part([head, n_head], 0)?;
        let scan = SsmScanOperands {
            s: ctx.reshape(states.scan(layer), [d_state, head, n_head, states.n_slots])?,
            x,
            dt: ctx.add(ctx.cont(dt)?, b.at(self.dt_bias))?,
            a: b.at(self.a),
            b: part([d_state, n_group], d_inner)?,
            c: part([d_state, n_group], d_inner + n_group * d_state)?,
            ids: states.ids,
        };
        let y = ctx.ssm_scan(scan, 1)?;
        let outputs = d_inner * b.n_tokens;
        let new = ctx.view_2d(y, [d_state * d_inner, seqs], outputs * size_of::<f32>())?;
        b.write(states.keep_scan(ctx, layer, new)?);

        let y = ctx.reshape(ctx.view_1d(y, outputs, 0)?, [head, n_head, tokens, seqs])?;
        let y = ctx.add(y, ctx.mul(x, b.at(self.d))?)?;
        let y = ctx.swiglu_split(ctx.cont(z)?, y)?;
        let y = ctx.reshape(y, [d_inner / n_group, n_group, tokens, seqs])?;
        let y = ctx.mul(ctx.rms_norm(y, b.config.rms_eps)?, b.at(self.norm))?;
        b.weights.mul_mat(ctx, self.output, ctx.reshape(y, [d_inner, b.n_tokens])?)
    }
}
