//! Feed-forward networks.

use ggml::{Result, Tensor, ops::GluOp};

use super::experts::ExpertsBlock;
use super::{Build, Linear};
use crate::declare::{Declare, Role};
use crate::error;

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(crate) enum Ffn {
    /// Gate and values are matrices of their own.
    Gated {
        gate: Linear,
        up: Linear,
        down: Linear,
        glu: GluOp,
    },
    /// One matrix has the rows of the gate, and then those of the values.
    Fused {
        up: Linear,
        down: Linear,
    },
    Experts(ExpertsBlock),
}

impl Ffn {
    pub(crate) fn gated(d: &mut Declare<'_>, n_embd: usize, n_ff: usize, glu: GluOp) -> error::Result<Self> {
        let gate = Linear::declare(d, "ffn_gate", n_embd, n_ff)?;
        let up = Linear::declare(d, "ffn_up", n_embd, n_ff)?;
        Ok(Self::Gated { gate, up, down: Linear::declare(d, "ffn_down", n_ff, n_embd)?, glu })
    }

    pub(crate) fn fused(d: &mut Declare<'_>, n_embd: usize, n_ff: usize) -> error::Result<Self> {
        // No biases: the families that fuse have none.
        let up = Linear::of(d.need("ffn_up.weight", [n_embd, 2 * n_ff], Role::Matrix)?, None);
        Ok(Self::Fused { up, down: Linear::of(d.need("ffn_down.weight", [n_ff, n_embd], Role::Matrix)?, None) })
    }

    pub(crate) fn apply<'c>(&self, b: &Build<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
        match self {
            Self::Gated { gate, up, down, glu } => {
                let (gate, up) = (gate.apply(b, x)?, up.apply(b, x)?);
                down.apply(b, b.ctx.glu_split(gate, up, *glu)?)
            }
            Self::Fused { up, down } => down.apply(b, b.ctx.swiglu(up.apply(b, x)?)?),
            Self::Experts(experts) => experts.apply(b, x),
        }
    }
}
