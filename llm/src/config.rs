//! The hyperparameters of a model, from its file's metadata.

use ggml::gguf::{Array, Reader, Value};
use ggml::{Rope, RopeMode, Tensor};

use crate::error::{Error, Result};
use crate::families::Architecture;

/// Metadata of a GGUF file, by key.
pub trait Metadata {
    /// The value of a key.
    fn get(&self, key: &str) -> Option<&Value>;
}

impl<S> Metadata for Reader<S> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.metadata(key)
    }
}

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
    pub(crate) fn options<'c>(&self, mode: RopeMode, factors: Option<Tensor<'c>>) -> Rope<'c> {
        // Both are below 2^31: `Keys::count`.
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Rope::new(int(self.n_rot), mode)
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
    /// Reads the hyperparameters of a file's model.
    ///
    /// # Errors
    ///
    /// As [`Config::read`]; [`Error::MissingTensor`] if there is no embedding matrix.
    pub fn of_file<S>(file: &Reader<S>) -> Result<Self> {
        // The family first: files of others may have no such matrix.
        Architecture::read(file)?;
        let name = "token_embd.weight";
        let missing = |_| Error::MissingTensor { name: name.into(), expected: [1; 2].into() };
        let [_, n_vocab, ..] = file.tensor(name).map_err(missing)?.shape().ne();
        Self::read(file, usize::try_from(n_vocab).unwrap_or(0))
    }

    /// Reads the hyperparameters of a model whose embedding matrix has `n_vocab` rows.
    ///
    /// # Errors
    ///
    /// [`Error::MissingKey`] and [`Error::Key`] name the key and what is expected.
    pub fn read(file: &dyn Metadata, n_vocab: usize) -> Result<Self> {
        let architecture = Architecture::read(file)?;
        let keys = Keys { file, architecture: architecture.name() };
        let tokens = match file.get("tokenizer.ggml.tokens") {
            Some(Value::Array(Array::String(tokens))) => tokens.len(),
            _ => n_vocab,
        };
        if tokens != n_vocab {
            let value = format!("a list of {tokens} tokens");
            let expected = format!("{n_vocab}, one for each row of `token_embd.weight`");
            return Err(refused("tokenizer.ggml.tokens", value, expected));
        }
        let config = Self {
            architecture,
            name: file.get("general.name").and_then(Value::as_str).map(Box::from),
            n_vocab,
            n_ctx_train: keys.count("context_length")?,
            n_embd: keys.count("embedding_length")?,
            n_layer: keys.count("block_count")?,
            n_ff: keys.opt_count("feed_forward_length")?.unwrap_or(0),
            rms_eps: keys.float("attention.layer_norm_rms_epsilon")?,
            attention: None,
            experts: None,
            window: None,
            final_softcap: None,
            ssm: None,
        };
        architecture.read_config(&keys, config)
    }

    /// Whether the first `n_layer` layers have some with, or without, a window.
    pub(crate) fn has_layers(&self, n_layer: usize, windowed: bool) -> bool {
        (0..n_layer).any(|i| self.window.as_ref().is_some_and(|w| w.has(i)) == windowed)
    }
}

/// The keys of one architecture.
pub(crate) struct Keys<'a> {
    pub(crate) file: &'a dyn Metadata,
    pub(crate) architecture: &'static str,
}

fn refused(key: &str, value: impl Into<Box<str>>, expected: impl Into<Box<str>>) -> Error {
    Error::Key { key: key.into(), value: value.into(), expected: expected.into() }
}

