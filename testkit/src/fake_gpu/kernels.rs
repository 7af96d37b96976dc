//! Computes an operation with ggml's CPU kernels, from device memory to device memory.

use ggml::driver::{OpParams, Operation};
use ggml::prelude::*;

use super::memory::Bytes;

/// A tensor's type, dimensions, strides in bytes, and place in its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) dtype: DType,
    pub(super) ne: [i64; 4],
    pub(super) nb: [usize; 4],
    pub(super) offset: usize,
}

pub(super) struct Source {
    pub(super) buffer: Bytes,
    pub(super) layout: Layout,
}

pub(super) struct Work {
    pub(super) params: OpParams,
    pub(super) sources: Vec<Option<Source>>,
    pub(super) to: Source,
}

impl Layout {
    /// Calls `f` with the place of each element, or each row if its elements are contiguous, and its bytes.
    fn pieces(&self, mut f: impl FnMut(usize, usize)) {
        let [n0, n1, n2, n3] = self.ne.map(|n| n as usize);
        let row = self.dtype.row_size(self.ne[0]).unwrap();
        let unit = self.dtype.type_size();
        for i3 in 0..n3 {
            for i2 in 0..n2 {
                for i1 in 0..n1 {
                    let start = self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
                    if self.nb[0] == unit {
                        f(start, row);
                    } else {
                        (0..n0).for_each(|i0| f(start + i0 * self.nb[0], unit));
                    }
                }
            }
        }
    }
}

impl Source {
    fn read(&self) -> Vec<u8> {
        let bytes = self.buffer.lock().unwrap();
        let mut data = Vec::new();
        self.layout.pieces(|start, len| data.extend_from_slice(&bytes[start..][..len]));
        data
    }

    fn write(&self, mut data: &[u8]) {
        let mut bytes = self.buffer.lock().unwrap();
        self.layout.pieces(|start, len| {
            let (now, rest) = data.split_at(len);
            bytes[start..][..len].copy_from_slice(now);
            data = rest;
        });
        assert!(data.is_empty(), "the result has another size");
    }
}

/// A thread's scheduler and arena.
#[derive(Default)]
pub(super) struct Kernels {
    ctx: Context,
    sched: Option<Sched>,
}

impl Kernels {
    pub(super) fn run(&mut self, work: &Work) -> Result<(), String> {
        self.compute(work).map_err(|e| format!("{:?}: {e}", work.params))
    }

    fn compute(&mut self, work: &Work) -> Result<(), ggml::driver::Failure> {
        let operation = work.params.operation()?;
        let sched = match &mut self.sched {
            Some(sched) => sched,
            none => {
                let mut cpu = Backend::cpu()?;
                cpu.set_threads(1)?;
                none.insert(Sched::builder().backend(cpu).build()?)
            }
        };
        self.ctx.reset();
        let ctx = &self.ctx;
        let mut inputs = Vec::new();
        for source in &work.sources {
            let made = source.as_ref().map(|s| ctx.input("", s.layout.dtype, s.layout.ne)).transpose()?;
            inputs.push(made);
        }
        let Layout { dtype, ne, .. } = work.to.layout;
        let result = operation.build(ctx, &inputs, dtype, ne)?;
        assert_eq!((result.dtype(), result.ne()), (dtype, ne), "{operation:?} was built again with another result");
        assert_same(&operation, work.params, result);
        let graph = ctx.graph([result])?;
        let mut run = sched.alloc(&graph)?;
        for (input, source) in inputs.iter().zip(&work.sources) {
            let (Some(input), Some(source)) = (input, source) else { continue };
            match run.set_bytes(*input, &source.read()) {
                // Some operands only lend their shape, and a cast is its own source.
                Ok(()) | Err(Error::NotPart { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        run.compute()?;
        work.to.write(&run.get_bytes(result)?);
        Ok(())
    }
}

/// Checks that what was decoded and built again has the parameters that it had.
fn assert_same(operation: &Operation, was: OpParams, built: Tensor<'_>) {
    let now = OpParams::from(built);
    match operation {
        // A cast to another shape ends in a reshape; these logarithms are not exact.
        Operation::Cpy | Operation::Xielu { .. } => {}
        // What was in place no longer is, which is one of their parameters.
        Operation::Acc(_) | Operation::Set(_) | Operation::AddRelPos => {
            let now = now.operation().map(|now| format!("{now:?}"));
            assert_eq!(now, Ok(format!("{operation:?}")));
        }
        _ => assert_eq!(now, was, "{operation:?}"),
    }
}
