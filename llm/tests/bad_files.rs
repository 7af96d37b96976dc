//! Files that are damaged or lie: errors that name what is wrong, and never a panic.

#![cfg(test)]

use std::path::{Path, PathBuf};

use ggml::DType;
use ggml::gguf::{Reader, Strings, Value, Writer};
use ggml_llm::made_up::Recipe;
use ggml_llm::{Architecture, Batch, Error, Model, ModelOptions, Session, SessionOptions};

/// A small model's file, in a folder that is removed with it.
struct Fixture {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Fixture {
    fn new(architecture: Architecture) -> Self {
        Self::of(&Recipe::new(architecture))
    }

    fn of(recipe: &Recipe) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        recipe.write(&file).unwrap();
        Self { folder, file }
    }

    /// Writes the file again, without the tensors for which `keep` is false.
    fn rewritten(&self, change: impl FnOnce(&mut Writer), keep: impl Fn(&str) -> bool) -> PathBuf {
        let reader = Reader::from_bytes(std::fs::read(&self.file).unwrap()).unwrap();
        let mut writer = Writer::new();
        writer.set_kv(&reader).unwrap();
        for t in reader.tensors().filter(|t| keep(t.name())) {
            writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
        }
        change(&mut writer);
        let path = self.folder.path().join("changed.gguf");
        writer.write(&path).unwrap();
        path
    }

    fn with(&self, key: &str, value: impl Into<Value>) -> PathBuf {
        let set = |writer: &mut Writer| {
            writer.set(key, value).unwrap();
        };
        self.rewritten(set, |_| true)
    }
}

fn load(path: &Path) -> Result<std::sync::Arc<Model>, Error> {
    Model::load(path, &ModelOptions::default())
}

#[track_caller]
fn refused(path: &Path) -> Error {
    load(path).unwrap_err()
}

#[test]
fn truncated_files_are_refused() {
    let fixture = Fixture::new(Architecture::Llama);
    let whole = std::fs::read(&fixture.file).unwrap();
    let path = fixture.folder.path().join("short.gguf");
    let lengths = (0..whole.len()).step_by(whole.len() / 50).chain([whole.len() - 32]);
    for length in lengths {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = refused(&path);
        assert!(matches!(error, Error::Ggml(_) | Error::File { .. }), "{length}: {error}");
    }
    assert!(matches!(refused(fixture.folder.path()), Error::File { .. }), "a folder");
    assert!(matches!(refused(&fixture.folder.path().join("none")), Error::File { .. }));
}

#[test]
fn an_unknown_architecture_is_named_with_those_there_are() {
    let fixture = Fixture::new(Architecture::Llama);
    let text = refused(&fixture.with("general.architecture", "gpt2")).to_string();
    assert!(text.contains("gpt2") && text.contains("llama, qwen2"), "{text}");
    let none = fixture.rewritten(|writer| drop(writer.remove("general.architecture")), |_| true);
    assert!(matches!(refused(&none), Error::MissingKey { .. }));
}

#[test]
fn a_missing_key_is_named() {
    for &architecture in Architecture::ALL {
        let fixture = Fixture::new(architecture);
        let needed: &[&str] = match architecture {
            Architecture::Mamba2 => &["ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count"],
            Architecture::GptOss => &["attention.head_count", "expert_count", "attention.sliding_window"],
            Architecture::Qwen3Moe => &["attention.head_count", "expert_count", "expert_used_count"],
            _ => &["attention.head_count", "feed_forward_length"],
        };
        let always = ["context_length", "embedding_length", "block_count", "attention.layer_norm_rms_epsilon"];
        for key in needed.iter().chain(&always) {
            let key = format!("{architecture}.{key}");
            let path = fixture.rewritten(|writer| drop(writer.remove(&key).unwrap()), |_| true);
            let error = refused(&path);
            assert!(matches!(&error, Error::MissingKey { key: named, .. } if **named == *key), "{key}: {error}");
        }
    }
}