/// A value for messages; long ones are described.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        other => format!("{other:?}"),
    }
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        self.file.get(&self.key(name))
    }

    /// An error about a key.
    pub(crate) fn wrong(&self, name: &str, expected: impl Into<Box<str>>) -> Error {
        let key = self.key(name);
        match self.file.get(&key) {
            Some(value) => refused(&key, shown(value), expected),
            None => Error::MissingKey { key: key.into(), expected: expected.into() },
        }
    }

    /// A positive number below 2^31; also one that all layers have, as an array.
    pub(crate) fn count(&self, name: &str) -> Result<usize> {
        self.opt_count(name)?.ok_or_else(|| self.wrong(name, "a positive number"))
    }

    /// [`Keys::count`] of a key that may be missing or 0.
    pub(crate) fn opt_count(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = match value {
            Value::Array(Array::U32(all)) => equal(all).map(u64::from),
            Value::Array(Array::I32(all)) => equal(all).and_then(|n| u64::try_from(n).ok()),
            other => other.as_u64(),
        };
        let number = number.and_then(|n| i32::try_from(n).ok()).and_then(|n| usize::try_from(n).ok());
        let expected = "a number from 0 to 2^31 - 1, the same for all layers";
        let number = number.ok_or_else(|| self.wrong(name, expected))?;
        Ok(Some(number).filter(|&n| n > 0))
    }

    /// A positive, finite float.
    pub(crate) fn float(&self, name: &str) -> Result<f32> {
        self.opt_float(name)?.ok_or_else(|| self.wrong(name, "a positive f32"))
    }

    /// [`Keys::float`] of a key that may be missing or 0.
    pub(crate) fn opt_float(&self, name: &str) -> Result<Option<f32>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = value.as_f32().filter(|x| x.is_finite() && *x >= 0.0);
        let number = number.ok_or_else(|| self.wrong(name, "a finite f32 that is not negative"))?;
        Ok(Some(number).filter(|&x| x > 0.0))
    }

    /// Attention of the common kind: heads of `n_embd / n_head` elements unless the file has other sizes.
    pub(crate) fn attention(&self, config: &Config) -> Result<Attention> {
        const HEADS: &str = "attention.head_count";
        const KV_HEADS: &str = "attention.head_count_kv";
        let n_head = self.count(HEADS)?;
        let n_head_kv = self.opt_count(KV_HEADS)?.unwrap_or(n_head);
        if n_head % n_head_kv != 0 {
            return Err(self.wrong(KV_HEADS, format!("a divisor of the {n_head} heads")));
        }
        let size = |name: &str| match self.opt_count(name)? {
            Some(size) => Ok(size),
            None if config.n_embd.is_multiple_of(n_head) => Ok(config.n_embd / n_head),
            None => Err(self.wrong(HEADS, format!("a divisor of the embedding size {}", config.n_embd))),
        };
        let n_embd_head_k = size("attention.key_length")?;
        let n_embd_head_v = size("attention.value_length")?;
        let n_rot = self.opt_count("rope.dimension_count")?.unwrap_or(n_embd_head_k);
        if n_rot > n_embd_head_k || n_rot % 2 != 0 {
            return Err(self.wrong("rope.dimension_count", format!("an even number, {n_embd_head_k} at most")));
        }
        let rope = self.rope(n_rot, config.n_ctx_train)?;
        Ok(Attention { n_head, n_head_kv, n_embd_head_k, n_embd_head_v, rope })
    }

    fn rope(&self, n_rot: usize, n_ctx_train: usize) -> Result<RopeConfig> {
        const TYPE: &str = "rope.scaling.type";
        let scaling = self.find(TYPE).map_or(Some("linear"), Value::as_str);
        let scaling = scaling.filter(|t| ["none", "linear", "yarn", "longrope"].contains(t));
        let scaling = scaling.ok_or_else(|| self.wrong(TYPE, "none, linear, yarn or longrope"))?;
        let factor = match self.opt_float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.opt_float("rope.scale_linear")?, // the older name
        };
        let factor = factor.filter(|_| scaling != "none").unwrap_or(1.0);
        let ext_factor = if scaling == "yarn" { 1.0 } else { 0.0 };
        // The kernel multiplies by `1 + 0.1 ln(factor)` itself where it extrapolates, so what the model wants is divided
        // by that.
        let wanted = if factor > 1.0 { 1.0 + 0.1 * factor.ln() } else { 1.0 };
        let yarn = if scaling == "yarn" { wanted / (1.0 + 0.1 * factor.ln()) } else { 1.0 };
        Ok(RopeConfig {
            n_rot,
            freq_base: self.opt_float("rope.freq_base")?.unwrap_or(10_000.0),
            freq_scale: 1.0 / factor,
            n_ctx_orig: self.opt_count("rope.scaling.original_context_length")?.unwrap_or(n_ctx_train),
            ext_factor,
            attn_factor: yarn * self.opt_float("rope.scaling.attn_factor")?.unwrap_or(1.0),
        })
    }

    /// Layers with a window: all but each `usual`-th unless the file says which. Their frequencies have this base,
    /// unless the file has another, and scale.
    pub(crate) fn window(&self, config: &Config, usual: usize, base: f32, freq_scale: f32) -> Result<Option<Window>> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        let Some(size) = self.opt_count("attention.sliding_window")? else { return Ok(None) };
        let pattern = match self.find(PATTERN) {
            None => Pattern::AllButEach(usual),
            Some(Value::Array(Array::Bool(layers))) if layers.len() == config.n_layer => {
                Pattern::Layers(layers.clone())
            }
            Some(value) => {
                let n = value.as_u64().and_then(|n| usize::try_from(n).ok());
                let expected = || format!("a number, or an array of {} booleans", config.n_layer);
                Pattern::AllButEach(n.ok_or_else(|| self.wrong(PATTERN, expected()))?)
            }
        };
        let freq_base = self.opt_float("rope.freq_base_swa")?.unwrap_or(base);
        Ok(Some(Window { size, pattern, freq_base, freq_scale }))
    }

    /// A mixture of experts.
    pub(crate) fn experts(&self, n_ff_exp: usize) -> Result<Experts> {
        let n_expert = self.count("expert_count")?;
        let n_expert_used = self.count("expert_used_count")?;
        if n_expert_used > n_expert {
            return Err(self.wrong("expert_used_count", format!("{n_expert} at most")));
        }
        Ok(Experts { n_expert, n_expert_used, n_ff_exp })
    }
}

/// The number that all of these are.
fn equal<T: Copy + PartialEq>(all: &[T]) -> Option<T> {
    let (&first, rest) = all.split_first()?;
    rest.iter().all(|&n| n == first).then_some(first)
}
