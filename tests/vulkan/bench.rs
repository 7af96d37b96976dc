//! Operands with values, and the comparison of what the device makes of them with what the CPU does.

use std::cell::RefCell;

use fastrand::Rng;
use ggml::prelude::*;
use ggml::{Compare, Comparison, GraphAllocator, Result};
use half::{bf16, f16};

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Plain,
    /// With gaps between rows and before the first.
    Gaps,
    /// Second and third dimension exchanged.
    Swapped,
    /// First and second dimension exchanged.
    Transposed,
}

pub(crate) const ROWS: [Layout; 3] = [Layout::Plain, Layout::Gaps, Layout::Swapped];
pub(crate) const ALL: [Layout; 4] = [Layout::Plain, Layout::Gaps, Layout::Swapped, Layout::Transposed];

pub(crate) struct Bench<'c> {
    pub(crate) ctx: &'c Context,
    inputs: RefCell<Vec<(Tensor<'c>, Vec<u8>)>>,
    rng: RefCell<Rng>,
}

impl<'c> Bench<'c> {
    pub(crate) fn new(ctx: &'c Context) -> Self {
        Self { ctx, inputs: RefCell::default(), rng: RefCell::new(Rng::with_seed(1)) }
    }

    /// Numbers between the two that look random.
    fn numbers(&self, n: usize, from: f32, to: f32) -> Vec<f32> {
        let mut rng = self.rng.borrow_mut();
        (0..n).map(|_| from + (to - from) * rng.f32()).collect()
    }

    fn put(&self, t: Tensor<'c>, bytes: Vec<u8>) -> Tensor<'c> {
        self.inputs.borrow_mut().push((t, bytes));
        t
    }

    /// An operand of numbers between the two.
    pub(crate) fn within<const N: usize>(&self, dtype: DType, ne: [i64; N], from: f32, to: f32) -> Tensor<'c> {
        let n = ne.iter().product::<i64>() as usize;
        let values = self.numbers(n, from, to);
        let bytes = match dtype {
            DType::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            DType::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            DType::I32 => values.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            _ => dtype
                .quantize(
                    &values,
                    ne[0] as usize,
                    dtype.requires_imatrix().then(|| vec![1.0; ne[0] as usize]).as_deref(),
                )
                .unwrap(),
        };
        self.put(self.ctx.input("", dtype, filled(ne)).unwrap(), bytes)
    }

    /// An operand of numbers from -2 to 2.
    pub(crate) fn of<const N: usize>(&self, dtype: DType, ne: [i64; N]) -> Tensor<'c> {
        self.within(dtype, ne, -2.0, 2.0)
    }

    pub(crate) fn f32<const N: usize>(&self, ne: [i64; N]) -> Tensor<'c> {
        self.of(DType::F32, ne)
    }

    /// [`Bench::within`] in a layout.
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

    /// An operand of these whole numbers.
    pub(crate) fn ints<const N: usize>(&self, ne: [i64; N], values: impl IntoIterator<Item = i32>) -> Tensor<'c> {
        let bytes = values.into_iter().flat_map(i32::to_le_bytes).collect();
        self.put(self.ctx.input("", DType::I32, filled(ne)).unwrap(), bytes)
    }

    /// Computes `outputs` on the device and on the CPU, one operation at a time.
    pub(crate) fn compare(&self, outputs: &[Tensor<'c>], tolerance: f64) -> Result<Comparison> {
        let graph = self.ctx.graph(outputs)?;
        let mut allocator = GraphAllocator::new(crate::vulkan().buffer_type());
        let mut memory = allocator.alloc(&graph)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        let mut how = Compare::default();
        how.tolerance = tolerance;
        memory.compare(&mut crate::backend(), &mut crate::cpu(), how)
    }

    /// Computes `y` on a backend, as a whole.
    pub(crate) fn run(&self, y: Tensor<'c>, backend: &mut Backend) -> Result<Vec<f32>> {
        let graph = self.ctx.graph([y])?;
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut memory = allocator.alloc(&graph)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        memory.compute(backend)?;
        memory.get(y)
    }

    /// Gives all inputs their values, but for those that the graph does not have.
    pub(crate) fn set(&self, mut set: impl FnMut(Tensor<'c>, &[u8]) -> Result<()>) -> Result<()> {
        for (t, bytes) in self.inputs.borrow().iter() {
            match set(*t, bytes) {
                Ok(()) | Err(Error::NotPart { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A shape with all of its dimensions.
fn filled<const N: usize>(shape: [i64; N]) -> [i64; 4] {
    let mut ne = [1; 4];
    ne[..N].copy_from_slice(&shape);
    ne
}

/// How far two results are apart, as a part of the size of the second.
pub(crate) fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = got.iter().zip(want).map(|(&g, &w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|&w| square(w)).sum();
    (apart / size.max(1e-12)).sqrt()
}
