//! The program on a tiny model with random weights; what it must compute, in plain Rust.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_possible_wrap, reason = "small numbers")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{CommandFactory as _, ValueEnum as _};
use embed::config::Config;
use ggml::Quantize as _;
use ggml::gguf::{Reader, Value, Writer};
use ggml::{DType, Device};

use super::*;

const WIDTH: usize = 8;
const HEADS: usize = 2;
const INNER: usize = 12;
const LAYERS: usize = 3;
const POSITIONS: usize = 10;
const LONGEST: usize = 7;
const EPS: f32 = 1e-6;
const WORDS: [&str; 11] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "##s", "sits", "on", "mat"];

/// A model file, removed at the end.
struct Tiny {
    path: PathBuf,
    tensors: HashMap<String, Vec<f64>>,
    /// What [`Tiny::linear`] was given, by name of the matrix.
    operands: RefCell<HashMap<String, Vec<Vec<f64>>>>,
}

impl Drop for Tiny {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

fn tokenizer() -> String {
    let words: HashMap<_, _> = WORDS.iter().zip(0..).collect();
    let mark = |word: &str, id: u32| serde_json::json!({"id": word, "ids": [id], "tokens": [word]});
    serde_json::json!({
        "version": "1.0",
        // As the real one has them; neither is to be used.
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 20}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"[CLS]": mark("[CLS]", 2), "[SEP]": mark("[SEP]", 3)}},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": words},
    })
    .to_string()
}

/// Name and dimensions of all tensors, the innermost first.
fn shapes() -> Vec<(String, [usize; 2])> {
    let mut shapes = vec![
        ("token_embd.weight".to_owned(), [WIDTH, WORDS.len()]),
        ("position_embd.weight".to_owned(), [WIDTH, POSITIONS]),
        ("token_types.weight".to_owned(), [WIDTH, 2]),
        ("token_embd_norm.weight".to_owned(), [WIDTH, 1]),
        ("token_embd_norm.bias".to_owned(), [WIDTH, 1]),
    ];
    for layer in 0..LAYERS {
        let mut add = |part: &str, ne| shapes.push((format!("blk.{layer}.{part}"), ne));
        for part in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            add(&format!("{part}.weight"), [WIDTH, WIDTH]);
            add(&format!("{part}.bias"), [WIDTH, 1]);
        }
        add("ffn_up.weight", [WIDTH, INNER]);
        add("ffn_up.bias", [INNER, 1]);
        add("ffn_down.weight", [INNER, WIDTH]);
        add("ffn_down.bias", [WIDTH, 1]);
        for part in ["attn_output_norm", "layer_output_norm"] {
            add(&format!("{part}.weight"), [WIDTH, 1]);
            add(&format!("{part}.bias"), [WIDTH, 1]);
        }
    }
    shapes
}

impl Tiny {
    fn new(test: &str) -> Self {
        Self::with(test, |_| ())
    }

    fn with(test: &str, change: impl FnOnce(&mut Writer)) -> Self {
        let path = std::env::temp_dir().join(format!("embed-example-{}-{test}.gguf", std::process::id()));
        let (mut writer, mut rng, mut tensors) = (Writer::new(), fastrand::Rng::with_seed(3), HashMap::new());
        writer.set("general.architecture", "bert").unwrap();
        let numbers = [
            ("bert.block_count", LAYERS),
            ("bert.context_length", POSITIONS),
            ("bert.embedding_length", WIDTH),
            ("bert.attention.head_count", HEADS),
            ("bert.max_sentence_length", LONGEST),
            ("bert.pooling_type", 1),
        ];
        for (key, number) in numbers {
            writer.set(key, number as u32).unwrap();
        }
        writer.set("bert.attention.layer_norm_epsilon", EPS).unwrap();
        writer.set("tokenizer.huggingface.json", tokenizer()).unwrap();
        for (name, [n0, n1]) in shapes() {
            // Layers that hand on what comes in: sentences stay far from each other.
            let (mean, spread) = match name.as_str() {
                name if name.ends_with("norm.weight") => (1.0, 0.3),
                name if name.ends_with("bias") => (0.0, 0.2),
                _ => (0.0, 1.0),
            };
            let numbers: Vec<_> = (0..n0 * n1).map(|_| mean + spread * (rng.f32() * 2.0 - 1.0)).collect();
            let bytes: Vec<_> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
            writer.tensor(&name, DType::F32, [n0 as i64, n1 as i64], &bytes).unwrap();
            tensors.insert(name, numbers.into_iter().map(f64::from).collect());
        }
        change(&mut writer);
        writer.write(&path).unwrap();
        Self { path, tensors, operands: RefCell::default() }
    }

