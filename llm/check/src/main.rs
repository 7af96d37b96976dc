//! Language models by `ggml-llm` and by llama.cpp, over one ggml: the logits of made-up models of each family, bit by bit.
//!
//! `cargo xtask llm-check` builds and runs it. The first argument is a model that `generate` has trained, then come the
//! number of random models and their first seed; others are names of cases, or `random`; without any, all run.

mod cases;
mod draw;
mod listed;
mod mixes;
mod ours;
mod random;
mod remote;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use cases::{Case, Outcome};

use llama_reference::Result;

#[global_allocator]
static ALLOCATOR: testkit::counted::Counted = testkit::counted::Counted;

/// How far logits may be apart where operations are not the same, or add up in another order.
const TOLERANCE: f32 = 1e-4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        [random::ARGUMENT, seed, wanted] => compute(seed, wanted),
        [trained, wanted, seed, ..] => check(trained, wanted, seed, arguments.get(3..).unwrap_or_default()),
        _ => Err("`cargo xtask llm-check` runs this".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compute(seed: &str, wanted: &str) -> Result<()> {
    random::compute(seed.parse()?, wanted.parse()?)
}

/// What came of the cases that are listed one by one.
#[derive(Default)]
struct Total {
    families: BTreeSet<String>,
    same: usize,
    worst: f32,
    plans: usize,
    allocations: usize,
    failures: usize,
}

impl Total {
    fn add(&mut self, case: &Case, file: &Path) {
        match case.run(file) {
            Ok(Outcome { max_abs_diff, logits, plans_per_bucket, allocs_per_step }) => {
                let bits =
                    if max_abs_diff == 0.0 { "same bits".into() } else { format!("max_abs_diff={max_abs_diff:e}") };
                println!("{}: {logits} logits, {bits}, plans={plans_per_bucket} allocs={allocs_per_step}", case.name);
                self.families.insert(case.recipe.architecture.name().into());
                self.same += usize::from(max_abs_diff == 0.0);
                self.worst = self.worst.max(max_abs_diff);
                self.plans = self.plans.max(plans_per_bucket);
                self.allocations = self.allocations.max(allocs_per_step);
                let close = max_abs_diff <= if case.inexact { TOLERANCE } else { 0.0 };
                self.failures += usize::from(!close || plans_per_bucket > 1 || allocs_per_step > 0);
            }
            Err(error) => {
                println!("{}: {error}", case.name);
                self.failures += 1;
            }
        }
    }
}

fn check(trained: &str, wanted: &str, seed: &str, names: &[String]) -> Result<()> {
    llama_reference::start();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("model.gguf");
    let mut all = cases::all();
    all.push(Case::trained(trained.into()));
    let chosen: Vec<&Case> =
        all.iter().filter(|c| names.is_empty() || names.iter().any(|n| c.name.contains(n))).collect();
    let mut total = Total::default();
    for case in &chosen {
        total.add(case, &file);
    }
    let random = names.is_empty() || names.iter().any(|name| name == "random");
    let found = random::check(if random { wanted.parse()? } else { 0 }, seed.parse()?)?;
    random::report(&found);
    total.families.extend(found.families.iter().cloned());
    let (listed, unlisted) = (found.listed.values().sum::<usize>(), found.unlisted.len());
    println!(
        "llm: ggml={} families={} cases={} random={} same_bits={} listed={listed} unlisted={unlisted} redrawn={} \
         max_abs_diff={:e} plans_per_bucket={} allocs_per_step={}",
        ggml::version(),
        total.families.len(),
        chosen.len(),
        found.compared(),
        total.same + found.same,
        found.redrawn.values().sum::<usize>(),
        total.worst,
        total.plans,
        total.allocations
    );
    if total.failures + unlisted > 0 || chosen.is_empty() && !random {
        return Err(format!("{} of {} cases and {unlisted} random models failed", total.failures, chosen.len()).into());
    }
    remote::check(&file, &chosen)?;
    if names.is_empty() { mixes::check(folder.path()) } else { Ok(()) }
}
