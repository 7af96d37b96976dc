//! The vectors of fifty sentences, compared with those that PyTorch computed: see reference/README.md.

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cli::{Cli, Weights};
use crate::model::{self, Model};
use crate::tokens::Tokens;
use crate::{bar, cosine, npy};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/embed/reference");

/// The least cosine between a vector and its reference. Four bits are too few for so small a model: what they give is shown.
const LEAST: [(Weights, f64); 4] =
    [(Weights::F32, 0.99999), (Weights::F16, 0.9999), (Weights::Q8_0, 0.998), (Weights::Q4_0, -1.0)];

/// The least cosine between vectors of a sentence that was computed with others and by itself: sums of the same numbers,
/// some in another order.
const LEAST_ALONE: f64 = 0.99999;

pub(crate) fn run(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let text = fs::read_to_string(Path::new(FOLDER).join("sentences.txt"))?;
    let sentences: Vec<_> = text.lines().collect();
    let expected = npy::read(&Path::new(FOLDER).join("vectors.npy"))?;
    ensure!(sentences.len() == expected.len(), "{} sentences have {} vectors", sentences.len(), expected.len());
    let devices = model::devices(&cli.device)?;
    let bar = bar(2 * LEAST.len() * sentences.len())?;
    let mut line = format!("embed: sentences={}", sentences.len());
    let mut faults = Vec::new();
    for (dtype, least) in LEAST {
        let path = dtype.path();
        let model = Model::open(&path, &devices, cli.threads, cli.flash);
        let mut model =
            model.with_context(|| format!("can't use {} (`cargo xtask model` makes it)", path.display()))?;
        let tokens = Tokens::new(&model)?.of(&sentences)?;
        let mut embed = |batch| model.embed(&tokens, batch, |n| bar.inc(n as u64));
        let vectors = embed(cli.batch)?;
        let name = dtype.name();
        let found = worst(&vectors, &expected)?;
        line.push_str(&format!(" cosine_min_{name}={:.6}", found.cosine));
        if found.cosine < least {
            faults.push(format!("{found} with weights of {name}, where {least} is required"));
        }
        let alone = worst(&vectors, &embed(NonZeroUsize::MIN)?)?;
        if alone.cosine < LEAST_ALONE {
            faults.push(format!("{alone} computed with others and by itself, with weights of {name}"));
        }
    }
    bar.finish_and_clear();
    writeln!(out, "{line}")?;
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}

/// The smallest cosine, and where it is.
struct Worst {
    cosine: f64,
    sentence: usize,
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sentence {} has a cosine of {:.6}", self.sentence + 1, self.cosine)
    }
}

fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> Result<Worst> {
    let all = found.iter().zip(expected).map(|(a, b)| cosine(a, b)).enumerate();
    let worst = all.map(|(sentence, cosine)| Worst { cosine, sentence });
    // A NaN is the worst of all.
    let key = |w: &Worst| if w.cosine.is_nan() { f64::NEG_INFINITY } else { w.cosine };
    worst.min_by(|a, b| key(a).total_cmp(&key(b))).context("there are no sentences")
}
