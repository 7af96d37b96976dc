//! Operands in several layouts, and the comparison of the device's results with the CPU's.

use ggml::prelude::*;
use ggml::{Compare, Comparison, GraphAllocator, Result};

use crate::bench::Bench;

/// The layout of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Plain,
    /// With gaps between rows and before the first one.
    Gaps,
    /// Second and third dimension swapped.
    Swapped,
    /// First and second dimension swapped.
    Transposed,
}

pub(crate) const ROWS: [Layout; 3] = [Layout::Plain, Layout::Gaps, Layout::Swapped];
pub(crate) const ALL: [Layout; 4] = [Layout::Plain, Layout::Gaps, Layout::Swapped, Layout::Transposed];

impl<'c> Bench<'c> {
    /// [`Bench::within`] with a layout.
    pub(crate) fn laid(&self, layout: Layout, dtype: DType, ne: [i64; 4], from: f32, to: f32) -> Tensor<'c> {
        let [n0, n1, n2, n3] = ne;
        match layout {
            Layout::Plain => self.within(dtype, ne, from, to),
            Layout::Swapped => self.ctx.permute(self.within(dtype, [n0, n2, n1, n3], from, to), [0, 2, 1, 3]).unwrap(),
            Layout::Transposed => self.ctx.transpose(self.within(dtype, [n1, n0, n2, n3], from, to)).unwrap(),
            Layout::Gaps => {
                let whole = self.within(dtype, [n0 + dtype.block_size(), n1 + 1, n2 + 1, n3], from, to);
                let [nb0, nb1, nb2, nb3] = whole.nb();
                self.ctx.view(whole, ne, [nb1, nb2, nb3], nb0 + nb2).unwrap()
            }
        }
    }

    /// Computes `outputs` on the device and on the CPU, one operation at a time.
    pub(crate) fn compare(&self, outputs: &[Tensor<'c>], tolerance: f64) -> Result<Comparison> {
        let graph = self.ctx.graph(outputs)?;
        let mut allocator = GraphAllocator::new(crate::vulkan().buffer_type());
        let mut memory = allocator.alloc(&graph)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        let how = Compare::new().with_tolerance(tolerance);
        memory.compare(&mut crate::backend(), &mut crate::cpu(), how)
    }

    /// Computes `y` on a backend, as one graph.
    pub(crate) fn run(&self, y: Tensor<'c>, backend: &mut Backend) -> Result<Vec<f32>> {
        let graph = self.ctx.graph([y])?;
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut memory = allocator.alloc(&graph)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        memory.compute(backend)?;
        memory.get(y)
    }
}

/// The difference of two results, relative to the magnitude of the second.
pub(crate) fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = got.iter().zip(want).map(|(&g, &w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|&w| square(w)).sum();
    (apart / size.max(1e-12)).sqrt()
}
