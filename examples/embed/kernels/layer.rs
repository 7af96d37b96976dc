//! A layer's weights in the order of our kernels.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ggml::gguf::Reader;
use ggml::{Context, Tensor};
use pulp::Arch;

use super::attention::Attention;
use super::linear::{Linear, Then};
use super::panels::Panels;
use crate::model::Config;

#[derive(Debug)]
pub(crate) struct Layer {
    /// Queries, keys and values, beside each other.
    qkv: Arc<Linear>,
    attention: Attention,
    output: Arc<Linear>,
    up: Arc<Linear>,
    down: Arc<Linear>,
}

impl Layer {
    /// Reads layer `n`; weights of any type become f32.
    pub(crate) fn read(file: &mut Reader<File>, config: &Config, n: usize) -> Result<Self> {
        let (width, heads) = (usize::try_from(config.width)?, usize::try_from(config.heads)?);
        let mut part = Part { file, layer: n };
        let qkv = part.linear(&["attn_q", "attn_k", "attn_v"], width, Then::Nothing)?;
        let norm = part.norm("attn_output_norm", config)?;
        let output = part.linear(&["attn_output"], width, norm)?;
        let up = part.linear(&["ffn_up"], width, Then::Gelu)?;
        let norm = part.norm("layer_output_norm", config)?;
        let down = part.linear(&["ffn_down"], up.columns, norm)?;
        ensure!(
            qkv.columns == 3 * width && output.columns == width && down.columns == width,
            "the weights' shapes are none of such a model"
        );
        let attention = Attention { arch: Arch::new(), width, heads, scale: config.scale() };
        Ok(Self { qkv, attention, output, up, down })
    }

    pub(crate) fn apply<'c>(&self, ctx: &'c Context, x: Tensor<'c>, mask: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let qkv = self.qkv.apply(ctx, x, None)?;
        let attended = self.attention.apply(ctx, qkv, mask)?;
        let x = self.output.apply(ctx, attended, Some(x))?;
        let up = self.up.apply(ctx, x, None)?;
        self.down.apply(ctx, up, Some(x))
    }
}

/// Where weights are read from.
struct Part<'a> {
    file: &'a mut Reader<File>,
    layer: usize,
}

impl Part<'_> {
    fn numbers(&mut self, name: &str, kind: &str) -> Result<Vec<f32>> {
        let name = format!("blk.{}.{name}.{kind}", self.layer);
        let dtype = self.file.tensor(&name)?.dtype();
        dtype.dequantize(&self.file.read(&name)?).with_context(|| format!("`{name}` can't be made f32"))
    }

    /// Matrices of the same depth beside each other.
    fn linear(&mut self, names: &[&str], depth: usize, then: Then) -> Result<Arc<Linear>> {
        let (mut weights, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weights.extend(self.numbers(name, "weight")?);
            bias.extend(self.numbers(name, "bias")?);
        }
        ensure!(weights.len() == depth * bias.len(), "the weights' shapes are none of such a model");
        let columns = bias.len();
        let (weights, bias) = (Panels::from_columns(&weights, depth), Panels::from_columns(&bias, 1));
        Ok(Arc::new(Linear { arch: Arch::new(), weights, bias, columns, then }))
    }

    fn norm(&mut self, name: &str, config: &Config) -> Result<Then> {
        let (scale, shift) = (self.numbers(name, "weight")?, self.numbers(name, "bias")?);
        Ok(Then::AddNorm { scale, shift, eps: config.eps })
    }
}
