//! Inputs with values, for the tests that compare two devices: these, and those of Vulkan.

use std::cell::RefCell;

use fastrand::Rng;
use ggml::Result;
use ggml::prelude::*;

use crate::REACH;

/// A context, and the values of its inputs.
pub(crate) struct Bench<'c> {
    pub(crate) ctx: &'c Context,
    inputs: RefCell<Vec<(Tensor<'c>, Vec<u8>)>>,
    rng: RefCell<Rng>,
}

impl<'c> Bench<'c> {
    pub(crate) fn new(ctx: &'c Context) -> Self {
        Self { ctx, inputs: RefCell::default(), rng: RefCell::new(Rng::with_seed(1)) }
    }

    fn put<const N: usize>(&self, dtype: DType, shape: [i64; N], bytes: Vec<u8>) -> Tensor<'c> {
        let mut ne = [1; 4];
        ne[..N].copy_from_slice(&shape);
        let t = self.ctx.input("", dtype, ne).unwrap();
        self.inputs.borrow_mut().push((t, bytes));
        t
    }

    /// An input of uniform values between the two limits.
    pub(crate) fn within<const N: usize>(&self, dtype: DType, ne: [i64; N], from: f32, to: f32) -> Tensor<'c> {
        let mut rng = self.rng.borrow_mut();
        let values: Vec<_> = (0..ne.iter().product()).map(|_: i64| from + (to - from) * rng.f32()).collect();
        if dtype == DType::I32 {
            return self.ints(ne, values.into_iter().map(|x| x as i32));
        }
        self.put(dtype, ne, dtype.quantize(&values, ne[0].try_into().unwrap(), None).unwrap())
    }

    /// An input of values between -[`REACH`] and [`REACH`].
    pub(crate) fn of<const N: usize>(&self, dtype: DType, ne: [i64; N]) -> Tensor<'c> {
        self.within(dtype, ne, -REACH, REACH)
    }

    pub(crate) fn f32<const N: usize>(&self, ne: [i64; N]) -> Tensor<'c> {
        self.of(DType::F32, ne)
    }

    /// An input of the first of these integers.
    pub(crate) fn ints<const N: usize>(&self, ne: [i64; N], values: impl IntoIterator<Item = i32>) -> Tensor<'c> {
        let n = ne.iter().product::<i64>().try_into().unwrap();
        self.put(DType::I32, ne, values.into_iter().take(n).flat_map(i32::to_ne_bytes).collect())
    }

    /// Sets all inputs, except for those that are not part of the graph.
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
