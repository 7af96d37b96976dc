//! Mixtures of experts.

use ggml::{Result, Tensor, ops::GluOp};

use super::{Build, Linear};
use crate::config::Experts as Config;
use crate::declare::{Declare, Role, W};
use crate::error;

/// The smallest sum of weights that the others are divided by: the smallest normal `f16`.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// Slope and limit of gpt-oss's gate.
const OAI: [f32; 2] = [1.702, 7.0];

/// How the experts' weights follow from the router's logits, and what their gates compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpertsKind {
    /// Softmax over all experts; the weights of those used are divided by their sum; `SwiGLU`.
    Normalised,
    /// Softmax over the experts used; gpt-oss's gate.
    Oai,
}

/// One matrix per expert, with an optional bias each.
#[derive(Debug, Clone, Copy)]
struct Matrices {
    weight: W,
    bias: Option<W>,
}

impl Matrices {
    fn declare(d: &mut Declare<'_>, name: &str, [n_in, n_out]: [usize; 2], n: usize) -> error::Result<Self> {
        let weight = d.matrix(&format!("{name}.weight"), [n_in, n_out, n])?;
        Ok(Self { weight, bias: d.optional(&format!("{name}.bias"), [n_out, n], Role::Vector)? })
    }

    fn apply<'c>(self, b: &Build<'c>, x: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
        let y = b.weights.mul_mat_id(b.ctx, self.weight, x, ids)?;
        self.bias.map_or(Ok(y), |bias| b.ctx.add_id(y, b.at(bias), ids))
    }
}

/// A router, and the experts among which it picks.
#[derive(Debug)]
pub(crate) struct ExpertsBlock {
    kind: ExpertsKind,
    n_expert: usize,
    n_expert_used: usize,
    router: Linear,
    gate: Matrices,
    up: Matrices,
    down: Matrices,
}

impl ExpertsBlock {
    pub(crate) fn declare(
        d: &mut Declare<'_>,
        n_embd: usize,
        config: &Config,
        kind: ExpertsKind,
    ) -> error::Result<Self> {
        let Config { n_expert, n_expert_used, n_ff_exp } = *config;
        Ok(Self {
            kind,
            n_expert,
            n_expert_used,
            router: Linear::declare(d, "ffn_gate_inp", n_embd, n_expert)?,
            gate: Matrices::declare(d, "ffn_gate_exps", [n_embd, n_ff_exp], n_expert)?,
            up: Matrices::declare(d, "ffn_up_exps", [n_embd, n_ff_exp], n_expert)?,
            down: Matrices::declare(d, "ffn_down_exps", [n_ff_exp, n_embd], n_expert)?,
        })
    }

    pub(crate) fn apply<'c>(&self, b: &Build<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
        let ctx = b.ctx;
        let [n_embd, n_tokens, ..] = x.ne();
        let used = i64::try_from(self.n_expert_used).unwrap_or(i64::MAX);
        let (ids, weights) = self.pick(b, x, n_tokens)?;
        let x = ctx.reshape(x, [n_embd, 1, n_tokens])?;
        let (up, gate) = (self.up.apply(b, x, ids)?, self.gate.apply(b, x, ids)?);
        let [alpha, limit] = OAI;
        let hidden = match self.kind {
            ExpertsKind::Normalised => ctx.glu_split(gate, up, GluOp::Swiglu)?,
            ExpertsKind::Oai => ctx.swiglu_oai(gate, up, alpha, limit)?,
        };
        let y = ctx.mul(self.down.apply(b, hidden, ids)?, weights)?;
        // Added up in the order of the experts' ranks.
        let [_, rank, token, _] = y.nb();
        let one = |i: usize| ctx.view(y, [n_embd, n_tokens], [token, token * b.n_tokens, token * b.n_tokens], i * rank);
        let first = one(0)?;
        if used == 1 {
            return ctx.cont(first);
        }
        (1..self.n_expert_used).try_fold(first, |sum, i| ctx.add(sum, one(i)?))
    }

    /// The experts of each token, `[used, tokens]`, and their weights, `[1, used, tokens]`.
    fn pick<'c>(&self, b: &Build<'c>, x: Tensor<'c>, n_tokens: i64) -> Result<(Tensor<'c>, Tensor<'c>)> {
        let ctx = b.ctx;
        let as_i64 = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let (all, used) = (as_i64(self.n_expert), as_i64(self.n_expert_used));
        let logits = self.router.apply(b, x)?;
        let scores = if self.kind == ExpertsKind::Normalised { ctx.soft_max(logits)? } else { logits };
        let ids = ctx.argsort_top_k(scores, i32::try_from(used).unwrap_or(i32::MAX))?;
        let picked = ctx.get_rows(ctx.reshape(scores, [1, all, n_tokens])?, ids)?;
        let picked = ctx.reshape(picked, [used, n_tokens])?;
        let weights = match self.kind {
            ExpertsKind::Normalised => {
                let sum = ctx.clamp(ctx.sum_rows(picked)?, LEAST_SUM, f32::INFINITY)?;
                ctx.div(picked, sum)?
            }
            ExpertsKind::Oai => ctx.soft_max(picked)?,
        };
        Ok((ids, ctx.reshape(weights, [1, used, n_tokens])?))
    }
}
