//! llama.cpp.

use anyhow::{Result, anyhow};
use engine::{Engine, N_BATCH, N_CTX, N_SEQ};
use llama_reference::{GGML_TYPE_F16, Llama, Options, Token};

struct Reference(Llama);

impl Reference {
    fn open(file: &str, threads: usize, _: &[String]) -> Result<Self> {
        llama_reference::start();
        let options = Options {
            n_ctx: N_CTX,
            n_batch: N_BATCH,
            n_seq: u32::try_from(N_SEQ)?,
            threads: i32::try_from(threads)?,
            repack: true,
            cache: GGML_TYPE_F16,
            flash: true,
        };
        Ok(Self(Llama::open(file.as_ref(), &options).map_err(|e| anyhow!("{e}"))?))
    }

    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.0.decode(tokens).map(drop).map_err(|e| anyhow!("{e}"))
    }
}

impl Engine for Reference {
    fn clear(&mut self) -> Result<()> {
        self.0.clear();
        Ok(())
    }

    fn prompt(&mut self, tokens: &[i32]) -> Result<()> {
        let last = tokens.len() - 1;
        let token = |(i, &id): (usize, &i32)| Token { id, position: i as i32, sequence: 0, output: i == last };
        self.decode(&tokens.iter().enumerate().map(token).collect::<Vec<_>>())
    }

    fn step(&mut self, tokens: &[i32], position: usize) -> Result<()> {
        let position = i32::try_from(position)?;
        let token = |(i, &id): (usize, &i32)| Token { id, position, sequence: i as i32, output: true };
        self.decode(&tokens.iter().enumerate().map(token).collect::<Vec<_>>())
    }
}

fn main() -> Result<()> {
    engine::serve(Reference::open)
}
