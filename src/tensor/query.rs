//! Questions about a tensor's shape and strides that ggml answers.

use ggml_sys as sys;

use super::Tensor;
use crate::buffer::BufferType;
use crate::error::Result;
use crate::ffi;

/// The type of all of ggml's predicates of one tensor.
type Predicate = unsafe extern "C-unwind" fn(*const sys::ggml_tensor) -> bool;

/// The type of all of ggml's predicates of two tensors.
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
        "the elements lie in order without gaps, but for equal gaps after the rows";
    is_contiguous_2 = ggml_is_contiguous_2, "ggml_is_contiguous_2",
        "elements lie side by side in rows, and volumes one after the other, whatever lies between rows and planes";
    is_contiguous_to_1 = ggml_is_contiguous_to_1, "ggml_is_contiguous_to_1",
        "the elements of each row lie in order without gaps, whatever lies between rows";
    is_contiguous_to_2 = ggml_is_contiguous_to_2, "ggml_is_contiguous_to_2",
        "the elements of each plane lie in order without gaps, whatever lies between planes";
    is_contiguous_to_3 = ggml_is_contiguous_to_3, "ggml_is_contiguous_to_3",
        "the elements of each volume lie in order without gaps, whatever lies between volumes";
    is_contiguously_allocated = ggml_is_contiguously_allocated, "ggml_is_contiguously_allocated",
        "the elements lie without gaps, in any order";
    is_contiguous_channels = ggml_is_contiguous_channels, "ggml_is_contiguous_channels",
        "the third dimension is the innermost, then the first, then the second";
    is_contiguous_rows = ggml_is_contiguous_rows, "ggml_is_contiguous_rows",
        "the elements of a row lie side by side";
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
    fn holds(self, f: Predicate) -> bool {
        // SAFETY: `f` is one of the table above; the tensor is live, and is only read.
        unsafe { f(self.as_ptr()) }
    }

    fn relates(self, f: Relation, other: Tensor<'_>) -> bool {
        // SAFETY: `f` is one of the table above; both tensors are live, and are only read. None has a dimension of 0, by
        // which `can_repeat` divides (H2).
        unsafe { f(self.as_ptr(), other.as_ptr()) }
    }

    /// The number of dimensions, less those of 1 at the end; at least 1 (`ggml_n_dims`).
    #[doc(alias = "ggml_n_dims")]
    pub fn n_dims(self) -> usize {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_n_dims(self.as_ptr()) }.unsigned_abs() as usize
    }

    /// The number of rows: the product of all dimensions but the first (`ggml_nrows`).
    #[doc(alias = "ggml_nrows")]
    pub fn nrows(self) -> i64 {
        // SAFETY: the tensor is live; the call only reads it. The product is at most the number of elements, which fits.
        unsafe { sys::ggml_nrows(self.as_ptr()) }
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
        // SAFETY: the tensor is live; the call only reads it. Sizes are limited so that their paddings fit (`MAX_BYTES`).
        unsafe { sys::ggml_nbytes_pad(self.as_ptr()) }
    }

    /// The position of element `i`, counted in order of dimensions, or `None` where there is none
    /// (`ggml_unravel_index`).
    #[doc(alias = "ggml_unravel_index")]
    pub fn unravel_index(self, i: i64) -> Option<[i64; 4]> {
        if i < 0 || usize::try_from(i).map_or(true, |i| i >= self.elements()) {
            return None;
        }
        let mut at = [0; 4];
        let [i0, i1, i2, i3] = at.each_mut().map(std::ptr::from_mut);
        // SAFETY: the tensor is live and only read, and has no dimension of 0, by which C divides; the four places are ours.
        unsafe { sys::ggml_unravel_index(self.as_ptr(), i, i0, i1, i2, i3) };
        Some(at)
    }

    /// The kind of operation that computes it, in ggml's words (`ggml_op_name`): `UNARY` where [`op`](Self::op) says
    /// `RELU`.
    #[doc(alias = "ggml_op_name")]
    pub fn op_name(self) -> String {
        // SAFETY: a lookup in a constant table; a tensor's operation is one that exists.
        let text = unsafe { sys::ggml_op_name(self.ptr().op()) };
        // SAFETY: a constant C string.
        unsafe { ffi::string(text) }
    }

    /// The operation as a formula, such as `x+y` (`ggml_op_symbol`).
    #[doc(alias = "ggml_op_symbol")]
    pub fn op_symbol(self) -> String {
        // SAFETY: a lookup in a constant table; a tensor's operation is one that exists.
        let text = unsafe { sys::ggml_op_symbol(self.ptr().op()) };
        // SAFETY: a constant C string.
        unsafe { ffi::string(text) }
    }
}

impl BufferType {
    /// The bytes that a tensor takes in such memory, its padding included (`ggml_backend_buft_get_alloc_size`).
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
