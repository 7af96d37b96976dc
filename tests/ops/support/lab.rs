//! Operands in any layout, and computations on the CPU.

use std::cell::RefCell;

use ggml::Result;
use ggml::prelude::*;
use testkit::array::Array;
use testkit::bench::set_all;
use testkit::encode::{decode, encode};
use testkit::layout::{Layout, inside};

/// A context whose inputs have values.
pub(crate) struct Lab<'c> {
    pub(crate) ctx: &'c Context,
    inputs: RefCell<Vec<(Tensor<'c>, Vec<u8>)>>,
    threads: usize,
}

impl<'c> Lab<'c> {
    pub(crate) fn new(ctx: &'c Context) -> Self {
        Self::with_threads(ctx, 2)
    }

    /// A lab that computes with this many threads.
    pub(crate) fn with_threads(ctx: &'c Context, threads: usize) -> Self {
        Self { ctx, inputs: RefCell::default(), threads }
    }

    /// An input with these values.
    fn input(&self, values: &Array, dtype: DType) -> (Tensor<'c>, Array) {
        let (bytes, rounded) = encode(dtype, &values.data);
        let name = format!("x{}", self.inputs.borrow().len());
        let t = self.ctx.input(&name, dtype, values.ne.map(|n| n as i64)).unwrap();
        self.inputs.borrow_mut().push((t, bytes));
        (t, Array { ne: values.ne, data: rounded })
    }

    /// An operand with these values in this layout, and the values after rounding to the type.
    pub(crate) fn operand(&self, values: &Array, dtype: DType, layout: Layout) -> (Tensor<'c>, Array) {
        let axes = layout.axes();
        if layout != Layout::Gaps {
            let (t, rounded) = self.input(&values.permuted(axes), dtype);
            let t = if layout == Layout::Plain { t } else { self.ctx.permute(t, axes).unwrap() };
            return (t, rounded.permuted(axes));
        }
        // With values in the gaps that would show in any result.
        let gap = dtype.block_size() as usize;
        let [n0, n1, n2, n3] = values.ne;
        let around = Array::of([n0 + gap, n1 + 1, n2 + 1, n3], |[i0, i1, i2, i3]| {
            let inside = i0 >= gap && i1 < n1 && i2 >= 1;
            if inside { values.at([i0 - gap, i1, i2 - 1, i3]) } else { STRAY }
        });
        let (whole, rounded) = self.input(&around, dtype);
        let t = inside(self.ctx, whole);
        (t, Array::of(values.ne, |[i0, i1, i2, i3]| rounded.at([i0 + gap, i1, i2 + 1, i3])))
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
        set_all(&self.inputs.borrow(), |t, bytes| run.set_bytes(t, bytes))?;
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
        backend.set_threads(self.threads)?;
        Sched::builder().backend(backend).build()
    }
}

/// The value in gaps: infinite in 16 bits, and large in all other types.
const STRAY: f64 = 1e9;

pub(crate) fn shape(t: Tensor<'_>) -> [usize; 4] {
    t.ne().map(|n| usize::try_from(n).unwrap())
}