#[test]
fn metadata_that_lie_are_named() {
    let fixture = Fixture::new(Architecture::Llama);
    let wrong = |key: &str, value: Value| {
        let error = refused(&fixture.with(key, value));
        assert!(matches!(&error, Error::Key { key: named, .. } if **named == *key), "{key}: {error}");
        error.to_string()
    };
    let text = wrong("llama.attention.head_count_kv", 3_u32.into());
    assert!(text.contains("a divisor of the 8 heads"), "{text}");
    wrong("llama.attention.head_count", 6_u32.into()); // doesn't divide 256
    wrong("llama.rope.dimension_count", 30_u32.into());
    wrong("llama.rope.dimension_count", 34_u32.into());
    wrong("llama.embedding_length", Value::I32(-1));
    wrong("llama.embedding_length", "256".into());
    wrong("llama.attention.layer_norm_rms_epsilon", f32::NAN.into());
    wrong("llama.rope.scaling.type", "cubic".into());
    let tokens: Vec<String> = (0..319).map(|i| format!("token {i}")).collect();
    let text = wrong("tokenizer.ggml.tokens", Strings::from(tokens).into());
    assert!(text.contains("319") && text.contains("320"), "{text}");
    let experts = Fixture::new(Architecture::Qwen3Moe);
    let error = refused(&experts.with("qwen3moe.expert_used_count", 9_u32));
    assert!(matches!(&error, Error::Key { key, .. } if key.ends_with("expert_used_count")), "{error}");
}

#[test]
fn a_tensor_of_another_shape_or_missing_is_named() {
    for (key, value, tensor) in [
        ("llama.embedding_length", 128_u32, "token_embd.weight"),
        ("llama.feed_forward_length", 511, "blk.0.ffn_gate.weight"),
        ("llama.attention.head_count_kv", 4, "blk.0.attn_k.weight"),
    ] {
        let error = refused(&Fixture::new(Architecture::Llama).with(key, value));
        assert!(matches!(&error, Error::TensorShape { name, .. } if **name == *tensor), "{key}: {error}");
    }
    let fixture = Fixture::new(Architecture::Llama);
    for missing in ["token_embd.weight", "output_norm.weight", "blk.2.ffn_up.weight"] {
        let error = refused(&fixture.rewritten(|_| (), |name| name != missing));
        assert!(matches!(&error, Error::MissingTensor { name, .. } if **name == *missing), "{missing}: {error}");
    }
    let error = refused(&fixture.with("llama.block_count", u32::MAX / 2));
    assert!(matches!(&error, Error::MissingTensor { name, .. } if name.starts_with("blk.3.")), "{error}");
}

#[test]
fn a_tensor_that_nothing_uses_is_named() {
    let fixture = Fixture::new(Architecture::Llama);
    let add = |writer: &mut Writer| {
        writer.tensor("blk.0.attn_q_norm.weight", DType::F32, [1], &[0; 4]).unwrap();
    };
    let error = refused(&fixture.rewritten(add, |_| true));
    assert!(matches!(&error, Error::UnknownTensors { names, .. } if names.contains("attn_q_norm")), "{error}");
    let error = refused(&fixture.with("llama.block_count", 2_u32));
    assert!(matches!(&error, Error::UnknownTensors { names, .. } if names.contains("blk.2.")), "{error}");
}

/// A model that lacks what a key says computes other logits: the key is named.
#[test]
fn a_key_that_nobody_honours_is_named() {
    let cases: &[(Architecture, &str, Value)] = &[
        (Architecture::Llama, "attention.causal", false.into()),
        (Architecture::Qwen2, "attention.causal", false.into()),
        (Architecture::Qwen3Moe, "expert_group_count", 2_u32.into()),
        (Architecture::Qwen3Moe, "expert_group_used_count", 2_u32.into()),
        (Architecture::Qwen3Moe, "expert_weights_scale", 2.5_f32.into()),
        (Architecture::Qwen3Moe, "expert_weights_norm", false.into()),
        (Architecture::Qwen3Moe, "expert_gating_func", 2_u32.into()),
        (Architecture::Qwen3Moe, "expert_shared_count", 1_u32.into()),
        (Architecture::Qwen2, "expert_count", 8_u32.into()),
        (Architecture::Gemma3, "rope.dimension_count_swa", 32_u32.into()),
        (Architecture::Gemma3, "attention.key_length_swa", 32_u32.into()),
        (Architecture::Gemma3, "attn_logit_softcapping", 50.0_f32.into()),
        (Architecture::Llama, "final_logit_softcapping", 30.0_f32.into()),
        (Architecture::Llama, "attention.sliding_window", 128_u32.into()),
        (Architecture::Qwen3, "nextn_predict_layers", 1_u32.into()),
        (Architecture::Llama, "logit_scale", 0.125_f32.into()),
        (Architecture::Llama, "residual_scale", 0.22_f32.into()),
        (Architecture::Llama, "rope.scaling.yarn_log_multiplier", 0.1_f32.into()),
        (Architecture::Qwen3, "rope.scaling.yarn_beta_fast", 16.0_f32.into()),
        (Architecture::Mamba2, "attention.head_count", 8_u32.into()),
        (Architecture::Mamba2, "attention.head_count", "eight".into()),
        (Architecture::Llama, "something.new", 1_u32.into()),
        (Architecture::Phi3, "rope.dimension_sections", vec![8_i32, 12, 12, 0].into()),
    ];
    for (architecture, key, value) in cases {
        let key = format!("{architecture}.{key}");
        let fixture = Fixture::new(*architecture);
        let error = refused(&fixture.with(&key, value.clone()));
        let named = match &error {
            Error::Key { key, .. } | Error::UnknownKey { key, .. } => &**key,
            _ => "",
        };
        assert!(named == key && error.to_string().contains(&key), "{key}: {error}");
    }
    let fixture = Fixture::new(Architecture::Llama);
    let error = refused(&fixture.with("prism.hadamard.version", 1_u32));
    assert!(matches!(&error, Error::UnknownKey { key, .. } if &**key == "prism.hadamard.version"), "{error}");
}