    fn open(&self, devices: &[Device], by: Kernels) -> Result<Model> {
        Model::open(&self.path, devices, NonZeroUsize::new(2).unwrap(), by)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let fixed = ["embed", "--model", self.path.to_str().unwrap(), "--threads", "1"];
        let cli = Cli::try_parse_from(fixed.iter().chain(arguments)).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        run(&cli, &mut out).map_err(|e| format!("{e:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn tensor(&self, name: &str) -> &[f64] {
        &self.tensors[name]
    }

    /// A row of a table.
    fn row(&self, name: &str, i: usize) -> &[f64] {
        &self.tensor(name)[i * WIDTH..][..WIDTH]
    }

    fn linear(&self, x: &[f64], name: &str) -> Vec<f64> {
        let matrix = format!("{name}.weight");
        let rows = self.tensor(&matrix).chunks(x.len());
        let bias = self.tensor(&format!("{name}.bias"));
        let sums = rows.zip(bias).map(|(row, b)| dot(row, x) + b).collect();
        self.operands.borrow_mut().entry(matrix).or_default().push(x.to_vec());
        sums
    }

    fn norm(&self, x: &[f64], name: &str) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let (weight, bias) = (self.tensor(&format!("{name}.weight")), self.tensor(&format!("{name}.bias")));
        let normal = x.iter().map(|x| (x - mean) / (variance + f64::from(EPS)).sqrt());
        normal.zip(weight).zip(bias).map(|((x, w), b)| x * w + b).collect()
    }

    /// The vector of a sentence.
    fn reference(&self, tokens: &[i32]) -> Vec<f64> {
        let embed = |(i, &token): (usize, &i32)| {
            let word = self.row("token_embd.weight", usize::try_from(token).unwrap());
            let sum = add(&add(word, self.row("position_embd.weight", i)), self.row("token_types.weight", 0));
            self.norm(&sum, "token_embd_norm")
        };
        let mut all: Vec<_> = tokens.iter().enumerate().map(embed).collect();
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let each = |part: &str| all.iter().map(|x| self.linear(x, &name(part))).collect::<Vec<_>>();
            let (q, k, v) = (each("attn_q"), each("attn_k"), each("attn_v"));
            let next = all.iter().zip(&q).map(|(x, q)| {
                let attended = self.linear(&attend(q, &k, &v), &name("attn_output"));
                let x = self.norm(&add(&attended, x), &name("attn_output_norm"));
                let up: Vec<_> = self.linear(&x, &name("ffn_up")).into_iter().map(testkit::gelu_erf).collect();
                self.norm(&add(&self.linear(&up, &name("ffn_down")), &x), &name("layer_output_norm"))
            });
            all = next.collect();
        }
        let sum = all.iter().fold(vec![0.0; WIDTH], |sum, x| add(&sum, x));
        let length = dot(&sum, &sum).sqrt();
        sum.iter().map(|x| x / length).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// What a query makes of all keys and values, head by head.
fn attend(q: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>]) -> Vec<f64> {
    let size = WIDTH / HEADS;
    let head = |h: usize| {
        let part = move |x: &[f64]| x[h * size..][..size].to_vec();
        let weights: Vec<_> = keys.iter().map(|k| (dot(&part(q), &part(k)) / (size as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        values.iter().zip(weights).fold(vec![0.0; size], |sum, (v, weight)| {
            sum.iter().zip(part(v)).map(|(sum, v)| sum + v * weight / total).collect()
        })
    };
    (0..HEADS).flat_map(head).collect()
}

/// Of several lengths, some more than once.
fn sentences() -> Vec<Vec<i32>> {
    let mut rng = fastrand::Rng::with_seed(5);
    let lengths = [3, 1, 7, 4, 7, 2, 4, 4, 6, 7, 1];
    lengths.iter().map(|&n| (0..n).map(|_| rng.i32(0..WORDS.len() as i32)).collect()).collect()
}

fn batch(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn cpu() -> Vec<Device> {
    vec![Device::cpu().unwrap()]
}

/// That the vectors of [`sentences`] are those of the plain Rust encoder.
fn compare(tiny: &Tiny, model: &mut Model, size: usize, allowed: f64) {
    let sentences = sentences();
    let mut done = 0;
    let vectors = model.embed(&sentences, batch(size), |n| done += n).unwrap();
    assert_eq!((vectors.len(), done), (sentences.len(), sentences.len()));
    assert!(cosine(&vectors[0], &vectors[1]) < 0.9 && cosine(&vectors[2], &vectors[4]) < 0.9, "these sentences differ");
    for (tokens, vector) in sentences.iter().zip(vectors) {
        let expected = tiny.reference(tokens);
        let worst = expected.iter().zip(&vector).map(|(a, &b)| (a - f64::from(b)).abs()).fold(0.0, f64::max);
        assert!(worst <= allowed, "{worst:e} in batches of {size}: {vector:?} for {expected:?} of {tokens:?}");
    }
}

#[test]
fn embeddings_equal_plain_rust_for_any_batch_size() {
    let tiny = Tiny::new("definition");
    for &by in Kernels::value_variants() {
        let mut model = tiny.open(&cpu(), by).unwrap();
        for size in [1, 2, 3, 4, 11, 100] {
            compare(&tiny, &mut model, size, 2e-6);
        }
    }
}

#[test]
fn embeddings_agree_on_all_backends_and_splits() {
    let tiny = Tiny::new("splits");
    let devices = splits::devices(NonZeroUsize::MIN).unwrap();
    assert!(devices.len() > usize::from(cfg!(feature = "rpc")), "{devices:?}");
    let all = splits::all(&devices, LAYERS);
    for split in &all {
        for &by in Kernels::value_variants() {
            let mut model = tiny.open(split, by).unwrap();
            compare(&tiny, &mut model, 4, if splits::with_gpu(split) { 2e-2 } else { 2e-6 });
        }
    }
    // The results of all devices can be looked at.
    let last = all.iter().rfind(|split| !splits::with_gpu(split)).unwrap();
    compare_importance(&tiny, &mut tiny.open(last, Kernels::Ggml).unwrap(), 4);
}

/// That the importance of columns for [`sentences`] is what the plain Rust encoder finds: the mean of the squares of what it
/// multiplies them by.
fn compare_importance(tiny: &Tiny, model: &mut Model, size: usize) {
    let (sentences, path) = (sentences(), tiny.path.with_extension("imatrix"));
    let mut done = 0;
    let found = Imatrix::of(model, &sentences, batch(size), |n| done += n).unwrap();
    assert_eq!((found.len(), done), (6 * LAYERS, sentences.len()));
    found.write(&path, vec!["lines.txt".to_owned()], LONGEST).unwrap();
    let read = (demos::imatrix::Imatrix::read(&path), Reader::open(&path));
    fs::remove_file(&path).unwrap();
    let (read, file) = (read.0.unwrap(), read.1.unwrap().into_memory().unwrap());

    tiny.operands.take();
    for tokens in &sentences {
        tiny.reference(tokens);
    }
    let tokens: usize = sentences.iter().map(Vec::len).sum();
    for (matrix, operands) in tiny.operands.take() {
        assert_eq!(operands.len(), tokens);
        let columns = operands[0].len();
        let weights = read.of(&matrix, columns, 1).unwrap().unwrap()[0];
        for (i, &found) in weights.iter().enumerate() {
            let expected = operands.iter().map(|x| x[i] * x[i]).sum::<f64>() / tokens as f64;
            let error = (f64::from(found) - expected).abs();
            // The squares of numbers that are as exact as vectors are.
            let allowed = 4e-6 * expected.sqrt() + 1e-6 * expected;
            assert!(error <= allowed, "column {i} of {matrix} in batches of {size}: {found} instead of {expected}");
        }
        let counts = DType::F32.dequantize(file.data(&format!("{matrix}.counts")).unwrap()).unwrap();
        assert_eq!(counts, [tokens as f32]);
    }
    let metadata: Vec<_> = file.key_values().map(|(key, value)| (key, value.clone())).collect();
    let expected = [
        ("general.type", "imatrix".into()),
        ("imatrix.datasets", vec!["lines.txt".to_owned()].into()),
        ("imatrix.chunk_count", (tokens.div_ceil(LONGEST) as u32).into()),
        ("imatrix.chunk_size", (LONGEST as u32).into()),
    ];
    assert_eq!(metadata, expected);
}

#[test]
fn imatrix_equals_plain_rust_whatever_is_padded() {
    let tiny = Tiny::new("importance");
    for by in [Kernels::Ggml, Kernels::Flash] {
        let mut model = tiny.open(&cpu(), by).unwrap();
        for size in [1, 3, 4, 100] {
            compare_importance(&tiny, &mut model, size);
        }
    }
}

#[test]
fn embed_refuses_impossible_sentences() {
    let tiny = Tiny::new("refused");
    let mut model = tiny.open(&cpu(), Kernels::Own).unwrap();
    let mut embed = |sentences: &[Vec<i32>]| model.embed(sentences, batch(2), |_| ()).map_err(|e| format!("{e:#}"));
    assert!(embed(&[vec![1], vec![]]).unwrap_err().contains("1 to 7 tokens"));
    assert!(embed(&[vec![1; LONGEST + 1]]).unwrap_err().contains("1 to 7 tokens"));
    for wrong in [-1, WORDS.len() as i32, i32::MAX, i32::MIN] {
        assert!(embed(&[vec![1, wrong]]).unwrap_err().contains("tokens"), "{wrong}");
    }
    assert_eq!(embed(&[]).unwrap(), Vec::<Vec<f32>>::new());
    assert_eq!(embed(&[vec![1]]).unwrap().len(), 1);
}

#[test]
fn tokenizer_adds_special_tokens() {
    let tiny = Tiny::new("words");
    let tokens = Tokens::new(&tiny.open(&cpu(), Kernels::Own).unwrap()).unwrap();
    let found = tokens.of(&["The CATS sits", "", "bird", "on on on on on on on on"]).unwrap();
    assert_eq!(found, [&[2, 4, 5, 7, 8, 3][..], &[2, 3], &[2, 1, 3], &[2, 9, 9, 9, 9, 9, 3]]);
}

#[test]
fn embed_writes_vectors_and_searches() {
    let tiny = Tiny::new("program");
    let (lines, matrix) = (tiny.path.with_extension("txt"), tiny.path.with_extension("npy"));
    fs::write(&lines, "the mat\ndogs\n\ncats\n").unwrap();
    let (file, out) = (lines.to_str().unwrap(), matrix.to_str().unwrap());
    let written = tiny.run(&["the cat", "--file", file, "--out", out, "--batch", "2"]);
    let importance = tiny.path.with_extension("program");
    let summed = tiny.run(&["the cat", "--file", file, "--imatrix", importance.to_str().unwrap()]);
    let imatrix = Reader::open(&importance);
    let shown = tiny.run(&["the cat", "dogs"]);
    let searched = tiny.run(&["--file", file, "--search", "the mat", "--top", "2", "--kernels", "flash"]);
    let rows = npy::read(&matrix);
    fs::remove_file(&lines).unwrap();
    fs::remove_file(matrix).unwrap();
    fs::remove_file(importance).unwrap();
    let summed = summed.unwrap();
    assert!(summed.starts_with("imatrix: matrices=18 file=") && summed.contains("\nembed: sentences=5 tokens=18 "));
    assert_eq!(imatrix.unwrap().metadata("imatrix.datasets"), Some(&vec![file.to_owned()].into()));
    assert!(written.unwrap().starts_with("embed: sentences=5 tokens=18 seconds="));
    let rows = rows.unwrap();
    assert_eq!((rows.len(), rows[0].len()), (5, WIDTH));
    let expected = tiny.reference(&[2, 4, 5, 3]);
    assert!(rows[0].iter().zip(expected).all(|(&a, b)| (f64::from(a) - b).abs() <= 2e-6));
    let searched = searched.unwrap();
    assert!(searched.starts_with("1.0000     1: the mat\n") && searched.lines().count() == 3, "{searched}");
    let shown = shown.unwrap();
    assert_eq!(shown.matches("1.0000").count(), 2, "{shown}");
    assert!(tiny.run(&["x", "--file", "/no/such/file"]).unwrap_err().contains("can't read /no/such/file"));
    assert!(tiny.run(&["x", "--device", "Abacus"]).unwrap_err().contains("Abacus"));
}

#[test]
fn open_refuses_files_of_other_models() {
    let set = |key: &'static str, value: Value| {
        move |writer: &mut Writer| {
            writer.set(key, value).unwrap();
        }
    };
    let refused = |tiny: &Tiny| format!("{:#}", tiny.open(&cpu(), Kernels::Own).unwrap_err());
    let changes: [(_, Value, &str); 7] = [
        ("general.architecture", "llama".into(), "no `bert`"),
        ("bert.pooling_type", 2_u32.into(), "vectors are means"),
        ("bert.attention.head_count", 3_u32.into(), "can't be shared by 3 heads"),
        ("bert.attention.head_count", 0_u32.into(), "`bert.attention.head_count` is no number"),
        ("bert.embedding_length", (-8_i32).into(), "`bert.embedding_length` is no number"),
        ("bert.attention.layer_norm_epsilon", "small".into(), "epsilon"),
        ("tokenizer.huggingface.json", 1_u32.into(), "no tokenizer"),
    ];
    for (i, (key, value, expected)) in changes.into_iter().enumerate() {
        let text = refused(&Tiny::with(&format!("other{i}"), set(key, value)));
        assert!(text.contains(expected), "{text}");
    }
    let removed = Tiny::with("removed", |writer| drop(writer.remove("bert.block_count")));
    assert!(refused(&removed).contains("does not say what `bert.block_count` is"));
    assert!(
        Tokens::new(
            &Tiny::with("json", set("tokenizer.huggingface.json", "{}".into())).open(&cpu(), Kernels::Own).unwrap()
        )
        .is_err()
    );
    // Layers that are not in the file, and weights of another shape.
    for (test, key, number) in [("layers", "bert.block_count", 4_u32), ("wide", "bert.embedding_length", 16)] {
        let tiny = Tiny::with(test, set(key, number.into()));
        tiny.open(&cpu(), Kernels::Own).unwrap_err();
        tiny.open(&cpu(), Kernels::Ggml).unwrap().embed(&sentences(), batch(2), |_| ()).unwrap_err();
    }
}

#[test]
fn config_reads_hyperparameters() {
    let tiny = Tiny::new("settings");
    let config = Config::read(&Reader::open(&tiny.path).unwrap()).unwrap();
    assert_eq!(config, Config { layers: 3, heads: 2, width: 8, eps: EPS, max_tokens: 7 });
}

#[test]
fn cli_definition_is_consistent() {
    Cli::command().debug_assert();
    for wrong in [
        &["embed"][..],
        &["embed", "--check", "x"],
        &["embed", "--check", "--imatrix", "y"],
        &["embed", "x", "--imatrix", "y", "--out", "z"],
        &["embed", "x", "--imatrix", "y", "--search", "z"],
        &["embed", "x", "--dtype", "q2_K"],
        &["embed", "x", "--top", "1"],
    ] {
        assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
    }
    let help = Cli::command().render_help().to_string();
    assert!(!help.contains(env!("CARGO_MANIFEST_DIR")), "a path of this machine is in:\n{help}");
}
