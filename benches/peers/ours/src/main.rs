//! This crate: the encoder of `examples/embed`, as it is.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use embed::model::{self, Kernels, Model};
use wire::Engine;

#[derive(Parser)]
struct Cli {
    #[arg(long)]
    model: PathBuf,
    #[arg(long)]
    threads: NonZeroUsize,
    #[arg(long, default_value = "own")]
    kernels: Kernels,
}

struct Ours(Model);

impl Engine for Ours {
    fn embed(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>> {
        let batch = NonZeroUsize::new(sentences.len()).unwrap_or(NonZeroUsize::MIN);
        self.0.embed(sentences, batch, |_| ())
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let devices = model::devices(&["CPU".to_owned()])?;
    wire::serve(Ours(Model::open(&cli.model, &devices, cli.threads, cli.kernels)?))
}
