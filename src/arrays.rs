//! Arrays of the crate [`ndarray`] as inputs and results (feature `ndarray`).
//!
//! An array's shape is ggml's reversed: an array of 3 rows and 4 columns, `[3, 4]`, is a tensor `[4, 3]`. The elements
//! lie in the same order, row by row, so arrays in the usual layout are not copied on their way to a device.
//!
//! ```
//! use ggml::ndarray::{Array2, array};
//! use ggml::{arrays, prelude::*};
//! # fn main() -> ggml::Result<()> {
//! let points: Array2<f32> = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]; // three points of the plane
//! let turn = array![[0.0, -1.0], [1.0, 0.0]];
//!
//! let mut builder = WeightsBuilder::new();
//! builder.tensor("turn", DType::F32, arrays::shape(&turn))?;
//! let mut weights = builder.place(Device::cpu()?)?;
//! weights.set("turn", &arrays::elements::<f32, _>(&turn)?)?;
//!
//! let ctx = Context::new();
//! let x = ctx.input("x", DType::F32, arrays::shape(&points))?; // [2, 3]
//! let y = ctx.mul_mat(weights.tensor("turn")?, x)?; // in arrays: points × turn transposed
//! let graph = ctx.graph([y])?;
//! let turned: Array2<f32> = Sched::best()?.run(&graph, (x, &points))?.get_array(y)?;
//! assert_eq!(turned, points.dot(&turn.t()));
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::iter;

use ndarray::{Array, ArrayBase, ArrayRef, Data, Dimension};

use crate::callback;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::list;
use crate::run::{Inputs, Run};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The shape of a tensor for this array: the array's, reversed. For an array of more than four dimensions, the result
/// is a shape that every call refuses.
///
/// ```
/// use ggml::{arrays, ndarray::Array3};
/// let images = Array3::<f32>::zeros((10, 28, 14)); // 10 images of 28 rows
/// assert_eq!(arrays::shape(&images).ne(), [14, 28, 10, 1]);
/// ```
pub fn shape<T, D: Dimension>(array: &ArrayRef<T, D>) -> Shape {
    let ne: Vec<_> = array.shape().iter().rev().copied().collect();
    Shape::from(&ne[..])
}

/// The array's elements in ggml's order: row by row, as the array counts them. They are copied only if they lie in
/// another order, as in a transposed view.
///
/// ```
/// use ggml::{arrays, ndarray::array};
/// let a = array![[1, 2], [3, 4]];
/// assert_eq!(*arrays::elements::<i32, _>(&a)?, [1, 2, 3, 4]);
/// assert_eq!(*arrays::elements::<i32, _>(&a.t())?, [1, 3, 2, 4]);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::OutOfMemory`].
pub fn elements<T: Element, D: Dimension>(array: &ArrayRef<T, D>) -> Result<Cow<'_, [T]>> {
    match array.as_slice() {
        Some(elements) => Ok(elements.into()),
        None => Ok(list::collect(array.iter().copied(), "the elements of an array")?.into()),
    }
}

impl Run<'_, '_> {
    /// Sets the whole of an input, as [`Run::set`], to an array or a view of one. Its shape must be the tensor's,
    /// reversed; dimensions of 1 may be missing at its front.
    ///
    /// ```
    /// # use ggml::{arrays, prelude::*}; let ctx = Context::new();
    /// use ggml::ndarray::{array, s};
    /// let x = ctx.input("x", DType::F32, [2, 3])?;
    /// let y = ctx.sqr(x)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::best()?);
    /// let table = array![[1.0_f32, 2.0, 9.0], [3.0, 4.0, 9.0], [5.0, 6.0, 9.0]];
    /// let mut run = sched.alloc(&graph)?;
    /// run.set_array(x, &table.slice(s![.., ..2]))?; // three rows of two
    /// run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]);
    /// assert!(run.set_array(x, &table.slice(s![..2, ..])).is_err(), "two rows of three");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the array has another shape; else as [`Run::set`].
    pub fn set_array<T: Element, D: Dimension>(&mut self, t: Tensor<'_>, array: &ArrayRef<T, D>) -> Result<()> {
        const CALL: &str = "Run::set_array";
        callback::check_reentry(CALL)?;
        if shape(array) != t.shape() {
            let expected = format!("an array {:?} (`ne` reversed) is expected, not {:?}", reversed(t), array.shape());
            return Err(Error::Shape { call: CALL, operands: [t.info()].into(), expected: expected.into() });
        }
        self.set(t, &elements(array)?)
    }

