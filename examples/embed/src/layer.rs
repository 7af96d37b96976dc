//! A layer's weights, reordered for our kernels.

use std::fs::File;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ggml::Quantize as _;
use ggml::gguf::Reader;
use ggml::ops::FlashAttnOptions;
use ggml::{Context, DType, Tensor};
use kernels::{Linear, Part, Then};

use crate::config::Config;

/// A layer as seven custom operations: attention is one, and so is each norm.
#[derive(Debug)]
pub struct Layer {
    /// Queries, keys and values, concatenated.
    qkv: Arc<Linear>,
    heads: i64,
    scale: f32,
    output: Arc<Linear>,
    up: Arc<Linear>,
    down: Arc<Linear>,
}

impl Layer {
    /// Reads layer `n`.
    ///
    /// # Errors
    /// If the file does not have it, or with other shapes.
    pub fn read(file: &mut Reader<File>, config: &Config, n: usize) -> Result<Self> {
        let width = usize::try_from(config.width)?;
        let mut read = Read { file, layer: n };
        let qkv = read.linear(&["attn_q", "attn_k", "attn_v"], width, Then::Nothing)?;
        let norm = read.norm("attn_output_norm", config)?;
        let output = read.linear(&["attn_output"], width, norm)?;
        let up = read.linear(&["ffn_up"], width, Then::Gelu)?;
        let norm = read.norm("layer_output_norm", config)?;
        let down = read.linear(&["ffn_down"], up.columns(), norm)?;
        ensure!(
            qkv.columns() == 3 * width && output.columns() == width && down.columns() == width,
            "the weights' shapes are none of such a model"
        );
        Ok(Self { qkv, heads: config.heads, scale: config.scale(), output, up, down })
    }

    /// The layer's output, `[width, tokens, sentences]` as its input `x`.
    ///
    /// # Errors
    /// If the operands have other shapes.
    pub fn apply<'c>(&self, ctx: &'c Context, x: Tensor<'c>, mask: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let qkv = self.qkv.apply(ctx, x, None)?;
        let [width, tokens, sentences, _] = x.ne();
        let [_, row, plane, _] = qkv.nb();
        let shape = [width / self.heads, tokens, self.heads, sentences];
        let size = usize::try_from(shape[0])? * size_of::<f32>();
        let part = |i| ctx.view(qkv, shape, [row, size, plane], i * row / 3);
        let how = FlashAttnOptions::new(self.scale).with_mask(mask);
        let attended = kernels::flash_attn_ext_own(ctx, [part(0)?, part(1)?, part(2)?], how)?;
        let attended = ctx.reshape(attended, x.ne())?;
        let x = self.output.apply(ctx, attended, Some(x))?;
        let up = self.up.apply(ctx, x, None)?;
        self.down.apply(ctx, up, Some(x))
    }
}

/// The source of the weights.
struct Read<'a> {
    file: &'a mut Reader<File>,
    layer: usize,
}

impl Read<'_> {
    fn bytes(&mut self, name: &str, kind: &str) -> Result<(DType, Vec<u8>)> {
        let name = format!("blk.{}.{name}.{kind}", self.layer);
        Ok((self.file.tensor(&name)?.dtype(), self.file.read(&name)?))
    }

    fn numbers(&mut self, name: &str, kind: &str) -> Result<Vec<f32>> {
        let (dtype, bytes) = self.bytes(name, kind)?;
        Ok(dtype.dequantize(&bytes)?)
    }

    /// Concatenates matrices of the same depth.
    fn linear(&mut self, names: &[&str], depth: usize, then: Then) -> Result<Arc<Linear>> {
        let parts = names.iter().map(|name| self.part(name, depth)).collect::<Result<_>>()?;
        Ok(Arc::new(Linear::new(parts, then)?))
    }

    fn part(&mut self, name: &str, depth: usize) -> Result<Part> {
        let bias = self.numbers(name, "bias")?;
        let (dtype, bytes) = self.bytes(name, "weight")?;
        Part::new(dtype, &bytes, depth, &bias)
    }

    fn norm(&mut self, name: &str, config: &Config) -> Result<Then> {
        let (scale, shift) = (self.numbers(name, "weight")?, self.numbers(name, "bias")?);
        let width = usize::try_from(config.width)?;
        ensure!([scale.len(), shift.len()] == [width; 2], "`{name}` has not {width} numbers");
        Ok(Then::AddNorm { scale, shift, eps: config.eps })
    }
}
