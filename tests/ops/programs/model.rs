//! What a tensor holds, by its own account of memory: a view is an offset and strides over its root.

use std::rc::Rc;

use ggml::prelude::*;

use crate::support::Array;
use crate::support::encode::encode;

/// Values above this are not computed further: 16-bit floats end soon.
const LARGEST: f64 = 2000.0;

/// A tensor as the model knows it.
#[derive(Debug, Clone)]
pub(super) struct Model {
    root: Rc<Vec<f64>>,
    pub(super) dtype: DType,
    pub(super) ne: [usize; 4],
    pub(super) nb: [usize; 4],
    offset: usize,
    /// How far a computed value may be from the model's.
    pub(super) error: f64,
}

/// The strides of a new tensor.
pub(super) fn packed(dtype: DType, ne: [usize; 4]) -> [usize; 4] {
    let row = ne[0] / dtype.block_size() as usize * dtype.type_size();
    [dtype.type_size(), row, row * ne[1], row * ne[1] * ne[2]]
}

impl Model {
    /// A new tensor with these values, which the type rounds; `None` where they are too large to go on with.
    pub(super) fn new(values: &Array, dtype: DType, error: f64) -> Option<Self> {
        let (_, rounded) = encode(dtype, &values.data);
        let largest = values.data.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let step = match dtype {
            DType::F32 => 1e-6,
            DType::F16 => 1e-3,
            DType::BF16 | DType::Q8_0 => 8e-3,
            _ => 0.0,
        };
        (largest + error < LARGEST).then(|| Self {
            root: Rc::new(rounded),
            dtype,
            ne: values.ne,
            nb: packed(dtype, values.ne),
            offset: 0,
            error: error + step * largest,
        })
    }

    /// The same memory, looked at in another way.
    pub(super) fn view(&self, ne: [usize; 4], nb: [usize; 4], offset: usize) -> Self {
        Self { ne, nb, offset: self.offset + offset, ..self.clone() }
    }

    /// This tensor after its elements, in order, were set to those of `values` (a copy's result).
    pub(super) fn written(&self, values: &Model) -> Self {
        let mut root = (*self.root).clone();
        let mut from = values.array().data.into_iter();
        Array::of(self.ne, |i| {
            root[self.element(i)] = from.next().unwrap();
            0.0
        });
        let (_, rounded) = encode(self.dtype, &root);
        Self { root: Rc::new(rounded), error: values.error + 8e-3 * values.largest(), ..self.clone() }
    }

    /// The place of an element in the root.
    fn element(&self, i: [usize; 4]) -> usize {
        let block = self.dtype.block_size() as usize;
        let bytes = self.offset + i[0] / block * self.nb[0] + i[1] * self.nb[1] + i[2] * self.nb[2] + i[3] * self.nb[3];
        bytes / self.dtype.type_size() * block + i[0] % block
    }

    pub(super) fn array(&self) -> Array {
        Array::of(self.ne, |i| self.root[self.element(i)])
    }

    pub(super) fn largest(&self) -> f64 {
        self.array().data.iter().fold(0.0, |m, x| m.max(x.abs()))
    }

    pub(super) fn elements(&self) -> usize {
        self.ne.iter().product()
    }
}
