//! The hyperparameters of a model.

use ggml::{
    Tensor,
    ops::{RopeMode, RopeOptions},
};

use crate::architecture::Architecture;

/// A model's hyperparameters. Names are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// The model's name, if the file has one.
    pub name: Option<Box<str>>,
    /// The number of tokens.
    pub n_vocab: usize,
    /// The number of tokens of the longest text in training.
    pub n_ctx_train: usize,
    /// The embedding size.
    pub n_embd: usize,
    /// The number of layers.
    pub n_layer: usize,
    /// The size of the hidden layer of dense feed-forward networks; 0 if there are none.
    pub n_ff: usize,
    /// Added to mean squares by norms.
    pub rms_eps: f32,
    /// `None` for recurrent models.
    pub attention: Option<Attention>,
    /// `None` for dense models.
    pub experts: Option<Experts>,
    /// `None` if all layers attend to all tokens.
    pub window: Option<Window>,
    /// Logits are limited to this number by `tanh`.
    pub final_softcap: Option<f32>,
    /// `None` for models without recurrent layers.
    pub ssm: Option<Ssm>,
}

/// Hyperparameters of attention.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// Heads of queries.
    pub n_head: usize,
    /// Heads of keys and values.
    pub n_head_kv: usize,
    /// The size of a head of queries and keys.
    pub n_embd_head_k: usize,
    /// The size of a head of values.
    pub n_embd_head_v: usize,
    /// Rotary position embedding.
    pub rope: RopeConfig,
}

impl Attention {
    /// The elements of a token's keys.
    pub fn n_embd_k_gqa(&self) -> usize {
        self.n_embd_head_k * self.n_head_kv
    }

    /// The elements of a token's values.
    pub fn n_embd_v_gqa(&self) -> usize {
        self.n_embd_head_v * self.n_head_kv
    }
}

/// Hyperparameters of rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RopeConfig {
    /// Elements of each head that are rotated.
    pub n_rot: usize,
    /// The base of the frequencies.
    pub freq_base: f32,
    /// The factor of the positions.
    pub freq_scale: f32,
    /// The context length of the training before it was extended.
    pub n_ctx_orig: usize,
    /// The weight of extrapolation (`YaRN`).
    pub ext_factor: f32,
    /// The factor of the result.
    pub attn_factor: f32,
}

impl RopeConfig {
    /// The options of the operation.
    pub(crate) fn options<'c>(&self, mode: RopeMode, factors: Option<Tensor<'c>>) -> RopeOptions<'c> {
        // Both are below 2^31: `Keys::count`.
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        RopeOptions::new(int(self.n_rot), mode)
            .with_freq_factors(factors)
            .with_n_ctx_orig(int(self.n_ctx_orig))
            .with_freq_base(self.freq_base)
            .with_freq_scale(self.freq_scale)
            .with_ext_factor(self.ext_factor)
            .with_attn_factor(self.attn_factor)
    }
}

/// Hyperparameters of a mixture of experts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Experts {
    /// The number of experts.
    pub n_expert: usize,
    /// How many of them compute a token.
    pub n_expert_used: usize,
    /// The size of an expert's hidden layer.
    pub n_ff_exp: usize,
}

/// Layers that attend to the last tokens only.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Window {
    /// How many tokens they see.
    pub size: usize,
    /// Which layers.
    pub pattern: Pattern,
    /// The base of the frequencies in these layers.
    pub freq_base: f32,
    /// The factor of the positions in these layers.
    pub freq_scale: f32,
}

/// Which layers have a window.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// All but each `n`-th layer; 0 for all.
    AllButEach(usize),
    /// Layer by layer.
    Layers(Vec<bool>),
}

impl Window {
    /// Whether a layer has the window.
    pub fn has(&self, layer: usize) -> bool {
        match &self.pattern {
            Pattern::AllButEach(0) => true,
            Pattern::AllButEach(n) => layer % n + 1 < *n,
            Pattern::Layers(layers) => layers.get(layer).copied().unwrap_or(false),
        }
    }
}

/// Hyperparameters of state space layers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Ssm {
    /// The length of the convolution.
    pub d_conv: usize,
    /// The inner size.
    pub d_inner: usize,
    /// The size of a state.
    pub d_state: usize,
    /// Heads.
    pub n_head: usize,
    /// Groups of heads that share input and output matrices.
    pub n_group: usize,
}

impl Ssm {
    /// The channels of the convolution.
    pub fn conv_channels(&self) -> usize {
        self.d_inner + 2 * self.n_group * self.d_state
    }
}

impl Config {
    /// Whether the first `n_layer` layers have some with, or without, a window.
    pub(crate) fn has_layers(&self, n_layer: usize, windowed: bool) -> bool {
        (0..n_layer).any(|i| self.window.as_ref().is_some_and(|w| w.has(i)) == windowed)
    }
}
