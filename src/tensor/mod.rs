//! Tensor handles.

pub(crate) mod pieces;
mod query;
pub(crate) mod transfer;

use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use ggml_sys as sys;

use crate::callback;
use crate::debug::debug;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Layout, Owner, TensorPtr, any_in_use};
use crate::shape::Shape;

/// A tensor: a node of a computation, or a leaf that holds data (`ggml_tensor`).
///
/// A handle is a pointer, and `Copy`. It borrows the [`Context`](crate::Context), the [`Weights`](crate::Weights) or
/// the [`State`](crate::State) that it comes from. It describes the tensor but gives no access to results. Read results
/// through the [`Run`](crate::Run) of a graph, and weights and states through [`Tensor::read`].
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [3, 2])?;
/// assert_eq!((x.ne(), x.nb()), ([3, 2, 1, 1], [4, 12, 24, 24])); // two rows of three
/// let y = ctx.relu(x)?;
/// assert_eq!((y.op(), y.elements(), y.dtype()), ("RELU".to_string(), 6, DType::F32));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_tensor")]
#[derive(Clone, Copy)]
pub struct Tensor<'c> {
    ptr: TensorPtr,
    life: PhantomData<&'c ()>,
}

impl Tensor<'_> {
    /// # Safety
    ///
    /// The tensor and all that it refers to must meet the invariants of [`TensorPtr`] for `'c`.
    pub(crate) unsafe fn new(ptr: TensorPtr) -> Self {
        Self { ptr, life: PhantomData }
    }

    pub(crate) fn ptr(self) -> TensorPtr {
        self.ptr
    }

    /// The tensor's element type, dimensions and strides.
    #[inline]
    pub(crate) fn layout(self) -> Layout {
        self.ptr.layout()
    }

    pub(crate) fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.ptr.as_ptr()
    }

    /// The number of elements in each dimension.
    pub fn shape(self) -> Shape {
        Shape::from(self.ptr.ne())
    }

    /// The number of elements in each dimension, in ggml's order: `ne[0]` is the innermost.
    pub fn ne(self) -> [i64; 4] {
        self.ptr.ne()
    }

    /// Strides in bytes: `nb[i]` is the distance between neighbours in dimension `i`.
    pub fn nb(self) -> [usize; 4] {
        self.ptr.nb()
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        self.ptr.dtype()
    }

    /// The name; empty if the tensor has none (`ggml_get_name`).
    #[doc(alias = "ggml_get_name")]
    pub fn name(self) -> String {
        self.ptr.name()
    }

    /// ggml's name of the operation, such as `MUL_MAT` or `RELU`; `NONE` for a leaf (`ggml_op_desc`).
    #[doc(alias = "ggml_op_desc")]
    #[doc(alias = "ggml_unary_op_name")]
    #[doc(alias = "ggml_glu_op_name")]
    #[doc(alias = "ggml_get_unary_op")]
    #[doc(alias = "ggml_get_glu_op")]
    pub fn op(self) -> String {
        self.ptr.op_desc()
    }

    /// The number of elements (`ggml_nelements`).
    #[doc(alias = "ggml_nelements")]
    pub fn elements(self) -> usize {
        self.ptr.elements()
    }

    /// The bytes from the first to the last element (`ggml_nbytes`).
    #[doc(alias = "ggml_nbytes")]
    pub fn nbytes(self) -> usize {
        self.ptr.span().unwrap_or(usize::MAX)
    }

    /// Whether the elements lie in order and without gaps (`ggml_is_contiguous`).
    #[doc(alias = "ggml_is_contiguous")]
    #[doc(alias = "ggml_is_contiguous_0")]
    pub fn is_contiguous(self) -> bool {
        self.ptr.is_contiguous()
    }

    /// Sets the tensor's name, truncated to 63 bytes (`ggml_set_name`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.relu(ctx.input("x", DType::F32, [2])?)?.named("hidden")?;
    /// assert_eq!(y.name(), "hidden"); // in errors, pictures and profiles
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Frozen`] for tensors of weights or state: other threads may be reading their names.
    #[doc(alias = "ggml_set_name")]
    pub fn named(self, name: &str) -> Result<Self> {
        callback::check_reentry("Tensor::named")?;
        self.check_free("Tensor::named")?;
        if !self.is_of_context() {
            return Err(Error::Frozen { call: "set_name", tensor: self.info() });
        }
        self.ptr.set_name(name);
        Ok(self)
    }

    /// Whether the tensor's header may change. Headers of the tensors of weights and states may not, because other
    /// threads may read them.
    pub(crate) fn is_of_context(self) -> bool {
        self.is_view() || self.ptr.owner() == Owner::Graph
    }

    /// Reads a tensor of [`Weights`](crate::Weights) or [`State`](crate::State), or a contiguous view of one.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w", DType::F32, [2, 2])?;
    /// let mut weights = builder.place(Device::cpu()?)?;
    /// weights.set("w", &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let w = weights.tensor("w")?;
    /// let row = ctx.view_1d(w, 2, w.nb()[1])?; // the second
    /// assert_eq!(row.read::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] for any other tensor; [`Error::ElementType`] if `T` is not its type; [`Error::Shape`] if it
    /// is not contiguous.
    #[doc(alias = "ggml_backend_tensor_get")]
    pub fn read<T: Element>(self) -> Result<Vec<T>> {
        const CALL: &str = "Tensor::read";
        let root = self.ptr.root();
        if root.owner() == Owner::Graph {
            return Err(Error::NotPart { call: CALL, tensor: self.info(), whole: "any weights or state" });
        }
        transfer::read(CALL, self.ptr)
    }

    /// Fails within the closure of a running computation that uses the tensor, its root or a source of it.
    pub(crate) fn check_free(self, call: &'static str) -> Result<()> {
        let all = || self.ptr.sources().chain([self.ptr, self.ptr.root()]);
        if any_in_use() && all().any(TensorPtr::is_in_use) {
            return Err(Error::InUse { call, tensor: self.info() });
        }
        Ok(())
    }

    /// A description of the tensor for error messages.
    pub(crate) fn info(self) -> TensorInfo {
        self.ptr.info()
    }
}

debug!(Tensor<'_>(info));

/// Two handles are equal if they refer to the same tensor.
impl PartialEq for Tensor<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.ptr == other.ptr
    }
}

impl Eq for Tensor<'_> {}

impl Hash for Tensor<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ptr().hash(state);
    }
}
