//! Predicates: those of ggml on shapes and strides, and whether a tensor belongs to weights or a state.

use ggml_sys as sys;

use super::Tensor;
use crate::buffer::BufferType;
use crate::error::Result;
use crate::ffi::{self, TensorPredicate};
use crate::header::Owner;

/// The type of ggml's predicates on two tensors.
type Relation = unsafe extern "C-unwind" fn(*const sys::ggml_tensor, *const sys::ggml_tensor) -> bool;

macro_rules! predicates {
    ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
        impl Tensor<'_> {
            $(
                #[doc = concat!("Whether ", $doc, " (`", $alias, "`).")]
                #[doc(alias = $alias)]
                pub fn $name(self) -> bool {
                    self.holds(sys::$c)
                }
            )*
        }
    };
}

predicates! {
    is_view = ggml_is_view, "ggml_is_view", "the tensor shares another one's memory";
    is_transposed = ggml_is_transposed, "ggml_is_transposed", "the first stride is larger than the second";
    is_permuted = ggml_is_permuted, "ggml_is_permuted", "some stride is larger than the next";
    is_scalar = ggml_is_scalar, "ggml_is_scalar", "there is one element";
    is_vector = ggml_is_vector, "ggml_is_vector", "all dimensions but the first are 1";
    is_matrix = ggml_is_matrix, "ggml_is_matrix", "the last two dimensions are 1";
    is_3d = ggml_is_3d, "ggml_is_3d", "the last dimension is 1";
    is_contiguous_1 = ggml_is_contiguous_1, "ggml_is_contiguous_1",
        "the elements lie in order and without gaps, except for equal gaps between rows";
    is_contiguous_2 = ggml_is_contiguous_2, "ggml_is_contiguous_2",
        "the elements of rows are adjacent, and so are volumes; rows and planes may have gaps between them";
    is_contiguous_to_1 = ggml_is_contiguous_to_1, "ggml_is_contiguous_to_1",
        "each row is contiguous; there may be gaps between rows";
    is_contiguous_to_2 = ggml_is_contiguous_to_2, "ggml_is_contiguous_to_2",
        "each plane is contiguous; there may be gaps between planes";
    is_contiguous_to_3 = ggml_is_contiguous_to_3, "ggml_is_contiguous_to_3",
        "each volume is contiguous; there may be gaps between volumes";
    is_contiguously_allocated = ggml_is_contiguously_allocated, "ggml_is_contiguously_allocated",
        "the elements lie without gaps, in any order";
    is_contiguous_channels = ggml_is_contiguous_channels, "ggml_is_contiguous_channels",
        "the third dimension is the innermost, then the first, then the second";
    is_contiguous_rows = ggml_is_contiguous_rows, "ggml_is_contiguous_rows",
        "the elements of each row are adjacent";
}

macro_rules! relations {
    ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
        impl Tensor<'_> {
            $(
                #[doc = concat!("Whether ", $doc, " (`", $alias, "`).")]
                #[doc(alias = $alias)]
                pub fn $name(self, other: Tensor<'_>) -> bool {
                    self.relates(sys::$c, other)
                }
            )*
        }
    };
}

relations! {
    are_same_shape = ggml_are_same_shape, "ggml_are_same_shape", "both have the same dimensions";
    are_same_stride = ggml_are_same_stride, "ggml_are_same_stride", "both have the same strides";
    can_repeat = ggml_can_repeat, "ggml_can_repeat", "each dimension of this one divides that of the other";
}

