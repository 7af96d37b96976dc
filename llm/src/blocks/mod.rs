//! What families are built of.

pub(crate) mod attention;
pub(crate) mod experts;
pub(crate) mod ffn;
pub(crate) mod layer;
pub(crate) mod mamba2;

use std::cell::RefCell;

use ggml::{Context, Result, Tensor};

use crate::cache::KvTensors;
use crate::config::Config;
use crate::declare::{Declare, W};
use crate::error;
use crate::recurrent::StateTensors;
use crate::weights::ModelWeights;

/// A graph that is being built, with the inputs that all layers read.
pub(crate) struct Build<'c> {
    pub(crate) ctx: &'c Context,
    pub(crate) weights: &'c ModelWeights,
    pub(crate) config: &'c Config,
    pub(crate) kv: Option<KvTensors<'c>>,
    pub(crate) states: Option<StateTensors<'c>>,
    /// The rows of the tokens whose logits are wanted; `None` if none are.
    pub(crate) outputs: Option<Tensor<'c>>,
    pub(crate) n_tokens: usize,
    /// The number of tokens that a sequence can have.
    pub(crate) n_ctx: usize,
    /// What is written to the cache or to states, and read by no later operation.
    pub(crate) written: RefCell<Vec<Tensor<'c>>>,
}

impl<'c> Build<'c> {
    pub(crate) fn at(&self, w: W) -> Tensor<'c> {
        self.weights.at(w)
    }

    /// The cache.
    #[expect(clippy::expect_used, reason = "`Memory::new` makes one for each model with attention")]
    pub(crate) fn kv(&self) -> &KvTensors<'c> {
        self.kv.as_ref().expect("a model with attention has a cache")
    }

    /// The recurrent states.
    #[expect(clippy::expect_used, reason = "`Memory::new` makes them for each model with recurrent layers")]
    pub(crate) fn states(&self) -> &StateTensors<'c> {
        self.states.as_ref().expect("a model with recurrent layers has states")
    }

    /// Makes the graph compute `t`, though nothing reads it.
    pub(crate) fn write(&self, t: Tensor<'c>) {
        self.written.borrow_mut().push(t);
    }
}

/// The weights of a norm by root mean square.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm(pub(crate) W);

impl Norm {
    pub(crate) fn declare(d: &mut Declare<'_>, name: &str, n: usize) -> error::Result<Self> {
        Ok(Self(d.vector(&format!("{name}.weight"), n)?))
    }

    pub(crate) fn apply<'c>(self, b: &Build<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
        b.ctx.mul(b.ctx.rms_norm(x, b.config.rms_eps)?, b.at(self.0))
    }
}

/// A matrix with an optional bias.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    weight: W,
    bias: Option<W>,
}

impl Linear {
    /// A matrix of `n_in` columns and `n_out` rows, with a bias if the file has one.
    pub(crate) fn declare(d: &mut Declare<'_>, name: &str, n_in: usize, n_out: usize) -> error::Result<Self> {
        let weight = d.matrix(&format!("{name}.weight"), [n_in, n_out])?;
        Ok(Self { weight, bias: d.maybe_vector(&format!("{name}.bias"), n_out)? })
    }

    pub(crate) fn of(weight: W, bias: Option<W>) -> Self {
        Self { weight, bias }
    }

    pub(crate) fn apply<'c>(self, b: &Build<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
        let y = b.weights.mul_mat(b.ctx, self.weight, x)?;
        self.bias.map_or(Ok(y), |bias| b.ctx.add(y, b.at(bias)))
    }
}
