//! Tensor headers that Rust fills in: views, copies and matrix products.
//!
//! A decoder makes more of them than of all others, and ggml's builders spend most of their time on formatting the
//! names of views. The result is the same: debug builds call ggml's builder too and compare.

use std::ffi::{CStr, c_char};

use ggml_sys as sys;

use super::{Layout, Owner, TensorPtr};

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

    /// Sets the first parameters.
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
        // As `TensorPtr::release` leaves it: only weights and states have an address before an allocation.
        if root.owner() != Owner::Graph {
            self.raw.data = root.data().cast::<u8>().wrapping_add(offset).cast();
        }
    }

    /// Gives the tensor the name of `a` and `suffix`.
    #[inline]
    pub(crate) fn name<const N: usize>(&mut self, a: TensorPtr, suffix: &[u8; N]) {
        let end = name_of(&a).len();
        // Copies the whole field, then the suffix: copies of constant size are much faster.
        self.raw.name.copy_from_slice(a.raw_name());
        match self.raw.name.get_mut(end..).and_then(|rest| rest.split_first_chunk_mut::<N>()) {
            Some((to, [end, ..])) => {
                *to = suffix.map(|b| c_char::from_ne_bytes([b]));
                *end = 0;
            }
            _ => self.name_of_parts(&[name_of(&a), suffix]),
        }
    }

    /// Gives the tensor the concatenation of `parts` as name, cut to what ggml holds.
    pub(crate) fn name_of_parts(&mut self, parts: &[&[u8]]) {
        let mut bytes = parts.iter().copied().flatten();
        let Some((end, text)) = self.raw.name.split_last_mut() else { return };
        *end = 0;
        for to in text {
            *to = bytes.next().map_or(0, |&b| c_char::from_ne_bytes([b]));
        }
    }
}

/// The bytes of a tensor's name, without the NUL.
#[inline]
pub(crate) fn name_of(t: &TensorPtr) -> &[u8] {
    CStr::from_bytes_until_nul(bytemuck::cast_slice(t.raw_name())).map(CStr::to_bytes).unwrap_or_default()
}

/// Whether two headers are equal, except for their own addresses.
pub(crate) fn same(a: TensorPtr, b: TensorPtr) -> bool {
    let fields = |t: TensorPtr| {
        let places = (t.slots(), t.view_src(), t.view_offs(), t.data(), t.buffer());
        (t.dtype(), t.ne(), t.nb(), t.op(), t.op_params(), t.flags(), places, t.name())
    };
    fields(a) == fields(b)
}