/// What real files have, and what changes nothing.
#[test]
fn keys_that_change_nothing_are_passed_over() {
    let all: &[(Architecture, &str, Value)] = &[
        (Architecture::Llama, "vocab_size", 320_u32.into()),
        (Architecture::Llama, "attention.causal", true.into()),
        (Architecture::Llama, "rope.scaling.finetuned", true.into()),
        (Architecture::Llama, "tensor_data_layout", "Meta AI original pth".into()),
        (Architecture::Llama, "expert_count", 0_u32.into()),
        (Architecture::Llama, "attention.sliding_window", 4096_u32.into()), // more than the context
        (Architecture::Llama, "rope.scale_linear", 1.0_f32.into()),
        (Architecture::Qwen3, "pooling_type", 3_u32.into()),
        (Architecture::Qwen3Moe, "expert_group_count", 1_u32.into()),
        (Architecture::Qwen3Moe, "expert_gating_func", 1_u32.into()),
        (Architecture::Qwen3Moe, "expert_weights_norm", true.into()),
        (Architecture::Gemma3, "rope.dimension_count_swa", 64_u32.into()),
        (Architecture::Phi3, "attention.sliding_window", 64_u32.into()),
        (Architecture::Qwen2, "nextn_predict_layers", 0_u32.into()),
        (Architecture::Mamba2, "attention.head_count", 0_u32.into()),
        (Architecture::Mamba2, "feed_forward_length", 0_u32.into()),
    ];
    for (architecture, key, value) in all {
        let fixture = Fixture::new(*architecture);
        load(&fixture.with(&format!("{architecture}.{key}"), value.clone())).unwrap();
    }
    let fixture = Fixture::new(Architecture::Llama);
    load(&fixture.with("quantize.imatrix.entries_count", 224_u32)).unwrap();
}

/// A model in parts, as llama.cpp's `gguf-split` writes it: the first has all metadata.
struct Parts {
    folder: tempfile::TempDir,
    whole: Reader<Vec<u8>>,
}

impl Parts {
    fn path(&self, part: usize, n: usize) -> PathBuf {
        self.folder.path().join(format!("model-{part:05}-of-{n:05}.gguf"))
    }

    /// Writes a part with these tensors.
    fn write(&self, part: usize, n: usize, keep: impl Fn(usize) -> bool, change: impl FnOnce(&mut Writer)) -> PathBuf {
        let mut writer = Writer::new();
        if part == 1 {
            writer.set_kv(&self.whole).unwrap();
        }
        writer.set("split.no", Value::U16(u16::try_from(part - 1).unwrap())).unwrap();
        writer.set("split.count", Value::U16(u16::try_from(n).unwrap())).unwrap();
        writer.set("split.tensors.count", i32::try_from(self.whole.tensors().count()).unwrap()).unwrap();
        for (_, t) in self.whole.tensors().enumerate().filter(|(i, _)| keep(*i)) {
            writer.tensor(t.name(), t.dtype(), t.shape(), self.whole.data(t.name()).unwrap()).unwrap();
        }
        change(&mut writer);
        let path = self.path(part, n);
        writer.write(&path).unwrap();
        path
    }
}

fn put(writer: &mut Writer, key: &str, value: impl Into<Value>) {
    writer.set(key, value).unwrap();
}

