//! The vectors of fifty sentences, compared with those that PyTorch computed: see reference/README.md.

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::cli::{Cli, Weights};
use crate::model::{self, Model};
use crate::tokens::Tokens;
use crate::{bar, cosine, npy};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/embed/reference");

/// What is required of weights of a type.
struct Bounds {
    dtype: Weights,
    /// The least cosine between a vector and its reference.
    reference: f64,
    /// The least cosine between vectors of a sentence that was computed with others and by itself.
    alone: f64,
}

/// Computed by itself, the same numbers are added up in another order; products with blocks of integers round what comes in
/// to integers as well, where a tiny difference may become a step. Four bits are too few for so small a model: what they
/// give is shown.
const BOUNDS: [Bounds; 4] = [
    Bounds { dtype: Weights::F32, reference: 0.99999, alone: 0.999_999 },
    Bounds { dtype: Weights::F16, reference: 0.9999, alone: 0.999_99 },
    Bounds { dtype: Weights::Q8_0, reference: 0.998, alone: 0.999 },
    Bounds { dtype: Weights::Q4_0, reference: -1.0, alone: 0.999 },
];

pub(crate) fn run(cli: &Cli, out: &mut impl io::Write) -> Result<()> {
    let text = fs::read_to_string(Path::new(FOLDER).join("sentences.txt"))?;
    let sentences: Vec<_> = text.lines().collect();
    let expected = npy::read(&Path::new(FOLDER).join("vectors.npy"))?;
    ensure!(sentences.len() == expected.len(), "{} sentences have {} vectors", sentences.len(), expected.len());
    let devices = model::devices(&cli.device)?;
    let bar = bar(2 * BOUNDS.len() * sentences.len())?;
    let mut line = format!("embed: sentences={}", sentences.len());
    let mut faults = Vec::new();
    for Bounds { dtype, reference, alone } in BOUNDS {
        let path = dtype.path();
        let model = Model::open(&path, &devices, cli.threads, cli.kernels);
        let mut model =
            model.with_context(|| format!("can't use {} (`cargo xtask model` makes it)", path.display()))?;
        let tokens = Tokens::new(&model)?.of(&sentences)?;
        let mut embed = |batch| model.embed(&tokens, batch, |n| bar.inc(n as u64));
        let vectors = embed(cli.batch)?;
        let name = dtype.name();
        let found = worst(&vectors, &expected)?;
        write!(line, " cosine_min_{name}={:.6}", found.cosine)?;
        let single = worst(&vectors, &embed(NonZeroUsize::MIN)?)?;
        for (found, least, what) in
            [(found, reference, "to its reference"), (single, alone, "to itself computed alone")]
        {
            if found.cosine < least {
                faults.push(format!("{found} {what} with weights of {name}, where {least} is required"));
            }
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

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sentence {} has a cosine of {:.6}", self.sentence + 1, self.cosine)
    }
}

fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> Result<Worst> {
    let all = found.iter().zip(expected).map(|(a, b)| cosine(a, b)).enumerate();
    // A NaN is the worst of all.
    let worst = all.map(|(sentence, x)| Worst { cosine: if x.is_nan() { f64::NEG_INFINITY } else { x }, sentence });
    worst.min_by(|a, b| a.cosine.total_cmp(&b.cosine)).context("there are no sentences")
}
