//! candle's quantised models. The number of threads is that of `RAYON_NUM_THREADS`.

use std::fs::File;

use anyhow::Result;
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use engine::Engine;

struct Candle(ModelWeights);

impl Candle {
    fn open(file: &str, _: usize, _: &[String]) -> Result<Self> {
        let mut file = File::open(file)?;
        let content = Content::read(&mut file)?;
        Ok(Self(ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?))
    }

    fn forward(&mut self, tokens: &[i32], shape: (usize, usize), position: usize) -> Result<()> {
        let tokens: Vec<_> = tokens.iter().map(|t| t.cast_unsigned()).collect();
        let tokens = Tensor::from_vec(tokens, shape, &Device::Cpu)?;
        self.0.forward(&tokens, position)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(())
    }
}

impl Engine for Candle {
    fn clear(&mut self) -> Result<()> {
        Ok(()) // position 0 does that
    }

    fn prompt(&mut self, tokens: &[i32]) -> Result<()> {
        self.forward(tokens, (1, tokens.len()), 0)
    }

    fn step(&mut self, tokens: &[i32], position: usize) -> Result<()> {
        self.forward(tokens, (tokens.len(), 1), position)
    }
}

fn main() -> Result<()> {
    engine::serve(Candle::open)
}
