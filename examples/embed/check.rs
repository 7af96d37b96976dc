//! Compares the vectors of fifty sentences with those that PyTorch computed: see reference/README.md. For some
//! sentences also with every distribution of the layers over this machine's devices.

use std::fmt::{self, Write as _};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use embed::model::{self, Model};
use ggml::Device;

use crate::cli::{Cli, Weights};
use crate::shared::{bar, cosine};
use crate::tokens::Tokens;
use crate::{npy, splits};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/reference");

/// The sentences for all distributions: long enough that devices don't leave the products to the CPU.
const SPLIT: Range<usize> = 34..40;

/// The minimum cosine if a GPU takes part.
const WITH_GPU: f64 = 0.995;

/// The required accuracy for a type of weights.
struct Bounds {
    dtype: Weights,
    /// The minimum cosine between a vector and its reference.
    reference: f64,
    /// The minimum cosine between vectors of the same sentence, computed in a batch and alone, or by other devices.
    itself: f64,
}

/// A sentence computed alone sums in another order. Products with integer blocks also round the activations to
/// integers, which turns a tiny difference into a step. Four bits are too few for such a small model: its results are
/// only shown.
const BOUNDS: [Bounds; 5] = [
    Bounds { dtype: Weights::F32, reference: 0.99999, itself: 0.999_999 },
    Bounds { dtype: Weights::F16, reference: 0.9999, itself: 0.999_99 },
    Bounds { dtype: Weights::Q8_0, reference: 0.998, itself: 0.999 },
    Bounds { dtype: Weights::Q4_0, reference: -1.0, itself: 0.999 },
    Bounds { dtype: Weights::Q4_0Imatrix, reference: -1.0, itself: 0.999 },
];

pub(crate) fn run(cli: &Cli, out: &mut impl io::Write) -> Result<()> {
    let text = fs::read_to_string(Path::new(FOLDER).join("sentences.txt"))?;
    let sentences: Vec<_> = text.lines().collect();
    let expected = npy::read(&Path::new(FOLDER).join("vectors.npy"))?;
    ensure!(sentences.len() == expected.len(), "{} sentences have {} vectors", sentences.len(), expected.len());
    let devices = model::devices(&cli.device)?;
    let all = splits::devices(cli.threads)?;
    let bar = bar(2 * BOUNDS.len() * sentences.len())?;
    let mut line = format!("embed: sentences={}", sentences.len());
    let (mut faults, mut splits, mut difference) = (Vec::new(), 0, 0.0_f32);
    for Bounds { dtype, reference, itself } in BOUNDS {
        let path = dtype.path();
        let open = |devices: &[Device]| {
            let model = Model::open(&path, devices, cli.threads, cli.kernels);
            model.with_context(|| format!("can't use {} (`cargo xtask model` makes it)", path.display()))
        };
        let name = dtype.name().replace('-', "_");
        let mut require = |found: Worst, least, what: &str| {
            if found.cosine < least {
                faults.push(format!("{found} {what} with weights of {name}, where {least} is required"));
            }
        };
        let mut model = open(&devices)?;
        let tokens = Tokens::new(&model)?.of(&sentences)?;
        let mut embed = |batch| model.embed(&tokens, batch, |n| bar.inc(n as u64));
        let vectors = embed(cli.batch)?;
        let found = worst(&vectors, &expected)?;
        write!(line, " cosine_min_{name}={:.6}", found.cosine)?;
        require(found, reference, "to its reference");
        require(worst(&vectors, &embed(NonZeroUsize::MIN)?)?, itself, "to itself computed alone");

        let (few, expected) = (tokens.get(SPLIT).unwrap_or(&[]), expected.get(SPLIT).unwrap_or(&[]));
        let layers = model.config().layers;
        let ways = if dtype == Weights::F32 { splits::all(&all, layers) } else { splits::few(&all, layers) };
        bar.inc_length((ways.len() * few.len()) as u64);
        splits += ways.len();
        let mut on_cpu = None;
        for way in ways {
            let vectors = open(&way)?.embed(few, cli.batch, |n| bar.inc(n as u64))?;
            let on_cpu = on_cpu.get_or_insert_with(|| vectors.clone());
            let most = if splits::with_gpu(&way) { WITH_GPU } else { 1.0 };
            let names = way.iter().map(|device| device.name()).collect::<Vec<_>>().join(",");
            for (other, least, what) in [(expected, reference, "its reference"), (on_cpu, itself, "itself on the CPU")]
            {
                let found = worst(&vectors, other)?;
                let found = Worst { sentence: found.sentence + SPLIT.start, ..found };
                require(found, least.min(most), &format!("to {what} on {names}"));
            }
            let differences = vectors.iter().flatten().zip(on_cpu.iter().flatten()).map(|(a, b)| (a - b).abs());
            difference = differences.fold(difference, f32::max);
        }
    }
    bar.finish_and_clear();
    writeln!(out, "{line} splits={splits} max_abs_diff={difference:.1e}")?;
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