#[test]
fn a_split_file_is_loaded_and_a_missing_part_named() {
    let logits = |path: &Path, options: &ModelOptions| {
        let model = Model::load(path, options).unwrap();
        let mut session = Session::new(model, &SessionOptions::default().with_n_ctx(256_usize)).unwrap();
        let mut batch = Batch::new();
        batch.prompt(0, &[5, 6, 7]);
        session.decode(&batch).unwrap();
        session.logits(0).unwrap().to_vec()
    };
    let fixture = Fixture::new(Architecture::Llama);
    let whole = Reader::from_bytes(std::fs::read(&fixture.file).unwrap()).unwrap();
    let parts = Parts { folder: tempfile::tempdir().unwrap(), whole };
    let first = parts.write(1, 3, |i| i % 3 == 1, |_| ());
    let second = parts.write(2, 3, |i| i % 3 == 0, |_| ());
    let said = refused(&first).to_string();
    assert!(said.contains("model-00003-of-00003.gguf"), "{said}");
    parts.write(3, 3, |i| i % 3 == 2, |_| ());
    for options in [ModelOptions::default(), ModelOptions::default().with_map(false).with_kernels(false)] {
        assert_eq!(logits(&first, &options), logits(&fixture.file, &options));
    }
    // The command and its progress get the first part, too.
    let mut last = (0, 0);
    Model::load_with(&first, &ModelOptions::default().with_map(false), &mut |done, all| last = (done, all)).unwrap();
    assert!(last.0 == last.1 && last.1 > 0, "{last:?}");

    let key = |path: &Path| match refused(path) {
        Error::Key { key, .. } => key.into_string(),
        other => other.to_string(),
    };
    assert_eq!(key(&second), "split.no", "not the first part");
    let renamed = parts.folder.path().join("renamed.gguf");
    std::fs::copy(&first, &renamed).unwrap();
    assert_eq!(key(&renamed), "split.count");
    // Parts of other models, in another order, with too few tensors or some twice.
    parts.write(3, 3, |i| i % 3 == 2 && i > 3, |_| ());
    assert_eq!(key(&first), "split.tensors.count");
    parts.write(3, 3, |i| i % 3 == 2, |w| put(w, "split.no", Value::U16(1)));
    assert_eq!(key(&first), "split.no");
    parts.write(3, 3, |i| i % 3 == 2, |w| put(w, "split.count", Value::U16(2)));
    assert_eq!(key(&first), "split.count");
    let n = parts.whole.tensors().count();
    let count = |w: &mut Writer| put(w, "split.tensors.count", i32::try_from(n + 1).unwrap());
    parts.write(1, 3, |i| i % 3 == 1, count);
    parts.write(3, 3, |i| i % 3 == 2 || i == 0, |_| ());
    assert_eq!(key(&first), "split.count", "a tensor is there twice");
    parts.write(1, 3, |i| i % 3 == 1, |w| put(w, "split.count", u32::MAX));
    assert_eq!(key(&first), "split.count");
}

/// Each key gets values of all kinds. A model either isn't loaded, or computes a token or says why not.
#[test]
fn no_value_of_any_key_ends_the_process() {
    let values = || -> Vec<Value> {
        vec![
            0_u32.into(),
            1_u32.into(),
            3_u32.into(),
            u32::MAX.into(),
            u64::MAX.into(),
            Value::I64(i64::MIN),
            f32::INFINITY.into(),
            f32::MIN_POSITIVE.into(),
            1e30_f32.into(),
            true.into(),
            "text".into(),
            vec![1_u32, 2].into(),
            vec![4_u32, 4].into(),
            vec![true, false].into(),
            Vec::<f32>::new().into(),
        ]
    };
    let (mut loaded, mut not) = (0, 0);
    for &architecture in Architecture::ALL {
        let mut recipe = Recipe::new(architecture);
        (recipe.n_layer, recipe.n_embd, recipe.n_ff, recipe.n_head, recipe.n_vocab) = (2, 64, 64, 4, 40);
        let fixture = Fixture::of(&recipe);
        let reader = Reader::open(&fixture.file).unwrap();
        let prefix = format!("{architecture}.");
        let more = ["rope.dimension_count", "rope.scaling.factor", "attention.key_length", "final_logit_softcapping"];
        let keys = reader.key_values().map(|(key, _)| key.to_owned()).filter(|key| key.starts_with(&prefix));
        for key in keys.chain(more.map(|key| format!("{prefix}{key}"))) {
            for value in values() {
                let Ok(model) = load(&fixture.with(&key, value)) else {
                    not += 1;
                    continue;
                };
                loaded += 1;
                let mut options = SessionOptions::default();
                (options.n_ctx, options.threads) = (256, 1);
                let Ok(mut session) = Session::new(model, &options) else { continue };
                let mut batch = Batch::new();
                batch.prompt(0, &[1, 2]);
                drop(session.decode(&batch));
            }
        }
    }
    assert!(loaded > 50 && not > 500, "{loaded} and {not}");
}
