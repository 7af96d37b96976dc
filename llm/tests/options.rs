//! What other crates can make: options with setters, and hyperparameters from metadata of their own.

#![cfg(test)]

use std::collections::BTreeMap;

use ggml::gguf::Value;
use ggml::{DType, Device};
use ggml_llm::made_up::Recipe;
use ggml_llm::text::SamplerOptions;
use ggml_llm::{Architecture, Batch, Config, Metadata, Model, ModelOptions, Session, SessionOptions, SplitMode};

#[test]
fn options_are_made_by_setters() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    Recipe::new(Architecture::Qwen3)
        .with_dtype(DType::Q8_0)
        .with_seed(3_u64)
        .with_n_layer(2_u32)
        .with_n_embd(64_u32)
        .with_n_ff(96_u32)
        .with_n_head(4_u32)
        .with_n_head_kv(2_u32)
        .with_n_vocab(50_u32)
        .with_n_ctx(300_u32)
        .with_optional(vec!["output.weight".to_owned()])
        .with_metadata(vec![("rope.freq_base".to_owned(), 5000.0_f32.into())])
        .write(&file)
        .unwrap();
    let options = ModelOptions::default()
        .with_devices(vec![Device::cpu().unwrap()])
        .with_split(vec![1])
        .with_split_mode(SplitMode::Layer)
        .with_kernels(false)
        .with_repack(false)
        .with_map(false);
    let model = Model::load(&file, &options).unwrap();
    let config = model.config();
    assert_eq!((config.n_layer, config.n_embd, config.n_ff, config.n_vocab), (2, 64, 96, 50));
    let options = SessionOptions::default()
        .with_n_ctx(512_usize)
        .with_n_seq(2_usize)
        .with_n_batch(16_usize)
        .with_cache(DType::F32)
        .with_threads(1_usize);
    assert_eq!(Session::new(model, &options).unwrap().n_ctx(), 512);
    assert_eq!(SamplerOptions::new().with_top_k(3).top_k, 3);
}

/// ggml's kernels for repacked experts take several of them: an only one stays as it is in the file.
#[test]
fn an_only_expert_is_not_repacked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    let one = |key: &str| (key.to_owned(), Value::U32(1));
    let metadata = vec![one("expert_count"), one("expert_used_count")];
    // Types that are drawn by the seed, in place of the usual one.
    let recipe = Recipe::new(Architecture::Qwen3Moe).with_mixed(vec![DType::Q4_0]).with_metadata(metadata);
    recipe.with_n_embd(64_u32).with_n_ff(64_u32).write(&file).unwrap();
    let logits = [true, false].map(|repack| {
        let model = Model::load(&file, &ModelOptions::default().with_kernels(false).with_repack(repack)).unwrap();
        assert!(model.tensors().any(|t| t.name().ends_with("ffn_down_exps.weight") && t.dtype() == DType::Q4_0));
        let mut session = Session::new(model, &SessionOptions::default().with_threads(1_usize)).unwrap();
        let mut batch = Batch::new();
        batch.prompt(0, &[1, 2, 3, 4]);
        session.decode(&batch).unwrap();
        session.logits(0).unwrap().to_vec()
    });
    let apart = logits[0].iter().zip(&logits[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-2, "{apart}");
}

struct Keys(BTreeMap<String, Value>);

impl Metadata for Keys {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.keys().map(String::as_str))
    }
}

/// A configuration, with all parts that it may have, needs no file.
#[test]
fn hyperparameters_are_made_from_metadata() {
    let of = |all: &[(&str, Value)]| Keys(all.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect());
    let mut all: Vec<(&str, Value)> = vec![
        ("general.architecture", "gpt-oss".into()),
        ("gpt-oss.context_length", 4096_u32.into()),
        ("gpt-oss.embedding_length", 64_u32.into()),
        ("gpt-oss.block_count", 2_u32.into()),
        ("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5_f32.into()),
        ("gpt-oss.attention.head_count", 4_u32.into()),
        ("gpt-oss.attention.sliding_window", 128_u32.into()),
        ("gpt-oss.expert_count", 4_u32.into()),
        ("gpt-oss.expert_used_count", 2_u32.into()),
        ("gpt-oss.expert_feed_forward_length", 64_u32.into()),
    ];
    let config = Config::read(&of(&all), 100).unwrap();
    let window = config.window.unwrap();
    assert_eq!((window.size, window.has(0), window.has(1)), (128, true, false));
    assert_eq!((config.experts.unwrap().n_expert, config.attention.unwrap().n_embd_head_k), (4, 16));
    all.push(("gpt-oss.attention.causal", false.into()));
    assert!(Config::read(&of(&all), 100).is_err());
}
