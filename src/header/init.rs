//! Tensor headers that Rust fills in: views, copies and matrix products.
//!
//! A decoder makes more of these than of all other tensors, and ggml's builders spend most of their time on formatting
//! the names of views. The resulting headers are the same: debug builds call ggml's builder too and compare.

use std::ffi::{CStr, c_char};

use ggml_sys as sys;

use super::{Layout, Owner, TensorPtr};
use crate::dtype::CType as _;

/// A tensor header that is being filled in. All fields are zero except those that were set.
pub(crate) struct TensorInit<'t> {
    pub(crate) raw: &'t mut sys::ggml_tensor,
}

impl TensorInit<'_> {
    /// Makes the tensor the result of `op` on `operands`, with this layout.
    #[inline]
    pub(crate) fn operation<const N: usize>(&mut self, op: sys::ggml_op, operands: [TensorPtr; N], layout: Layout) {
        self.raw.type_ = layout.dtype.raw();
        self.raw.ne = layout.ne;
        self.raw.nb = layout.nb;
        self.raw.op = op;
        self.raw.src.iter_mut().zip(operands).for_each(|(to, from)| *to = from.as_ptr());
    }

    /// Sets the first parameters of the operation.
    #[inline]
    pub(crate) fn params<const N: usize>(&mut self, params: [i32; N]) {
        self.raw.op_params.iter_mut().zip(params).for_each(|(to, from)| *to = from);
    }

    /// Makes the tensor a view of `of`, at byte `offset`.
    #[inline]
    pub(crate) fn view(&mut self, of: TensorPtr, offset: usize) {
        let root = of.root();
        let offset = if root == of { offset } else { of.view_offs() + offset };
        self.raw.view_src = root.as_ptr();
        self.raw.view_offs = offset;
        // This is what `TensorPtr::release` leaves, too: before an allocation, only views of weights and states have an
        // address.
        if root.owner() != Owner::Graph {
            self.raw.data = root.data().cast::<u8>().wrapping_add(offset).cast();
        }
    }

    /// Gives the tensor a name: that of `a`, followed by `suffix`.
    #[inline]
    pub(crate) fn name<const N: usize>(&mut self, a: TensorPtr, suffix: &[u8; N]) {
        let end = name_of(&a).len();
        // The whole name field of `a` is copied first, then the suffix: copies of constant size are much faster.
        self.raw.name.copy_from_slice(a.raw_name());
        match self.raw.name.get_mut(end..).and_then(|rest| rest.split_first_chunk_mut::<N>()) {
            Some((to, [end, ..])) => {
                *to = suffix.map(|b| c_char::from_ne_bytes([b]));
                *end = 0;
            }
            _ => self.name_of_parts(&[name_of(&a), suffix]),
        }
    }

    /// Gives the tensor the concatenation of `parts` as its name, cut to what ggml holds.
    pub(crate) fn name_of_parts(&mut self, parts: &[&[u8]]) {
        let mut bytes = parts.iter().copied().flatten();
        let Some((end, text)) = self.raw.name.split_last_mut() else { return };
        *end = 0;
        for to in text {
            *to = bytes.next().map_or(0, |&b| c_char::from_ne_bytes([b]));
        }
    }
}

impl TensorPtr {
    /// Makes a placed tensor the result of an operation, whose sources are set by [`TensorPtr::set_source`].
    #[cfg(feature = "rpc")]
    pub(crate) fn become_operation(mut self, op: sys::ggml_op, params: [i32; 16]) {
        let t = self.get_mut();
        t.op = op;
        t.op_params = params;
        t.flags |= sys::GGML_TENSOR_FLAG_COMPUTE.cast_signed();
    }
}

/// The bytes of a tensor's name, without the NUL.
#[inline]
pub(crate) fn name_of(t: &TensorPtr) -> &[u8] {
    CStr::from_bytes_until_nul(bytemuck::cast_slice(t.raw_name())).map(CStr::to_bytes).unwrap_or_default()
}

/// Whether two headers are equal, except for their own addresses and the fields that only allocations set.
pub(crate) fn same(a: TensorPtr, b: TensorPtr) -> bool {
    let fields = |t: TensorPtr| {
        let places = (t.slots(), t.view_src(), t.view_offs(), t.data(), t.buffer());
        (t.dtype(), t.ne(), t.nb(), t.op(), t.op_params(), t.flags(), places, t.name())
    };
    fields(a) == fields(b)
}
