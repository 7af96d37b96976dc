//! What a tensor should hold, by an account of memory of its own: a view is an offset and strides over its root.

use std::rc::Rc;

use ggml::prelude::*;
use testkit::array::Array;
use testkit::encode::{encode, is_f8};

/// Values above this are not followed further: 16-bit floats end soon.
const LARGEST: f64 = 2000.0;

/// A tensor's value as the model knows it.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    root: Rc<Vec<f64>>,
    pub(crate) dtype: DType,
    pub(crate) ne: [usize; 4],
    pub(crate) nb: [usize; 4],
    offset: usize,
    /// How far a computed value may be from the model's.
    pub(crate) error: f64,
}

/// The strides of a new tensor.
pub(crate) fn packed(dtype: DType, ne: [usize; 4]) -> [usize; 4] {
    let row = ne[0] / dtype.block_size() as usize * dtype.type_size();
    [dtype.type_size(), row, row * ne[1], row * ne[1] * ne[2]]
}

/// Whether numbers can be turned into bytes of this type and back.
pub(crate) fn is_followed(dtype: DType) -> bool {
    (dtype.block_size() == 1 && !is_f8(dtype)) || matches!(dtype, DType::Q8_0 | DType::Q4_0)
}

/// How far the type's nearest number may be from one no larger than `most`.
fn rounding(dtype: DType, most: f64) -> f64 {
    let (part, least) = match dtype {
        // Numbers nearer to 0 than the second become 0.
        DType::F32 => (1e-6, 1e-37),
        DType::F16 => (1e-3, 1e-7),
        DType::BF16 => (8e-3, 1e-37),
        DType::Q8_0 => (8e-3, 1e-5),
        DType::Q4_0 => (0.16, 1e-5),
        _ => (0.0, 0.0),
    };
    part * most + least
}

impl Model {
    /// A new tensor with values that the type can hold exactly.
    pub(crate) fn exact(values: Array, dtype: DType) -> Option<Self> {
        (is_followed(dtype) && largest(&values.data) < LARGEST).then(|| Self {
            nb: packed(dtype, values.ne),
            ne: values.ne,
            root: Rc::new(values.data),
            dtype,
            offset: 0,
            error: 0.0,
        })
    }

    /// A new tensor with these values, known to within `error`, which the type rounds; `None` where they are too large to
    /// go on with.
    pub(crate) fn new(values: &Array, dtype: DType, error: f64) -> Option<Self> {
        let largest = largest(&values.data);
        // A comparison with an undefined number is false.
        (is_followed(dtype) && largest + error < LARGEST).then(|| {
            let rounded = if dtype == DType::F32 { values.data.clone() } else { encode(dtype, &values.data).1 };
            Self {
                root: Rc::new(rounded),
                dtype,
                ne: values.ne,
                nb: packed(dtype, values.ne),
                offset: 0,
                error: error + rounding(dtype, largest + error),
            }
        })
    }

    /// The same memory, looked at in another way.
    pub(crate) fn view(&self, ne: [usize; 4], nb: [usize; 4], offset: usize) -> Self {
        Self { ne, nb, offset: self.offset + offset, ..self.clone() }
    }

    /// A copy in order without gaps.
    pub(crate) fn contiguous(&self) -> Self {
        let nb = packed(self.dtype, self.ne);
        Self { root: Rc::new(self.array().data), nb, offset: 0, ..self.clone() }
    }

    /// This tensor after its elements, in order, were set to those of `values`, known to within `error`.
    pub(crate) fn written(&self, values: &[f64], error: f64) -> Option<Self> {
        let mut root = (*self.root).clone();
        let mut from = values.iter();
        self.each(|at| {
            if let Some(&value) = from.next() {
                root[at] = value;
            }
        });
        let largest = largest(values);
        (largest + error < LARGEST).then(|| {
            let (_, rounded) = encode(self.dtype, &root);
            let error = self.error.max(error + rounding(self.dtype, largest + error));
            Self { root: Rc::new(rounded), error, ..self.clone() }
        })
    }

    /// This tensor after these values were written to, or added to, a part of its memory.
    pub(crate) fn patched(&self, part: &Self, values: &Self, add: bool) -> Option<Self> {
        let mut root = (*self.root).clone();
        let values = values.array().data.into_iter().zip(std::iter::repeat(values.error));
        let mut from = values;
        let mut error = 0.0_f64;
        let mut most = 0.0_f64;
        part.each(|at| {
            if let Some((value, e)) = from.next() {
                root[at] = if add { root[at] + value } else { value };
                (error, most) = (e, if root[at].is_nan() { f64::INFINITY } else { most.max(root[at].abs()) });
            }
        });
        let error = if add { self.error + error + 1e-6 * (most + self.largest()) } else { self.error.max(error) };
        (most + error < LARGEST).then(|| Self { root: Rc::new(root), error, ..self.clone() })
    }

    /// The places of all elements in the root, in order.
    fn each(&self, mut f: impl FnMut(usize)) {
        let (block, size) = (self.dtype.block_size() as usize, self.dtype.type_size());
        for i3 in 0..self.ne[3] {
            for i2 in 0..self.ne[2] {
                for i1 in 0..self.ne[1] {
                    let row = self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3];
                    for i0 in 0..self.ne[0] {
                        f((row + i0 / block * self.nb[0]) / size * block + i0 % block);
                    }
                }
            }
        }
    }

    pub(crate) fn array(&self) -> Array {
        let mut data = Vec::with_capacity(self.ne.iter().product());
        self.each(|at| data.push(self.root[at]));
        Array { ne: self.ne, data }
    }

    pub(crate) fn largest(&self) -> f64 {
        let mut most = 0.0_f64;
        self.each(|at| most = most.max(self.root[at].abs()));
        most
    }
}

/// The largest of absolute values; undefined where one of them is.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0_f64, |m, x| if x.is_nan() || m.is_nan() { f64::NAN } else { m.max(x.abs()) })
}
