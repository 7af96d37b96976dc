//! A thread that builds operations again with the safe builders, and computes them on ggml's CPU.
//!
//! It computes with one thread more than the CPU whose results are expected. Only the operations of [`BY_THREADS`] then have other
//! bits: on a busy machine the crate gives all others one thread (`depends_on_threads` in src/graph/work.rs).

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ggml::Threads;
use ggml::driver::{Failure, OpParams, Operation, Recipe};
use ggml::prelude::*;

/// Operations whose results depend on the number of threads.
const BY_THREADS: [&str; 2] = ["FLASH_ATTN_EXT", "CROSS_ENTROPY_LOSS"];

/// What the thread builds, and the bytes of the sources if it shall compute that, too.
struct Task {
    recipe: Recipe,
    sources: Option<Vec<Vec<u8>>>,
    to: Sender<Result<Vec<u8>, String>>,
}

/// The thread. It may call ggml, as a driver's functions can't.
pub(crate) struct Builder(Mutex<Sender<Task>>);

impl Builder {
    pub(crate) fn start(threads: usize) -> Self {
        let (tasks, queue) = channel::<Task>();
        thread::spawn(move || {
            let mut ctx = Context::new();
            let mut scheds = [threads, threads + 1].map(|n| cpu(n).expect("a scheduler with the CPU"));
            for Task { recipe, sources, to } in queue {
                ctx.reset();
                let result = run(&ctx, &mut scheds, &recipe, sources).map_err(|e| e.to_string());
                to.send(result).unwrap_or_default();
            }
        });
        Self(Mutex::new(tasks))
    }

    /// Builds and plans an operation. With `sources`, computes it, too, and returns its result.
    pub(crate) fn run(&self, recipe: Recipe, sources: Option<Vec<Vec<u8>>>) -> Result<Vec<u8>, String> {
        let (to, from) = channel();
        let gone = "the building thread is gone";
        let tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.send(Task { recipe, sources, to }).map_err(|_| gone)?;
        from.recv().map_err(|_| gone)?
    }
}

fn cpu(threads: usize) -> ggml::Result<Sched> {
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(Threads::new(threads).with_all(true))?;
    Sched::builder().backend(cpu).build()
}

fn run(
    ctx: &Context,
    [same, more]: &mut [Sched; 2],
    recipe: &Recipe,
    sources: Option<Vec<Vec<u8>>>,
) -> Result<Vec<u8>, Failure> {
    let built = recipe.build(ctx)?;
    is_same(recipe.params(), built.result)?;
    let sched = if BY_THREADS.contains(&&*built.result.op()) { same } else { more };
    let graph = ctx.graph([built.result])?;
    let mut run = sched.alloc(&graph)?;
    let Some(sources) = sources else { return Ok(Vec::new()) };
    for (slot, input) in built.inputs {
        run.set_bytes(input, &sources[slot])?;
    }
    run.compute()?;
    Ok(run.get_bytes(built.result)?)
}

/// Checks that what was decoded and built again has the parameters that it had.
fn is_same(was: OpParams, built: Tensor<'_>) -> Result<(), Failure> {
    let (operation, now) = (was.operation()?, OpParams::from(built));
    let same = match operation {
        // A cast to another shape ends in a reshape; these logarithms are not exact.
        Operation::Cpy | Operation::Xielu { .. } => true,
        // What was in place no longer is, which is one of their parameters.
        Operation::Acc(_) | Operation::Set(_) | Operation::AddRelPos => {
            now.operation().map(|now| format!("{now:?}")) == Ok(format!("{operation:?}"))
        }
        _ => now == was,
    };
    if same { Ok(()) } else { Err(Failure::new("it was built again with other parameters")) }
}
