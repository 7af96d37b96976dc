//! The program on a tiny model.

use std::num::NonZeroUsize;

use ggml::Sched;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use ggml::gguf::{Reader, Strings, Writer};
use ggml::{Context, DType, Weights};
use half::f16;

use super::*;
use model::Inputs;
use reference::Reference;
use train::full_pass;

/// Low-level tests have bytes as tokens.
const TINY: Config = Config { vocabulary: 260, layers: 2, heads: 2, width: 32, inner: 64, window: 16 };

/// A folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("generate-example-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn sched() -> Sched {
    shared::sched(NonZeroUsize::MIN).unwrap()
}

/// A text in which the next word follows from those before it.
fn poem(n: usize) -> String {
    "one two three four. ".chars().cycle().take(n).collect()
}

fn short() -> Text {
    text(TINY, &Documents::split(vec![poem(2000)])).unwrap()
}

/// A model of random weights, and what it must compute.
fn random() -> (Weights, Reference) {
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut builder, mut tensors) = (ggml::WeightsBuilder::new(), std::collections::HashMap::new());
    for (name, shape) in TINY.tensors() {
        builder.tensor(&name, DType::F32, shape.map(|n| i64::try_from(n).unwrap())).unwrap();
        let (mean, spread) = if shape[1] == 1 { (1.0, 0.3) } else { (0.0, 0.4) };
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| mean + spread * (rng.f32() * 2.0 - 1.0)).collect();
        tensors.insert(name, values);
    }
    let mut weights = builder.place(ggml::Device::cpu().unwrap().buffer_type()).unwrap();
    for (name, values) in &tensors {
        weights.set(name, values).unwrap();
    }
    let exact = |(name, values): (_, Vec<f32>)| (name, values.into_iter().map(f64::from).collect());
    (weights, Reference { config: TINY, tensors: tensors.into_iter().map(exact).collect() })
}

fn model(weights: &Weights) -> Model<'_> {
    Model::new(TINY, |name| weights.tensor(name)).unwrap()
}

fn noise(n: usize) -> Vec<i32> {
    let mut rng = fastrand::Rng::with_seed(6);
    (0..n).map(|_| rng.i32(0..260)).collect()
}

