//! `ggml-llm`. With `ggml` as the last argument it computes by ggml's kernels only; with `serve PROGRAM` requests go to the
//! server of that program. With `make FILE TYPE WIDTH LAYERS` it writes a model of random numbers, of the family llama, or
//! qwen3moe if `experts` follows.

mod server;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use engine::{Engine, N_BATCH, N_CTX, N_SEQ, N_VOCAB};
use ggml_llm::made_up::{Recipe, byte_tokenizer};
use ggml_llm::{Architecture, Batch, Model, ModelOptions, Session, SessionOptions};

struct Ours {
    session: Session,
    batch: Batch,
}

impl Ours {
    fn open(file: &str, threads: usize, rest: &[String]) -> Result<Self> {
        let mut options = ModelOptions::default();
        options.kernels = rest.is_empty();
        let model: Arc<Model> = Model::load(file, &options)?;
        let mut options = SessionOptions::default();
        (options.n_ctx, options.n_batch) = (N_CTX as usize, N_BATCH as usize);
        (options.n_seq, options.threads) = (N_SEQ, threads);
        Ok(Self { session: Session::new(model, &options)?, batch: Batch::new() })
    }
}

impl Engine for Ours {
    fn clear(&mut self) -> Result<()> {
        (0..N_SEQ).try_for_each(|i| self.session.truncate(i, 0))?;
        Ok(())
    }

    fn prompt(&mut self, tokens: &[i32]) -> Result<()> {
        self.batch.clear();
        self.batch.prompt(0, tokens);
        Ok(self.session.decode(&self.batch)?)
    }

    fn step(&mut self, tokens: &[i32], _: usize) -> Result<()> {
        self.batch.clear();
        tokens.iter().enumerate().for_each(|(i, &token)| self.batch.push(i, token, true));
        Ok(self.session.decode(&self.batch)?)
    }
}

fn make([file, dtype, width, layers]: [&str; 4], experts: bool) -> Result<()> {
    let mut recipe = Recipe::new(if experts { Architecture::Qwen3Moe } else { Architecture::Llama });
    recipe.dtype = dtype.parse().context("the type")?;
    (recipe.n_embd, recipe.n_layer) = (width.parse()?, layers.parse()?);
    (recipe.n_head, recipe.n_head_kv) = (recipe.n_embd / 64, recipe.n_embd / 256);
    recipe.n_ff = if experts { recipe.n_embd } else { 3 * recipe.n_embd };
    (recipe.n_vocab, recipe.n_ctx) = (N_VOCAB.cast_unsigned(), N_CTX);
    recipe.metadata.push(("rope.dimension_count".into(), 64_u32.into())); // candle asks for it
    recipe.tokenizer = byte_tokenizer(recipe.n_vocab, true);
    Ok(recipe.write(std::path::Path::new(file))?)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match &*arguments {
        &["make", file, dtype, width, layers] => make([file, dtype, width, layers], false),
        &["make", file, dtype, width, layers, "experts"] => make([file, dtype, width, layers], true),
        ["make", ..] => bail!("make FILE TYPE WIDTH LAYERS [experts]"),
        [_, _, "serve", _] => engine::serve(server::Server::open),
        _ => engine::serve(Ours::open),
    }
}
