//! Keys that no family reads, and what they must say: that the model has nothing which this crate lacks.

use std::fmt;

use ggml::gguf::Value;

use crate::architecture::Architecture;
use crate::config::Config;

/// What begins keys outside of the architecture's that change results, whatever they say.
pub(super) const CHANGES: &[&str] = &[
    "prism.hadamard.", // matrices that are stored rotated
    "adapter.",        // a file of changes to a model's matrices
];

/// What a key must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Expected {
    Anything,
    /// One of these numbers.
    OneOf(&'static [f64]),
    /// A number that the model has elsewhere, or 0 for no other.
    Size(usize),
    /// At least this number, or 0.
    AtLeast(usize),
    Flag(bool),
}

use Expected::{Anything, AtLeast, Flag, OneOf, Size};

/// The number of what there is none of.
const NONE: Expected = OneOf(&[0.0]);

/// The factor of what isn't scaled; some writers put 0 for that.
const NO_FACTOR: Expected = OneOf(&[0.0, 1.0]);

#[expect(clippy::match_same_arms, reason = "an arm for each reason")]
/// What a key, without its architecture, must say if no family reads it; `None` if it isn't known.
pub(super) fn expected(name: &str, config: &Config) -> Option<Expected> {
    let heads = config.attention.as_ref();
    Some(match name {
        // Told by the tensors: the rows of the embedding matrix.
        "vocab_size" => Anything,
        // How the file was made, or the model trained.
        "tensor_data_layout" | "rope.scaling.finetuned" => Anything,
        // For embeddings, which nothing here computes.
        "pooling_type" => Anything,
        // Of norms by mean and variance: the tensors show that there are none, as those have a bias.
        "attention.layer_norm_epsilon" => Anything,
        // Files of this family don't have it right: see `phi3`.
        "attention.sliding_window" if config.architecture == Architecture::Phi3 => Anything,
        // Tokens see all earlier ones.
        "attention.causal" => Flag(true),
        "attention.sliding_window" => AtLeast(config.n_ctx_train),
        // Of recurrent models, which have no attention.
        "attention.head_count" | "attention.head_count_kv" => NONE,
        // Layers with a window are of the same sizes as others.
        "attention.key_length_swa" => Size(heads.map_or(0, |a| a.n_embd_head_k)),
        "attention.value_length_swa" => Size(heads.map_or(0, |a| a.n_embd_head_v)),
        "rope.dimension_count_swa" => Size(heads.map_or(0, |a| a.rope.n_rot)),
        "embedding_length_out" => Size(config.n_embd),
        // Experts: none in dense models; no groups, no shared ones, and weights that add up to 1.
        "expert_count" | "expert_used_count" | "expert_feed_forward_length" if config.experts.is_none() => NONE,
        "expert_feed_forward_length" => Size(config.n_ff),
        "expert_shared_count" | "expert_shared_feed_forward_length" | "leading_dense_block_count" => NONE,
        "expert_group_count" | "expert_group_used_count" => OneOf(&[0.0, 1.0]),
        "expert_weights_scale" => NO_FACTOR,
        "expert_weights_norm" => Flag(true),
        "expert_gating_func" => OneOf(match config.architecture {
            Architecture::GptOss => &[0.0, 3.0], // softmax over those used
            _ => &[0.0, 1.0],                    // softmax over all
        }),
        // Layers after the last, which predict several tokens at once.
        "nextn_predict_layers" => NONE,
        "n_deepstack_layers" => NONE,
        // Scores and activations are neither limited nor scaled.
        "attn_logit_softcapping" | "final_logit_softcapping" | "router_logit_softcapping" => NONE,
        "attention.clamp_kqv" | "attention.max_alibi_bias" | "attention.scale" => NONE,
        "attention.temperature_scale" | "attention.temperature_length" => NONE,
        "logit_scale" | "residual_scale" | "embedding_scale" | "rope.scaling.alpha" => NO_FACTOR,
        "use_parallel_residual" | "ssm.dt_b_c_rms" => Flag(false),
        // Constants of YaRN that this crate has as ggml's usual ones.
        "rope.scaling.yarn_log_multiplier" => NONE,
        "rope.scaling.yarn_beta_fast" => OneOf(&[32.0]),
        "rope.scaling.yarn_beta_slow" | "rope.scaling.yarn_attn_factor" | "rope.scaling.yarn_ext_factor" => {
            OneOf(&[1.0])
        }
        _ => return None,
    })
}

impl Expected {
    pub(super) fn is_met_by(self, value: &Value) -> bool {
        let number = || match value {
            Value::F32(_) | Value::F64(_) => value.as_f64(),
            #[expect(clippy::cast_precision_loss, reason = "compared with small numbers")]
            _ => value.as_u64().map(|n| n as f64),
        };
        let count = |test: &dyn Fn(usize) -> bool| {
            value.as_u64().and_then(|n| usize::try_from(n).ok()).is_some_and(|n| n == 0 || test(n))
        };
        match self {
            Anything => true,
            OneOf(numbers) => number().is_some_and(|n| numbers.contains(&n)),
            Size(size) => count(&|n| n == size),
            AtLeast(least) => count(&|n| n >= least),
            Flag(flag) => value.as_bool() == Some(flag),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anything => f.write_str("anything"),
            OneOf([only]) => write!(f, "{only}, as this crate has nothing else"),
            OneOf(numbers) => {
                let all: Vec<_> = numbers.iter().map(f64::to_string).collect();
                write!(f, "{}, as this crate has nothing else", all.join(" or "))
            }
            Size(size) => write!(f, "{size}, the size of all layers"),
            AtLeast(least) => write!(f, "{least} or more, as layers of this family have no window"),
            Flag(flag) => write!(f, "{flag}, as this crate has nothing else"),
        }
    }
}
