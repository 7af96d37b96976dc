//! Inputs with values, for tests that compare two devices.

use std::cell::RefCell;

use fastrand::Rng;
use ggml::prelude::*;
use ggml::run::{Compare, Comparison};
use ggml::{GraphAllocator, Result};

use crate::array::Array;
use crate::encode::encode;
use crate::layout::{Layout, inside};

/// The value in gaps: infinite in 16 bits, and large in all other types.
const STRAY: f64 = 1e9;

/// A context, and the values of its inputs.
pub struct Bench<'c> {
    /// The context.
    pub ctx: &'c Context,
    inputs: RefCell<Vec<(Tensor<'c>, Vec<u8>)>>,
    rng: RefCell<Rng>,
    reach: f32,
}

/// Sets inputs, except for those that are not part of the graph.
///
/// # Errors
/// Those of `set`, except [`Error::NotPart`].
pub fn set_all<'c>(
    inputs: &[(Tensor<'c>, Vec<u8>)],
    mut set: impl FnMut(Tensor<'c>, &[u8]) -> Result<()>,
) -> Result<()> {
    for (t, bytes) in inputs {
        match set(*t, bytes) {
            Ok(()) | Err(Error::NotPart { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'c> Bench<'c> {
    /// No inputs yet; `reach` is the maximum absolute value of those of [`Bench::of`].
    pub fn new(ctx: &'c Context, reach: f32) -> Self {
        Self { ctx, inputs: RefCell::default(), rng: RefCell::new(Rng::with_seed(1)), reach }
    }

    fn put<const N: usize>(&self, dtype: DType, shape: [i64; N], bytes: Vec<u8>) -> Tensor<'c> {
        let mut ne = [1; 4];
        ne[..N].copy_from_slice(&shape);
        let t = self.ctx.input("", dtype, ne).unwrap();
        self.inputs.borrow_mut().push((t, bytes));
        t
    }

    /// An input of uniform values between the two limits.
    pub fn within<const N: usize>(&self, dtype: DType, ne: [i64; N], from: f32, to: f32) -> Tensor<'c> {
        let mut rng = self.rng.borrow_mut();
        let values: Vec<_> = (0..ne.iter().product()).map(|_: i64| from + (to - from) * rng.f32()).collect();
        if dtype == DType::I32 {
            return self.ints(ne, values.into_iter().map(|x| x as i32));
        }
        self.put(dtype, ne, dtype.quantize(&values, ne[0].try_into().unwrap(), None).unwrap())
    }

    /// [`Bench::within`] with a layout.
    pub fn laid(&self, layout: Layout, dtype: DType, ne: [i64; 4], from: f32, to: f32) -> Tensor<'c> {
        if layout == Layout::Gaps {
            let [n0, n1, n2, n3] = ne;
            let whole = self.within(dtype, [n0 + dtype.block_size(), n1 + 1, n2 + 1, n3], from, to);
            return inside(self.ctx, whole);
        }
        let axes = layout.axes();
        let t = self.within(dtype, axes.map(|i| ne[i]), from, to);
        if layout == Layout::Plain { t } else { self.ctx.permute(t, axes).unwrap() }
    }

    /// An input of these values.
    fn input(&self, values: &Array, dtype: DType) -> (Tensor<'c>, Array) {
        // Blocks whose bytes the tests don't write are ggml's, and no reference asks for their values.
        let written = dtype.block_size() == 1 || matches!(dtype, DType::Q8_0 | DType::Q4_0);
        let (bytes, rounded) = if written {
            encode(dtype, &values.data)
        } else {
            let floats: Vec<f32> = values.data.iter().map(|&x| x as f32).collect();
            (dtype.quantize(&floats, values.ne[0], None).unwrap(), values.data.clone())
        };
        (self.put(dtype, values.ne.map(|n| n as i64), bytes), Array { ne: values.ne, data: rounded })
    }

    /// An operand with these values in this layout, and the values after rounding to the type.
    pub fn operand(&self, values: &Array, dtype: DType, layout: Layout) -> (Tensor<'c>, Array) {
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

    /// An input of values as large as the bench reaches.
    pub fn of<const N: usize>(&self, dtype: DType, ne: [i64; N]) -> Tensor<'c> {
        self.within(dtype, ne, -self.reach, self.reach)
    }

    /// [`Bench::of`] in `f32`.
    pub fn f32<const N: usize>(&self, ne: [i64; N]) -> Tensor<'c> {
        self.of(DType::F32, ne)
    }

    /// An input of shape `ne`, filled with as many of these integers as it has elements.
    pub fn ints<const N: usize>(&self, ne: [i64; N], values: impl IntoIterator<Item = i32>) -> Tensor<'c> {
        let n = ne.iter().product::<i64>().try_into().unwrap();
        self.put(DType::I32, ne, values.into_iter().take(n).flat_map(i32::to_ne_bytes).collect())
    }

    /// An input of values in 0.1 to 2.1.
    pub fn positive(&self, ne: [i64; 4]) -> Tensor<'c> {
        self.within(DType::F32, ne, 0.1, 2.1)
    }

    /// Computes `outputs` on two backends, one operation at a time, in memory of the first.
    ///
    /// # Errors
    /// Those of the graph, of its memory and of the computation.
    pub fn compare(
        &self,
        outputs: &[Tensor<'c>],
        tolerance: f64,
        first: &mut Backend,
        second: &mut Backend,
    ) -> Result<Comparison> {
        let graph = self.ctx.graph(outputs)?;
        let mut allocator = GraphAllocator::new(first.device().buffer_type());
        let mut memory = allocator.alloc(&graph, first)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        memory.compare(second, Compare::new().with_tolerance(tolerance))
    }

    /// Computes `y` on a backend, as one graph.
    ///
    /// # Errors
    /// Those of the graph, of its memory and of the computation.
    pub fn run(&self, y: Tensor<'c>, backend: &mut Backend) -> Result<Vec<f32>> {
        let graph = self.ctx.graph([y])?;
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut memory = allocator.alloc(&graph, backend)?;
        self.set(|t, bytes| memory.set_bytes(t, bytes))?;
        memory.compute()?;
        memory.get(y)
    }

    /// Sets all inputs, as [`set_all`].
    ///
    /// # Errors
    /// Those of `set`, except [`Error::NotPart`].
    pub fn set(&self, set: impl FnMut(Tensor<'c>, &[u8]) -> Result<()>) -> Result<()> {
        set_all(&self.inputs.borrow(), set)
    }
}
