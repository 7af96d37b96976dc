//! The program, run on small files.

#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use ggml::DType;
use ggml::Quantize as _;
use ggml::gguf::{Reader, Writer};

use crate::cli::{Cli, can_quantize};

/// A folder, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn noise(n: usize) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(7);
    (0..n).map(|_| rng.f32() * 2.0 - 1.0).collect()
}

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("quantize-example-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A file with this tensor beside some that stay.
    fn with(name: &str, matrix: &[f32], ne: [i64; 3]) -> Self {
        let folder = Self::new(name);
        let mut writer = Writer::new();
        writer.set("general.name", "test").unwrap();
        writer.tensor("bias", DType::F32, [512], &bytes(&noise(512))).unwrap();
        writer.tensor("up.weight", DType::F32, ne, &bytes(matrix)).unwrap();
        writer.tensor("ids", DType::I32, [256, 2], &[1; 2048]).unwrap();
        writer.tensor("odd", DType::F32, [7, 2], &bytes(&noise(14))).unwrap();
        writer.tensor("output.weight", DType::F32, [256, 2], &bytes(&noise(512))).unwrap();
        writer.write(folder.file("in.gguf")).unwrap();
        folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let (input, output) = (self.file("in.gguf"), self.file("out.gguf"));
        let fixed = ["quantize", input.to_str().unwrap(), output.to_str().unwrap(), "--force"];
        let cli = Cli::try_parse_from(fixed.iter().chain(arguments)).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        crate::run(&cli, &mut out).map_err(|e| format!("{e:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn result(&self) -> Reader<Vec<u8>> {
        Reader::open(self.file("out.gguf")).unwrap().into_memory().unwrap()
    }
}

fn rmse(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    (a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>() / a.len() as f32).sqrt()
}

/// An importance matrix for a tensor, in which columns matter more and more.
fn imatrix(path: &Path, tensor: &str, columns: i64, counts: &[f32]) {
    let n = usize::try_from(columns).unwrap() * counts.len();
    write_imatrix(path, tensor, columns, &(1..=n).map(|i| i as f32).collect::<Vec<_>>(), counts);
}

fn write_imatrix(path: &Path, tensor: &str, columns: i64, sums: &[f32], counts: &[f32]) {
    let matrices = i64::try_from(counts.len()).unwrap();
    let mut writer = Writer::new();
    writer.tensor(&format!("{tensor}.in_sum2"), DType::F32, [columns, matrices], &bytes(sums)).unwrap();
    writer.tensor(&format!("{tensor}.counts"), DType::F32, [1, matrices], &bytes(counts)).unwrap();
    writer.write(path).unwrap();
}

/// All that ggml 0.26 can turn numbers into, and back.
const TYPES: [&str; 28] = [
    "f32", "f16", "bf16", "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "nvfp4", "q2_K", "q3_K",
    "q4_K", "q5_K", "q6_K", "tq1_0", "tq2_0", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
    "iq4_nl", "iq4_xs",
];

#[test]
fn quantize_round_trips_every_type() {
    let matrix = noise(256 * 2 * 2);
    let folder = Folder::with("types", &matrix, [256, 2, 2]);
    let file = folder.file("imatrix.gguf");
    imatrix(&file, "up.weight", 256, &[1.0, 2.0]);
    let options = ["--imatrix", file.to_str().unwrap(), "--keep", "output", "--type"];
    let mut types: Vec<_> = DType::ALL.iter().copied().filter(|&t| can_quantize(t)).collect();
    let mut names = types.iter().map(|t| t.name()).collect::<Vec<_>>();
    names.sort_unstable();
    let mut expected = TYPES.to_vec();
    if ggml::version() != "0.26.0" {
        expected.push("f8_e4m3");
    }
    expected.sort_unstable();
    assert_eq!(names, expected);
    types.retain(|&t| t != DType::F32);
    for dtype in types {
        let printed = folder.run(&[&options[..], &[dtype.name()]].concat()).unwrap();
        let result = folder.result();
        let t = result.tensor("up.weight").unwrap();
        assert_eq!((t.dtype(), t.shape().ne()), (dtype, [256, 2, 2, 1]));
        let back = dtype.dequantize(result.data("up.weight").unwrap()).unwrap();
        let error = rmse(&matrix, &back);
        // Numbers have a mean square of a third.
        assert!(error < 0.45 && (error > 0.0), "{dtype}: {error}");
        let told: Vec<_> = printed.lines().filter(|l| l.starts_with("up.weight")).collect();
        let told: f32 = told[0].rsplit(' ').next().unwrap().parse().unwrap();
        assert!((told - error).abs() < 1e-2 * error, "{dtype}: {told} is not {error}");
        assert!(printed.contains("bytes=") && printed.contains("converted=1") || dtype.block_size() == 1, "{printed}");

        fs::rename(folder.file("out.gguf"), folder.file("small.gguf")).unwrap();
        let (small, out) = (folder.file("small.gguf"), folder.file("out.gguf"));
        let cli = Cli::parse_from(["quantize", small.to_str().unwrap(), out.to_str().unwrap(), "--type", "f32"]);
        crate::run(&cli, &mut Vec::new()).unwrap();
        assert_eq!(folder.result().tensor("up.weight").unwrap().dtype(), DType::F32);
        assert_eq!(folder.result().data("up.weight").unwrap(), bytes(&back), "{dtype}");
    }
}

#[test]
fn quantize_keeps_other_tensors_and_keys() {
    let folder = Folder::with("stay", &noise(512), [256, 2, 1]);
    let printed = folder.run(&["--type", "Q8_0", "--keep", "output"]).unwrap();
    let old = Reader::open(folder.file("in.gguf")).unwrap().into_memory().unwrap();
    let new = folder.result();
    for name in ["bias", "ids", "odd", "output.weight"] {
        assert_eq!(new.data(name).unwrap(), old.data(name).unwrap(), "{name}");
    }
    for part in [
        "it has one dimension",
        "--keep names it",
        "no whole blocks",
        "no numbers that",
        "converted=1 weighted=0 kept=4",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    let metadata: Vec<_> = new.key_values().map(|(key, value)| (key, value.clone())).collect();
    let expected = [
        ("general.name", "test".into()),
        ("general.file_type", 7_u32.into()),
        ("general.quantization_version", 2_u32.into()),
    ];
    assert_eq!(metadata, expected);
}

#[test]
fn quantize_is_the_same_on_any_number_of_threads() {
    // More than a piece for each thread.
    let folder = Folder::with("threads", &noise(256 * 3000), [256, 1500, 2]);
    let file = folder.file("imatrix.gguf");
    imatrix(&file, "up.weight", 256, &[3.0, 0.0]);
    let made = ["1", "2", "3"].map(|threads| {
        folder.run(&["--type", "q4_K", "--threads", threads, "--imatrix", file.to_str().unwrap()]).unwrap();
        fs::read(folder.file("out.gguf")).unwrap()
    });
    assert!(made[0] == made[1] && made[0] == made[2], "the bytes differ");
    folder.run(&["--type", "q4_K"]).unwrap();
    assert!(fs::read(folder.file("out.gguf")).unwrap() != made[0], "weights make a difference");
}

#[test]
fn imatrix_applies_per_matrix() {
    let numbers = noise(256 * 8);
    let folder = Folder::with("matrices", &numbers, [256, 4, 2]);
    let file = folder.file("imatrix.gguf");
    imatrix(&file, "up.weight", 256, &[2.0, 0.0]);
    folder.run(&["--type", "q4_K", "--imatrix", file.to_str().unwrap()]).unwrap();
    let weights: Vec<_> = (1..=256).map(|i| i as f32 / 2.0).collect();
    let (first, second) = numbers.split_at(256 * 4);
    let expected = [
        DType::Q4_K.quantize(first, 256, Some(&weights)).unwrap(),
        // What was never used matters equally.
        DType::Q4_K.quantize(second, 256, Some(&[1.0; 256])).unwrap(),
    ];
    assert!(folder.result().data("up.weight").unwrap() == expected.concat(), "the weights are others");
}

#[test]
fn quantize_error_names_the_value_that_cannot_be_converted() {
    for (bad, expected) in [(f32::NAN, "number 300 is NaN"), (f32::NEG_INFINITY, "number 300 is -inf"), (1e6, "")] {
        let mut matrix = noise(512);
        matrix[300] = bad;
        let folder = Folder::with("bad", &matrix, [256, 2, 1]);
        for dtype in ["q4_0", "f16"] {
            let e = folder.run(&["--type", dtype]).unwrap_err();
            assert!(e.starts_with("tensor `up.weight`: ") && e.contains(expected), "{e}");
            assert!(!folder.file("out.gguf").exists());
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no half of a file is left");
        }
    }
}

#[test]
fn imatrix_is_required_and_checked() {
    let folder = Folder::with("importance", &noise(512), [256, 2, 1]);
    let e = folder.run(&["--type", "iq1_s"]).unwrap_err();
    assert!(e.contains("`up.weight`") && e.contains("--imatrix FILE"), "{e}");
    let file = folder.file("imatrix.gguf");
    let options = ["--type", "iq1_s", "--imatrix", file.to_str().unwrap()];
    imatrix(&file, "up.weight", 128, &[1.0]);
    assert!(folder.run(&options).unwrap_err().contains("128 numbers for `up.weight`, which has 256 columns"));
    for (sum, count) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (-1.0, 1.0), (1.0, f32::NAN), (1.0, -1.0)] {
        write_imatrix(&file, "up.weight", 256, &[sum; 256], &[count]);
        let e = folder.run(&options).unwrap_err();
        assert!(e.contains("sums and counts of `up.weight` have to be finite and not less than 0"), "{e}");
    }
    imatrix(&file, "up.weight", 256, &[1.0]);
    let printed = folder.run(&[&options[..], &["--keep", "output"]].concat()).unwrap();
    assert!(printed.contains("converted=1 weighted=1 "), "{printed}");
    fs::write(&file, Writer::new().to_bytes().unwrap()).unwrap();
    assert!(folder.run(&options).unwrap_err().contains("no importance matrix"));
}

#[test]
fn mixtures_give_each_tensor_its_type() {
    let folder = Folder::new("mix");
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.set("llama.block_count", 16_u32).unwrap();
    writer.set("llama.attention.head_count", 8_u32).unwrap();
    writer.set("llama.attention.head_count_kv", 2_u32).unwrap();
    let matrix = bytes(&noise(512));
    for layer in 0..16 {
        for part in ["attn_v", "attn_q", "ffn_down"] {
            writer.tensor(&format!("blk.{layer}.{part}.weight"), DType::F32, [256, 2], &matrix).unwrap();
        }
    }
    writer.tensor("blk.0.ffn_gate_inp.weight", DType::F32, [256, 2], &matrix).unwrap();
    writer.tensor("token_embd.weight", DType::F32, [32, 16], &matrix).unwrap();
    writer.write(folder.file("in.gguf")).unwrap();

    let printed = folder.run(&["--mix", "Q4_K_M"]).unwrap();
    assert!(printed.contains("converted=49 weighted=0 kept=1"), "{printed}");
    assert!(printed.contains("stays f32: the mixture leaves it"), "{printed}");
    let result = folder.result();
    let dtype = |name: &str| result.tensor(name).unwrap().dtype();
    // The first two, the last two, and each third of the twelve between.
    let more = [0, 1, 4, 7, 10, 13, 14, 15];
    for layer in 0..16 {
        let expected = if more.contains(&layer) { DType::Q6_K } else { DType::Q4_K };
        assert_eq!(dtype(&format!("blk.{layer}.attn_v.weight")), expected, "{layer}");
        assert_eq!(dtype(&format!("blk.{layer}.ffn_down.weight")), expected, "{layer}");
        assert_eq!(dtype(&format!("blk.{layer}.attn_q.weight")), DType::Q4_K, "{layer}");
    }
    // It is the output, too, and its rows are short.
    assert_eq!(dtype("token_embd.weight"), DType::Q8_0);
    assert_eq!(result.metadata("general.file_type"), Some(&15_u32.into()));

    let e = folder.run(&["--mix", "q4_K_XL"]).unwrap_err();
    assert!(e.contains("there are q3_K_S, ") && e.contains("q4_K_M"), "{e}");
    assert!(folder.run(&["--mix", "q4_K_M", "--type", "q8_0"]).unwrap_err().contains("cannot be used with"));
    assert!(folder.run(&[]).unwrap_err().contains("--type <TYPE>"));
}

#[test]
fn quantize_refuses_unknown_types_and_keeps_files() {
    let folder = Folder::with("wrong", &noise(512), [256, 2, 1]);
    for wrong in ["q8_1", "i32", "q9"] {
        let e = folder.run(&["--type", wrong]).unwrap_err();
        assert!(e.contains("there are f32, f16") && e.contains("q4_K"), "{e}");
    }
    let input = folder.file("in.gguf");
    let path = input.to_str().unwrap();
    let cli = Cli::parse_from(["quantize", path, path, "--type", "q8_0"]);
    let e = crate::run(&cli, &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("in.gguf is there already: --force"), "{e}");
}
