//! Language models by `ggml-llm` and by llama.cpp, over one ggml: the logits of made-up models of each family, bit by bit.
//!
//! `cargo xtask llm-check` builds and runs it. The first argument is a model that `generate` has trained; others are names
//! of cases; without any, all run.

mod cases;
mod mixes;
mod ours;
mod remote;

use std::process::ExitCode;

use cases::{Case, Outcome};

use llama_reference::Result;

#[global_allocator]
static ALLOCATOR: testkit::counted::Counted = testkit::counted::Counted;

/// How far logits may be apart where operations are not the same, or add up in another order.
const TOLERANCE: f32 = 1e-4;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(trained) = arguments.next() else {
        eprintln!("llm: `cargo xtask llm-check` runs this");
        return ExitCode::FAILURE;
    };
    match check(trained, &arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(trained: String, names: &[String]) -> Result<()> {
    llama_reference::start();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("model.gguf");
    let mut all = cases::all();
    all.push(Case::trained(trained.into()));
    let chosen: Vec<&Case> =
        all.iter().filter(|c| names.is_empty() || names.iter().any(|n| c.name.contains(n))).collect();
    let (mut families, mut same, mut worst) = (std::collections::BTreeSet::new(), 0, 0.0_f32);
    let (mut plans, mut allocations, mut failures) = (0, 0, 0);
    for case in &chosen {
        match case.run(&file) {
            Ok(Outcome { max_abs_diff, logits, plans_per_bucket, allocs_per_step }) => {
                let bits =
                    if max_abs_diff == 0.0 { "same bits".into() } else { format!("max_abs_diff={max_abs_diff:e}") };
                println!("{}: {logits} logits, {bits}, plans={plans_per_bucket} allocs={allocs_per_step}", case.name);
                families.insert(case.recipe.architecture.name());
                same += usize::from(max_abs_diff == 0.0);
                worst = worst.max(max_abs_diff);
                plans = plans.max(plans_per_bucket);
                allocations = allocations.max(allocs_per_step);
                let close = max_abs_diff <= if case.inexact { TOLERANCE } else { 0.0 };
                failures += usize::from(!close || plans_per_bucket > 1 || allocs_per_step > 0);
            }
            Err(error) => {
                println!("{}: {error}", case.name);
                failures += 1;
            }
        }
    }
    println!(
        "llm: families={} cases={} same_bits={same} max_abs_diff={worst:e} plans_per_bucket={plans} allocs_per_step={allocations}",
        families.len(),
        chosen.len()
    );
    if failures == 0 && !chosen.is_empty() {
        remote::check(&file, &chosen)?;
        if names.is_empty() { mixes::check(folder.path()) } else { Ok(()) }
    } else {
        Err(format!("{failures} of {} cases failed", chosen.len()).into())
    }
}
