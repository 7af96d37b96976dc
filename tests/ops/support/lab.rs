//! Operands in any layout, and computations on the CPU.

use ggml::prelude::*;
use ggml::{Result, Threads};
use testkit::array::Array;
use testkit::bench::Bench;
use testkit::encode::decode;
use testkit::layout::Layout;

/// A context whose inputs have values.
pub(crate) struct Lab<'c> {
    pub(crate) ctx: &'c Context,
    pub(crate) bench: Bench<'c>,
    threads: usize,
}

impl<'c> Lab<'c> {
    pub(crate) fn new(ctx: &'c Context) -> Self {
        Self::with_threads(ctx, 2)
    }

    /// A lab that computes with this many threads.
    pub(crate) fn with_threads(ctx: &'c Context, threads: usize) -> Self {
        Self { ctx, bench: Bench::new(ctx, 1.0), threads }
    }

    /// An operand with these values in this layout, and the values after rounding to the type.
    pub(crate) fn operand(&self, values: &Array, dtype: DType, layout: Layout) -> (Tensor<'c>, Array) {
        self.bench.operand(values, dtype, layout)
    }

    /// A plain operand of `f32`.
    pub(crate) fn plain(&self, values: &Array) -> (Tensor<'c>, Array) {
        self.operand(values, DType::F32, Layout::Plain)
    }

    /// Computes `outputs`.
    pub(crate) fn run_all(&self, outputs: &[Tensor<'c>]) -> Result<Vec<Array>> {
        let graph = self.ctx.graph(outputs)?;
        let mut sched = self.cpu()?;
        let mut run = sched.alloc(&graph)?;
        self.bench.set(|t, bytes| run.set_bytes(t, bytes))?;
        run.compute()?;
        outputs.iter().map(|&y| Ok(Array { ne: shape(y), data: decode(y.dtype(), &run.get_bytes(y)?) })).collect()
    }

    /// Computes `y`.
    pub(crate) fn run(&self, y: Tensor<'c>) -> Result<Array> {
        Ok(self.run_all(&[y])?.remove(0))
    }

    /// The scheduler's verdict on a graph of `y`, without a computation.
    pub(crate) fn accepted(&self, y: Tensor<'c>) -> Result<()> {
        let graph = self.ctx.graph([y])?;
        self.cpu()?.alloc(&graph).map(drop)
    }

    fn cpu(&self) -> Result<Sched> {
        let mut backend = Backend::cpu()?;
        backend.set_threads(Threads::new(self.threads).with_all(true))?;
        Sched::builder().backend(backend).build()
    }
}

pub(crate) fn shape(t: Tensor<'_>) -> [usize; 4] {
    t.ne().map(|n| usize::try_from(n).unwrap())
}
