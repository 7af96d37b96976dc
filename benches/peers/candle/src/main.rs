//! candle, with its own kernels.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use clap::Parser;
use wire::Engine;

#[derive(Parser)]
struct Cli {
    /// The folder with config.json and model.safetensors
    #[arg(long)]
    model: PathBuf,
}

struct Candle(BertModel);

impl Engine for Candle {
    fn embed(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>> {
        let tokens = sentences.first().context("no sentences")?.len();
        ensure!(sentences.iter().all(|s| s.len() == tokens), "sentences of one length only");
        let ids: Vec<u32> = sentences.iter().flatten().map(|&id| u32::try_from(id)).collect::<Result<_, _>>()?;
        let ids = Tensor::from_vec(ids, (sentences.len(), tokens), &Device::Cpu)?;
        let x = self.0.forward(&ids, &ids.zeros_like()?, None)?;
        let mean = x.mean(1)?;
        let length = mean.sqr()?.sum_keepdim(1)?.sqrt()?;
        Ok(mean.broadcast_div(&length)?.to_vec2()?)
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let config: Config = serde_json::from_str(&fs::read_to_string(cli.model.join("config.json"))?)?;
    // SAFETY: nobody changes the file while it is mapped.
    let weights = unsafe {
        VarBuilder::from_mmaped_safetensors(&[cli.model.join("model.safetensors")], DType::F32, &Device::Cpu)?
    };
    wire::serve(Candle(BertModel::load(weights, &config)?))
}
