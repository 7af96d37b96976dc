//! mistral.rs. The number of threads is that of `RAYON_NUM_THREADS`.
//!
//! Its interface takes requests, not steps: it chooses each next token by itself, here always the likeliest. All sequences
//! of a request begin with the same token.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use candle_core::Device;
use engine::{Engine, N_SEQ, N_VOCAB};
use mistralrs_core::{
    AdapterPaths, DefaultSchedulerMethod, DeviceMapSetting, GGUFLoaderBuilder, GGUFSpecificConfig, LocalModelPaths,
    MistralRs, MistralRsBuilder, ModelDType, ModelPaths, NormalRequest, Request, RequestMessage, Response,
    SamplingParams, SchedulerConfig,
};
use tokio::sync::mpsc;

struct Mistral(Arc<MistralRs>);

impl Mistral {
    fn open(file: &str, _: usize, _: &[String]) -> Result<Self> {
        // It asks for a tokenizer, which the model lacks. The benchmark deletes the folder of the model.
        let tokenizer = PathBuf::from(format!("{file}.tokenizer.json"));
        std::fs::write(&tokenizer, tokens().to_string())?;
        let paths: Box<dyn ModelPaths> = Box::new(LocalModelPaths {
            tokenizer_filename: tokenizer,
            config_filename: PathBuf::new(),
            template_filename: None,
            filenames: vec![file.into()],
            adapter_paths: AdapterPaths::None,
            gen_conf: None,
            preprocessor_config: None,
            processor_config: None,
            chat_template_json_filename: None,
        });
        let name = String::from("made up");
        let loader =
            GGUFLoaderBuilder::new(None, None, name, Vec::new(), GGUFSpecificConfig::default(), false, None).build();
        let map = DeviceMapSetting::dummy();
        let pipeline = loader.load_model_from_path(&paths, &ModelDType::Auto, &Device::Cpu, true, map, None, None)?;
        let method = DefaultSchedulerMethod::Fixed(NonZeroUsize::new(N_SEQ).context("no sequences")?);
        let builder = MistralRsBuilder::new(pipeline, SchedulerConfig::DefaultScheduler { method }, false, None)
            .with_no_prefix_cache(true)
            .with_disable_eos_stop(true);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self(runtime.block_on(builder.build())))
    }

    /// Computes a prompt, and then so many tokens, less the first, which the prompt's logits give.
    fn complete(&self, tokens: &[i32], n: usize, sequences: usize) -> Result<()> {
        let prompt = RequestMessage::CompletionTokens(tokens.iter().map(|t| t.cast_unsigned()).collect());
        let mut sampling = SamplingParams::deterministic();
        // Without a temperature it takes 1.
        (sampling.temperature, sampling.max_len, sampling.n_choices) = (Some(0.0), Some(n), sequences);
        let (sender, mut receiver) = mpsc::channel(1);
        let request = NormalRequest::new_simple(prompt, sampling, sender, 0, None, None);
        self.0.get_sender(None)?.blocking_send(Request::Normal(Box::new(request)))?;
        match receiver.blocking_recv().context("no answer")? {
            Response::CompletionDone(done) => {
                // It counts the tokens of one sequence.
                let computed = (done.usage.completion_tokens, done.choices.len());
                ensure!(computed == (n, sequences), "{computed:?} tokens and sequences, not {n} and {sequences}");
                Ok(())
            }
            Response::InternalError(e) | Response::ValidationError(e) => bail!("{e}"),
            Response::CompletionModelError(e, _) => bail!("{e}"),
            _ => bail!("another answer"),
        }
    }
}

/// A word for each token.
fn tokens() -> serde_json::Value {
    let words: serde_json::Map<_, _> = (0..N_VOCAB).map(|i| (format!("t{i}"), i.into())).collect();
    serde_json::json!({
        "version": "1.0",
        "added_tokens": [],
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false },
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "t0" },
    })
}

impl Engine for Mistral {
    fn clear(&mut self) -> Result<()> {
        Ok(()) // a request shares nothing with others
    }

    fn prompt(&mut self, tokens: &[i32]) -> Result<()> {
        self.complete(tokens, 1, 1)
    }

    fn step(&mut self, _: &[i32], _: usize) -> Result<()> {
        bail!("a step by itself is not supported")
    }

    fn steps(&mut self, n: usize, sequences: usize, tokens: &mut dyn FnMut(usize) -> Vec<i32>) -> Result<()> {
        self.complete(&tokens(1), n, sequences)
    }
}

fn main() -> Result<()> {
    engine::serve(Mistral::open)
}