    /// Reads a tensor as [`Run::get`] does, as an array. The array's shape is the tensor's, reversed; `D` says how many
    /// dimensions it has, and [`IxDyn`](ndarray::IxDyn) has all four.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// use ggml::ndarray::{Array1, Array2, ArrayD};
    /// let y = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::best()?);
    /// let run = sched.run(&graph, ())?;
    /// let rows: Array2<f32> = run.get_array(y)?;
    /// assert_eq!(rows, ggml::ndarray::array![[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
    /// let all: ArrayD<f32> = run.get_array(y)?;
    /// assert_eq!(all.shape(), [1, 1, 2, 3]);
    /// let flat: ggml::Result<Array1<f32>> = run.get_array(y);
    /// assert!(flat.is_err(), "a tensor of two dimensions");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the tensor has more dimensions than `D`; else as [`Run::get`].
    pub fn get_array<T: Element, D: Dimension>(&self, t: Tensor<'_>) -> Result<Array<T, D>> {
        const CALL: &str = "Run::get_array";
        callback::check_reentry(CALL)?;
        let dim = dimensions::<D>(CALL, t)?;
        array(CALL, t, dim, self.get(t)?)
    }
}

impl Tensor<'_> {
    /// Reads a tensor of weights or a state as [`Tensor::read`] does, as an array like those of [`Run::get_array`].
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w", DType::F32, [3, 2])?;
    /// let weights = builder.place(Device::cpu()?)?;
    /// let w: ggml::ndarray::Array2<f32> = weights.tensor("w")?.read_array()?;
    /// assert_eq!(w.shape(), [2, 3]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the tensor has more dimensions than `D`; else as [`Tensor::read`].
    pub fn read_array<T: Element, D: Dimension>(self) -> Result<Array<T, D>> {
        const CALL: &str = "Tensor::read_array";
        callback::check_reentry(CALL)?;
        let dim = dimensions::<D>(CALL, self)?;
        array(CALL, self, dim, self.read()?)
    }
}

impl<T: Element, S: Data<Elem = T>, D: Dimension> Inputs for (Tensor<'_>, &ArrayBase<S, D>) {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        run.set_array(self.0, self.1)
    }
}

/// The shape of an array that holds all of a tensor.
fn reversed(t: Tensor<'_>) -> [i64; 4] {
    let [a, b, c, d] = t.ne();
    [d, c, b, a]
}

/// The tensor's dimensions in reversed order, as [`reversed`] has them, but only as many as `D` has.
fn dimensions<D: Dimension>(call: &'static str, t: Tensor<'_>) -> Result<D> {
    let all = reversed(t);
    let mut dim = D::zeros(D::NDIM.unwrap_or(all.len()));
    for (to, n) in dim.slice_mut().iter_mut().rev().zip(t.ne().into_iter().chain(iter::repeat(1))) {
        *to = usize::try_from(n).unwrap_or(0);
    }
    if t.ne().into_iter().skip(dim.ndim()).any(|n| n != 1) {
        let expected = format!("an array of {} dimensions can't hold the shape {all:?}", dim.ndim());
        return Err(Error::Shape { call, operands: [t.info()].into(), expected: expected.into() });
    }
    Ok(dim)
}

fn array<T, D: Dimension>(call: &'static str, t: Tensor<'_>, dim: D, elements: Vec<T>) -> Result<Array<T, D>> {
    Array::from_shape_vec(dim, elements).map_err(|e| Error::Shape {
        call,
        operands: [t.info()].into(),
        expected: e.to_string().into(),
    })
}
