//! The program, run on a small folder.

use std::collections::BTreeMap;

use ggml::Quantize as _;
use ggml::gguf::{Reader, Value};
use safetensors::tensor::TensorView;

use super::*;

/// A folder, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

const CONFIG: &str = r#"{"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute",
    "num_hidden_layers": 1, "max_position_embeddings": 4, "hidden_size": 2, "intermediate_size": 3,
    "num_attention_heads": 1, "layer_norm_eps": 1e-12, "type_vocab_size": 2}"#;

const TOKENIZER: &str = r###"{"model": {"type": "WordPiece", "vocab": {"##ed": 2, "[PAD]": 0, "want": 1, "[SEP]": 3}},
    "added_tokens": [{"id": 0, "content": "[PAD]"}, {"id": 3, "content": "[SEP]"}]}"###;

impl Folder {
    fn new(test: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("bert-to-gguf-{}-{test}", std::process::id())));
        fs::create_dir_all(folder.0.join("1_Pooling")).unwrap();
        folder.put("config.json", CONFIG);
        folder.put("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": true}"#);
        folder.put("sentence_bert_config.json", r#"{"max_seq_length": 3}"#);
        folder.put("tokenizer.json", TOKENIZER);
        folder.tensors(Dtype::F32, &["encoder.layer.0.intermediate.dense.weight", "pooler.dense.weight"]);
        folder
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Tensors of three rows with two numbers each.
    fn tensors(&self, dtype: Dtype, names: &[&str]) {
        let bytes: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let bytes = bytes.get(..6 * dtype.bitsize() / 8).unwrap();
        let view = || TensorView::new(dtype, vec![3, 2], bytes).unwrap();
        let tensors: BTreeMap<_, _> = names.iter().map(|name| (*name, view())).collect();
        safetensors::serialize_to_file(tensors, None, &self.0.join("model.safetensors")).unwrap();
    }

    fn run(&self, more: &[&str]) -> Result<String, String> {
        let output = self.0.join("out.gguf");
        let fixed = ["bert_to_gguf", self.0.to_str().unwrap(), output.to_str().unwrap()];
        let cli = Cli::try_parse_from(fixed.iter().chain(more)).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        run(&cli, &mut out).map_err(|e| format!("{e:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }
}

#[test]
fn cli_definition_is_consistent() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}

#[test]
fn bert_to_gguf_renames_tensors_and_metadata() {
    let folder = Folder::new("renamed");
    let printed = folder.run(&["--name", "small", "--license", "MIT"]).unwrap();
    assert!(printed.starts_with("bert_to_gguf: tensors=1 bytes=24 file="), "{printed}");
    let mut reader = Reader::open(folder.0.join("out.gguf")).unwrap();
    let tensors: Vec<_> = reader.tensors().map(|t| (t.name().to_owned(), t.dtype(), t.shape().ne())).collect();
    assert_eq!(tensors, [("blk.0.ffn_up.weight".to_owned(), DType::F32, [2, 3, 1, 1])]);
    let numbers = DType::F32.dequantize(&reader.read("blk.0.ffn_up.weight").unwrap()).unwrap();
    assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let text = |key| reader.metadata(key).and_then(Value::as_str).unwrap();
    let number = |key| reader.metadata(key).and_then(Value::as_u64).unwrap();
    assert_eq!([text("general.architecture"), text("general.name"), text("general.license")], ["bert", "small", "MIT"]);
    assert_eq!(text("tokenizer.huggingface.json"), TOKENIZER);
    assert_eq!(
        [number("bert.block_count"), number("bert.context_length"), number("bert.max_sentence_length")],
        [1, 4, 3]
    );
    assert_eq!(reader.metadata("bert.attention.layer_norm_epsilon").and_then(Value::as_f32), Some(1e-12));
}

#[test]
fn vocabulary_lists_tokens_by_id() {
    let folder = Folder::new("words");
    folder.run(&[]).unwrap();
    let reader = Reader::open(folder.0.join("out.gguf")).unwrap();
    let get = |key: &str| reader.metadata(&format!("tokenizer.ggml.{key}")).unwrap();
    assert_eq!(*get("model"), Value::from("bert"));
    let tokens = ["[PAD]", "\u{2581}want", "ed", "[SEP]"].map(str::to_owned);
    assert_eq!(*get("tokens"), Value::from(tokens.to_vec()));
    assert_eq!(*get("token_type"), Value::from(vec![3_i32, 1, 1, 3]));
    assert_eq!(
        ["token_type_count", "padding_token_id", "seperator_token_id"].map(|k| get(k).as_u64()),
        [2, 0, 3].map(Some)
    );
    assert!(reader.metadata("tokenizer.ggml.cls_token_id").is_none(), "there is none");
}

#[test]
fn output_file_is_replaced_only_with_force() {
    let folder = Folder::new("replaced");
    folder.run(&[]).unwrap();
    assert!(folder.run(&[]).unwrap_err().contains("--force"));
    folder.run(&["--force"]).unwrap();
}

#[test]
fn bert_to_gguf_refuses_other_models() {
    let changes = [
        ("config.json", CONFIG.replace("\"gelu\"", "\"relu\""), "`hidden_act` is \"relu\", but only \"gelu\""),
        ("config.json", CONFIG.replace("\"bert\"", "\"t5\""), "`model_type` is \"t5\""),
        ("config.json", CONFIG.replace("hidden_size", "size"), "does not say what `hidden_size` is"),
        ("config.json", CONFIG.replace(": 2", ": -2"), "`hidden_size` is no number"),
        ("config.json", "{".to_owned(), "config.json"),
        ("tokenizer.json", TOKENIZER.replace("WordPiece", "BPE"), "only \"WordPiece\" is understood"),
        ("tokenizer.json", TOKENIZER.replace(": 1,", ": 2,"), "has no number of its own"),
        ("tokenizer.json", TOKENIZER.replace(": 1,", ": 4,"), "has no number of its own"),
        ("1_Pooling/config.json", r#"{"pooling_mode_mean_tokens": false}"#.to_owned(), "only true is understood"),
        ("model.safetensors", "nonsense".to_owned(), "model.safetensors is damaged"),
    ];
    for (i, (name, text, expected)) in changes.into_iter().enumerate() {
        let folder = Folder::new(&format!("other{i}"));
        folder.put(name, &text);
        let error = folder.run(&[]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let folder = Folder::new("tensors");
    folder.tensors(Dtype::F32, &["encoder.layer.0.rotary.weight"]);
    assert!(folder.run(&[]).unwrap_err().contains("`encoder.layer.0.rotary.weight` is no tensor of a BERT"));
    folder.tensors(Dtype::F16, &["embeddings.LayerNorm.weight"]);
    assert!(folder.run(&[]).unwrap_err().contains("only f32 is understood"));
    assert!(!folder.0.join("out.gguf").exists());
}

#[test]
fn translate_maps_bert_tensor_names() {
    let of = |name| names::translate(name).unwrap();
    assert_eq!(of("bert.encoder.layer.11.output.LayerNorm.bias").unwrap(), "blk.11.layer_output_norm.bias");
    assert_eq!(of("embeddings.word_embeddings.weight").unwrap(), "token_embd.weight");
    assert_eq!(of("embeddings.position_ids"), None);
    for wrong in ["embeddings.LayerNorm.gamma", "encoder.layer.x.output.dense.bias", "encoder.layer.1", "weight", ""] {
        names::translate(wrong).unwrap_err();
    }
}
