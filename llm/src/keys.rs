//! The keys of an architecture in a file's metadata.

mod unread;

use std::cell::RefCell;
use std::collections::BTreeSet;

use ggml::gguf::{Array, Value};

use crate::config::{Attention, Config, Experts, Pattern, RopeConfig, Window};
use crate::error::{Error, Result};
use crate::metadata::{Metadata, refused, shown};

/// The keys of one architecture.
pub(crate) struct Keys<'a> {
    file: &'a dyn Metadata,
    architecture: &'static str,
    /// The names of those that were asked for.
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(file: &'a dyn Metadata, architecture: &'static str) -> Self {
        Self { file, architecture, read: RefCell::default() }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(name.to_owned());
        self.file.get(&self.key(name))
    }

    /// Checks that the keys which nobody asked for change nothing: a model that lacks what they say computes other logits.
    pub(crate) fn check_the_others(&self, config: &Config) -> Result<()> {
        let read = self.read.borrow();
        for key in self.file.keys() {
            let name = key.strip_prefix(self.architecture).and_then(|rest| rest.strip_prefix('.'));
            if name.is_some_and(|name| read.contains(name)) {
                continue;
            }
            let Some(value) = self.file.get(key) else { continue };
            let unknown =
                || Error::UnknownKey { architecture: self.architecture, key: key.into(), value: shown(value).into() };
            match name {
                Some(name) => match unread::expected(name, config) {
                    Some(expected) if expected.is_met_by(value) => {}
                    Some(expected) => return Err(refused(key, shown(value), expected.to_string())),
                    None => return Err(unknown()),
                },
                None if unread::CHANGES.iter().any(|prefix| key.starts_with(prefix)) => return Err(unknown()),
                None => {}
            }
        }
        Ok(())
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
        let older = self.opt_float("rope.scale_linear")?; // the same, where the other isn't
        let factor = self.opt_float("rope.scaling.factor")?;
        let factor = if self.find("rope.scaling.factor").is_some() { factor } else { older };
        let freq_scale = factor.filter(|_| scaling != "none").map_or(1.0, |factor| 1.0 / factor);
        let ext_factor = if scaling == "yarn" { 1.0 } else { 0.0 };
        // The kernel multiplies by `1 + 0.1 ln(factor)` itself where it extrapolates, so what the model wants is divided
        // by that.
        // The last bits are llama.cpp's: the factor is one over the scale, and the product has one over the divisor.
        let factor = 1.0 / freq_scale;
        let wanted = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
        let yarn = if scaling == "yarn" { wanted * (1.0 / (1.0 + 0.1 * factor.ln())) } else { 1.0 };
        Ok(RopeConfig {
            n_rot,
            freq_base: self.opt_float("rope.freq_base")?.unwrap_or(10_000.0),
            freq_scale,
            n_ctx_orig: self.opt_count("rope.scaling.original_context_length")?.unwrap_or(n_ctx_train),
            ext_factor,
            attn_factor: yarn * self.opt_float("rope.scaling.attn_factor")?.unwrap_or(1.0),
        })
    }

    /// Layers with a window: all but each `usual`-th unless the file says which. Their frequencies have this base,
    /// unless the file has another, and scale.
    pub(crate) fn window(&self, config: &Config, usual: usize, base: f32, freq_scale: f32) -> Result<Option<Window>> {
        const PATTERN: &str = "attention.sliding_window_pattern";
        let (size, freq_base) = (self.opt_count("attention.sliding_window")?, self.opt_float("rope.freq_base_swa")?);
        let (pattern, freq_base) = (self.find(PATTERN), freq_base.unwrap_or(base));
        let Some(size) = size else { return Ok(None) };
        let pattern = match pattern {
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