/// The logits lie within `bound` of the reference, which are of the order of 1.
fn close(what: &str, logits: &[f32], reference: &Reference, tokens: &[i32], bound: f64) {
    let expected = reference.logits(tokens).concat();
    assert_eq!(logits.len(), expected.len(), "{what}");
    let size = expected.iter().map(|x| x.abs()).fold(0.0, f64::max);
    assert!((1.0..100.0).contains(&size), "{what}: logits are up to {size}");
    let worst = logits.iter().zip(&expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    assert!(logits.iter().all(|x| x.is_finite()) && worst < bound, "{what}: {worst}");
}

#[test]
fn full_pass_equals_plain_rust() {
    let (weights, reference) = random();
    for n in [1, 2, 15, 16, 17, 40] {
        let tokens = noise(n);
        let logits = full_pass(&model(&weights), &mut sched(), &tokens).unwrap();
        close(&format!("{n} tokens"), &logits, &reference, &tokens, 1e-4);
    }
}

#[test]
fn batched_sequences_do_not_attend_to_each_other() {
    const N: usize = 9;
    let (weights, reference) = random();
    let tokens = noise(3 * N);
    let (ctx, mut sched) = (Context::new(), shared::sched(NonZeroUsize::new(2).unwrap()).unwrap());
    let inputs = Inputs::new(&ctx, N, 3, N).unwrap();
    let logits = model(&weights).forward(&ctx, &inputs, None).unwrap();
    let graph = ctx.graph([logits]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(inputs.tokens, &tokens).unwrap();
    run.set(inputs.positions, &(0..9).collect::<Vec<i32>>()).unwrap();
    let mask: Vec<f16> = (0..N * N).map(|i| cache::mask(i % N <= i / N)).collect();
    run.set(inputs.mask, &mask).unwrap();
    run.compute().unwrap();
    let all = run.get::<f32>(logits).unwrap();
    for (i, (logits, tokens)) in all.chunks(N * TINY.vocabulary).zip(tokens.chunks(N)).enumerate() {
        close(&format!("sequence {i}"), logits, &reference, tokens, 1e-4);
    }
}

#[test]
fn decoder_steps_equal_plain_rust() {
    let (weights, reference) = random();
    // Several times round the ring, token by token.
    for (n, chunk) in [(50, 1), (16, 3), (16, 16), (7, 7)] {
        let tokens = noise(n);
        for (dtype, bound) in [(DType::F32, 1e-4), (DType::F16, 2e-2)] {
            let logits = check::read(&model(&weights), dtype, &tokens, chunk).unwrap();
            close(&format!("{n} tokens by {chunk} with {dtype}"), &logits, &reference, &tokens, bound);
        }
    }
    // From a prompt on, beyond the end of the ring.
    let (tokens, model) = (noise(40), model(&weights));
    let memory = cache::memory(TINY, DType::F32).unwrap();
    let mut decoder = Decoder::new(&model, &memory, sched()).unwrap();
    let (prompt, rest) = tokens.split_at(12);
    let mut logits = decoder.read(prompt).unwrap().to_vec();
    for &token in rest {
        logits.extend(decoder.read(&[token]).unwrap());
    }
    close("a prompt and steps", &logits, &reference, &tokens, 1e-4);
    assert_eq!(decoder.plans(), 2, "one for the prompt, and one for all steps");
}

#[test]
fn decoder_refuses_chunks_that_wrap_the_cache() {
    let (weights, _) = random();
    let (model, memory) = (model(&weights), cache::memory(TINY, DType::F16).unwrap());
    let mut decoder = Decoder::new(&model, &memory, sched()).unwrap();
    let refused = |decoder: &mut Decoder<'_>, n| decoder.read(&noise(n)).unwrap_err().to_string();
    assert!(refused(&mut decoder, 17).contains("17 tokens at once behind 0 of 16"));
    assert!(refused(&mut decoder, 0).contains("0 tokens"));
    decoder.read(&noise(15)).unwrap();
    assert!(refused(&mut decoder, 2).contains("2 tokens at once behind 15 of 16"));
    decoder.read(&[300]).unwrap_err();
    let logits = decoder.read(&[3]).unwrap();
    assert_eq!(logits.len(), TINY.vocabulary);
}

#[test]
fn config_check_refuses_impossible_models() {
    let with = |change: fn(&mut Config)| {
        let mut config = TINY;
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(with(|c| c.heads = 3).contains("shared by 3 heads"));
    assert!(with(|c| c.heads = 32).contains("in pairs"));
    assert!(with(|c| c.window = 0).contains("sizes of"));
    assert!(with(|c| c.inner = 1 << 40).contains("sizes of"));
}

/// The bytes of a model that was trained a little.
fn trained(seed: u64, threads: usize) -> Vec<u8> {
    let how = Training { steps: 5, seed };
    let mut sched = shared::sched(NonZeroUsize::new(threads).unwrap()).unwrap();
    let weights = train::train(TINY, &short(), how, &mut sched, |_| ()).unwrap();
    TINY.tensors().iter().flat_map(|(name, _)| weights.read_bytes(name).unwrap()).collect()
}

#[test]
fn training_is_deterministic_on_any_number_of_threads() {
    testkit::assert_seed_decides(trained);
}

#[test]
fn train_refuses_a_text_that_is_too_short() {
    let text = text(TINY, &Documents { train: vec!["one".to_owned()], held_out: vec![poem(2000)] }).unwrap();
    let how = Training { steps: 1, seed: 1 };
    let e = train::train(TINY, &text, how, &mut sched(), |_| ()).unwrap_err().to_string();
    assert!(e.contains("too short"), "{e}");
    let (weights, _) = random();
    let e = train::loss(&model(&weights), &mut sched(), &[1; 16]).unwrap_err().to_string();
    assert!(e.contains("shorter than the model's window"), "{e}");
}

/// By the definition: minus the mean logarithm of the shares of what came.
#[test]
fn held_out_loss_equals_plain_rust() {
    let (weights, reference) = random();
    let tokens = noise(2 * 17 + 5);
    let mut sum = 0.0;
    for piece in tokens.chunks_exact(17) {
        for (logits, &next) in reference.logits(&piece[..16]).iter().zip(&piece[1..]) {
            let total: f64 = logits.iter().map(|x| x.exp()).sum();
            sum -= (logits[usize::try_from(next).unwrap()].exp() / total).ln() / 32.0;
        }
    }
    let loss = train::loss(&model(&weights), &mut sched(), &tokens).unwrap();
    assert!((loss - sum).abs() < 1e-5, "{loss} is not {sum}");
}

#[test]
fn check_reports_agreement_and_a_bad_model() {
    let training = Training { steps: 80, seed: 1 };
    let check = |bits| {
        let mut out = Vec::new();
        let result = check::run(&Check { config: TINY, training, bits }, &short(), &mut out);
        (result.map_err(|e| e.to_string()), String::from_utf8(out).unwrap())
    };
    let (result, printed) = check(2.0);
    assert_eq!(result, Ok(()), "{printed}");
    let last = printed.lines().next_back().unwrap();
    assert!(last.starts_with("generate: loss="), "{last}");
    // A debug build of the library makes much twice, to compare.
    assert!(cfg!(debug_assertions) || last.ends_with(" allocs_per_step=0"), "{last}");
    for key in [" steps=80 ", " max_abs_diff=", " tokens_per_s="] {
        assert!(last.contains(key), "{last}");
    }
    let (result, printed) = check(0.001);
    assert!(result.unwrap_err().starts_with("bits per byte: "), "{printed}");
    assert!(printed.contains("\ngenerate: loss="), "the line is there whatever was found: {printed}");
}

fn program(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let cli = Cli::try_parse_from(["generate"].iter().chain(arguments)).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    let done = match &cli.command {
        Some(Command::Train(cli)) => train(TINY, cli, &mut out),
        _ => run(&cli, &mut out),
    };
    done.map_err(|e| format!("{e:#}")).map(|()| out)
}

#[test]
fn generate_trains_and_continues_a_text() {
    let folder = Folder::new("program");
    let [model, text, plot] = ["model.gguf", "text.txt", "loss.svg"].map(|name| folder.file(name));
    fs::write(&text, poem(4000)).unwrap();
    let printed =
        program(&["train", "--output", &model, "--text", &text, "--steps", "150", "--threads", "1", "--plot", &plot]);
    let printed = String::from_utf8(printed.unwrap()).unwrap();
    assert!(printed.contains(" tokens to train on, ") && printed.contains("; seed 1"), "{printed}");
    let bits = printed.split("bits_per_byte=").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(bits.unwrap().parse::<f64>().unwrap() < 0.5, "{printed}");
    let svg = fs::read_to_string(&plot).unwrap();
    let svg = roxmltree::Document::parse(&svg).unwrap();
    let curve = svg.descendants().filter_map(|node| node.attribute("d")).next_back().unwrap();
    assert_eq!(curve.matches('L').count(), 149, "{curve}");
    assert!(!curve.contains("NaN"), "{curve}");

    let sample = |more: &[&str]| program(&[&["sample", "--model", &model], more].concat());
    // Goes on behind a prompt, also if that is longer than the window, and round the window.
    for (prompt, dtype) in [(7, "f32"), (60, "f32"), (60, "f16"), (60, "q8_0")] {
        let all = [&poem(prompt), "--tokens", "40", "--temperature", "0", "--dtype", dtype, "--cache", "f32"];
        let text = String::from_utf8(sample(&all).unwrap()).unwrap();
        assert!(text.len() > prompt + 40 && poem(1000).starts_with(text.trim_end_matches('\n')), "{dtype}: {text}");
    }
    let text = |seed| sample(&["--tokens", "50", "--temperature", "3", "--seed", seed]).unwrap();
    assert!(text("1") == text("1") && text("1") != text("2") && text("1").len() > 40);
    assert!(sample(&[""]).unwrap_err().contains("one character at least"));
    assert!(sample(&["--dtype", "q4_K"]).unwrap_err().contains("there are f32, f16"));
    assert!(sample(&["--cache", "q8_0"]).unwrap_err().contains("there are f32, f16"));
    assert!(sample(&["--temperature=-1"]).unwrap_err().contains("not below 0"));
    assert!(sample(&["--threads", "0"]).unwrap_err().contains("from 1 to"));

    let nowhere = folder.file("none.gguf");
    assert!(program(&["sample", "--model", &nowhere]).unwrap_err().contains("`generate train` makes a model"));
    let short = program(&["train", "--output", &nowhere, "--text", &plot[..plot.len() - 1]]).unwrap_err();
    assert!(short.contains("can't read"), "{short}");
    assert!(!Path::new(&nowhere).exists());
    let train =
        |output: &str, more: &[&str]| program(&[&["train", "--output", output, "--text", "none"], more].concat());
    let e = train(&folder.file("none/model.gguf"), &[]).unwrap_err();
    assert!(e.contains("--output FILE") && e.contains("none is not there"), "{e}");
    let e = train(&model, &[]).unwrap_err();
    assert!(e.contains("model.gguf is there already: --force replaces it"), "{e}");
    let e = train(&nowhere, &["--plot", &plot]).unwrap_err();
    assert!(e.contains("loss.svg is there already: --force"), "{e}");
    let e = train(&nowhere, &["--plot", &nowhere]).unwrap_err();
    assert!(e.contains("--plot SVG and --output FILE name the same file"), "{e}");
    assert!(train(&model, &["--plot", &plot, "--force"]).unwrap_err().contains("can't read none"));
}

#[test]
fn read_refuses_files_of_other_models() {
    let training = Training { steps: 1, seed: 1 };
    let weights = train::train(TINY, &short(), training, &mut sched(), |_| ()).unwrap();
    let read = |writer: &Writer, dtype| {
        let file = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
        file::read(&file, dtype).map(|_| ()).map_err(|e| format!("{e:#}"))
    };
    let vocabulary = short().vocabulary;
    let good = || file::write(TINY, training, &vocabulary, &weights).unwrap();
    assert_eq!(read(&good(), None), Ok(()));
    let mut writer = good();
    writer.set("general.architecture", "gemma3").unwrap();
    assert!(read(&writer, None).unwrap_err().contains("no `llama` model"));
    let mut writer = good();
    writer.set("tokenizer.ggml.tokens", Strings::from_iter(["a", "b"])).unwrap();
    assert!(read(&writer, None).unwrap_err().contains("out of vocabulary"));
    let mut writer = good();
    writer.set("llama.embedding_length", 64_u32).unwrap();
    assert!(read(&writer, None).unwrap_err().contains("should be 64 by 260, but is"));
    let mut writer = good();
    writer.set("llama.block_count", 3_u32).unwrap();
    assert!(read(&writer, None).unwrap_err().contains("blk.2.attn_norm.weight"));
    let mut writer = good();
    writer.remove("llama.context_length");
    assert!(read(&writer, None).unwrap_err().contains("does not say what `llama.context_length` is"));
    assert!(read(&good(), Some(DType::Q4_K)).unwrap_err().contains("no whole blocks"));
    weights.fill_with("blk.1.ffn_up.weight", f32::NAN).unwrap();
    assert!(read(&good(), Some(DType::Q8_0)).unwrap_err().contains("tensor `blk.1.ffn_up.weight`: number 0 is NaN"));
}

#[test]
fn cli_definition_is_consistent() {
    Cli::command().debug_assert();
    for wrong in [&[][..], &["--check", "train", "--output", "x"], &["train"], &["sample"], &["--steps", "3"]] {
        program(wrong).unwrap_err();
    }
    assert!(Cli::try_parse_from(["generate", "--check"]).unwrap().check);
}

#[test]
fn generated_bytes_are_harmless_to_a_terminal() {
    let text = "\u{1b}[2J\u{9b}2J\u{7f}\tGrüße, ° 世界\r\n";
    let pairs = std::iter::once(0).chain(text.bytes()).zip(text.bytes());
    let shown: Vec<u8> = pairs.map(|(before, byte)| harmless(before, byte)).collect();
    assert_eq!(String::from_utf8_lossy(&shown), "?[2J\u{fffd}?2J?\tGrüße, ° 世界?\n");
}