impl Tensor<'_> {
    fn holds(self, f: TensorPredicate) -> bool {
        // SAFETY: the tensor is live, and `f` is a function of the table above, which only reads the tensor.
        unsafe { f(self.as_ptr()) }
    }

    fn relates(self, f: Relation, other: Tensor<'_>) -> bool {
        // SAFETY: both tensors are live, and `f` is a function of the table above, which only reads them. `can_repeat`
        // divides by dimensions, and none is 0 (H2).
        unsafe { f(self.as_ptr(), other.as_ptr()) }
    }

    /// Whether the tensor belongs to [`Weights`](crate::Weights).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w", DType::F32, [4])?;
    /// let weights = builder.place(Device::cpu()?)?;
    /// let w = weights.tensor("w")?;
    /// assert!(w.is_weight() && !w.is_state());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    pub fn is_weight(self) -> bool {
        self.ptr.is_leaf() && matches!(self.ptr.owner(), Owner::Weights | Owner::Packed)
    }

    /// Whether the tensor belongs to a [`State`](crate::State).
    pub fn is_state(self) -> bool {
        self.ptr.is_leaf() && self.ptr.owner() == Owner::State
    }

    /// The number of dimensions without trailing ones; at least 1 (`ggml_n_dims`).
    #[doc(alias = "ggml_n_dims")]
    pub fn n_dims(self) -> usize {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_n_dims(self.as_ptr()) }.unsigned_abs() as usize
    }

    /// The number of rows: the product of all dimensions but the first (`ggml_nrows`).
    #[doc(alias = "ggml_nrows")]
    pub fn nrows(self) -> usize {
        // SAFETY: the tensor is live, and only read. The product can't overflow: it is at most the element count.
        let n = unsafe { sys::ggml_nrows(self.as_ptr()) };
        usize::try_from(n).unwrap_or(0)
    }

    /// Bytes per element, or per block (`ggml_element_size`).
    #[doc(alias = "ggml_element_size")]
    pub fn element_size(self) -> usize {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_element_size(self.as_ptr()) }
    }

    /// [`nbytes`](Self::nbytes), rounded up to ggml's alignment (`ggml_nbytes_pad`).
    #[doc(alias = "ggml_nbytes_pad")]
    pub fn nbytes_pad(self) -> usize {
        // SAFETY: the tensor is live; the call only reads it. `MAX_BYTES` limits sizes so that padding can't overflow.
        unsafe { sys::ggml_nbytes_pad(self.as_ptr()) }
    }

    /// The index of element `i` in each dimension, counted in ggml's order; `None` if `i` is out of bounds
    /// (`ggml_unravel_index`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3, 2])?;
    /// assert_eq!(x.unravel_index(4), Some([1, 1, 0, 0]));
    /// assert_eq!(x.unravel_index(6), None);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_unravel_index")]
    pub fn unravel_index(self, i: usize) -> Option<[i64; 4]> {
        let i = i64::try_from(i).ok().filter(|_| i < self.elements())?;
        let mut at = [0; 4];
        let [i0, i1, i2, i3] = at.each_mut().map(std::ptr::from_mut);
        // SAFETY: the tensor is live and only read; no dimension, by which C divides, is 0. C writes to our variables.
        unsafe { sys::ggml_unravel_index(self.as_ptr(), i, i0, i1, i2, i3) };
        Some(at)
    }

    /// ggml's name of the operation's kind (`ggml_op_name`): `UNARY` where [`op`](Self::op) returns `RELU`.
    #[doc(alias = "ggml_op_name")]
    pub fn op_name(self) -> String {
        // SAFETY: a lookup in a table of constant strings; a tensor's operation is always in bounds.
        unsafe { ffi::text_of(sys::ggml_op_name, self.ptr().op()) }
    }

    /// The operation as a formula, such as `x+y` (`ggml_op_symbol`).
    #[doc(alias = "ggml_op_symbol")]
    pub fn op_symbol(self) -> String {
        // SAFETY: a lookup in a table of constant strings; a tensor's operation is always in bounds.
        unsafe { ffi::text_of(sys::ggml_op_symbol, self.ptr().op()) }
    }
}

impl BufferType {
    /// The bytes that a tensor takes in this buffer type, including padding (`ggml_backend_buft_get_alloc_size`).
    ///
    /// # Errors
    ///
    /// As [`BufferType::alignment`].
    #[doc(alias = "ggml_backend_buft_get_alloc_size")]
    #[doc(alias = "ggml_backend_buffer_get_alloc_size")]
    pub fn alloc_size(self, t: Tensor<'_>) -> Result<usize> {
        t.check_free("BufferType::alloc_size")?;
        self.alloc_size_of(t.ptr())
    }
}
