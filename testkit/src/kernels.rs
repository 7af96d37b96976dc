//! Computes an operation with ggml's CPU kernels, for devices in Rust.

use ggml::driver::{Failure, OpParams, Operation, Recipe};
use ggml::prelude::*;

/// A thread's scheduler and arena.
#[derive(Default)]
pub(crate) struct Kernels {
    ctx: Context,
    sched: Option<Sched>,
}

impl Kernels {
    /// Computes the operation of `read(slot)`, the bytes of the source in each slot. The result goes to `write`, element by
    /// element.
    pub(crate) fn run(
        &mut self,
        recipe: &Recipe,
        read: impl Fn(usize) -> Vec<u8>,
        write: impl FnOnce(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), String> {
        self.compute(recipe, read, write).map_err(|e| format!("{recipe:?}: {e}"))
    }

    fn compute(
        &mut self,
        recipe: &Recipe,
        read: impl Fn(usize) -> Vec<u8>,
        write: impl FnOnce(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let sched = match &mut self.sched {
            Some(sched) => sched,
            none => {
                let mut cpu = Backend::cpu()?;
                cpu.set_threads(1)?;
                none.insert(Sched::builder().backend(cpu).build()?)
            }
        };
        self.ctx.reset();
        let built = recipe.build(&self.ctx)?;
        assert_same(recipe.params(), built.result);
        let graph = self.ctx.graph([built.result])?;
        let mut run = sched.alloc(&graph)?;
        for (slot, input) in built.inputs {
            run.set_bytes(input, &read(slot))?;
        }
        run.compute()?;
        write(&run.get_bytes(built.result)?)
    }
}

/// Checks that what was decoded and built again has the parameters that it had.
fn assert_same(was: OpParams, built: Tensor<'_>) {
    let (operation, now) = (was.operation().unwrap(), OpParams::from(built));
    match operation {
        // A cast to another shape ends in a reshape. The parameters of xIELU pass through logarithms, which are not exact.
        Operation::Cpy | Operation::Xielu { .. } => {}
        // What was in place no longer is, which is one of their parameters.
        Operation::Acc(_) | Operation::Set(_) | Operation::AddRelPos => {
            let now = now.operation().map(|now| format!("{now:?}"));
            assert_eq!(now, Ok(format!("{operation:?}")));
        }
        _ => assert_eq!(now, was, "{operation:?}"),
    }
}
