//! Tensors that Rust makes: those that look at memory or copy it, and products of matrices.
//!
//! A decoder makes more of them than of all others, and for each of the former C prints a name, which takes longer than all
//! the rest. They are what ggml's builders make: debug builds make both and compare them.

use std::ffi::{CStr, c_char};

use ggml_sys as sys;

use super::{Layout, Owner, TensorPtr};

/// A tensor that is being made: without a shape, and all zeroes but for what was set.
pub(crate) struct Made<'t> {
    pub(crate) raw: &'t mut sys::ggml_tensor,
}

impl Made<'_> {
    /// Makes it the result of an operation on `operands`, which lies in memory so.
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

    /// Makes it share the memory of `of`, from `offset` on.
    #[inline]
    pub(crate) fn view(&mut self, of: TensorPtr, offset: usize) {
        let root = of.root();
        let offset = if root == of { offset } else { of.view_offs() + offset };
        self.raw.view_src = root.as_ptr();
        self.raw.view_offs = offset;
        // As `TensorPtr::release` leaves it: only what is there for good has an address.
        if root.owner() != Owner::Graph {
            self.raw.data = root.data().cast::<u8>().wrapping_add(offset).cast();
        }
    }

    /// Names it as `a` is, with `suffix` behind that.
    #[inline]
    pub(crate) fn name<const N: usize>(&mut self, a: TensorPtr, suffix: &[u8; N]) {
        let end = name_of(&a).len();
        // All of it, and what is left of the suffix: copies of a size that is known are much faster.
        self.raw.name.copy_from_slice(a.raw_name());
        match self.raw.name.get_mut(end..).and_then(|rest| rest.split_first_chunk_mut::<N>()) {
            Some((to, [end, ..])) => {
                *to = suffix.map(|b| c_char::from_ne_bytes([b]));
                *end = 0;
            }
            _ => self.name_of_parts(&[name_of(&a), suffix]),
        }
    }

    /// Names it as `parts` say, as far as ggml holds that.
    pub(crate) fn name_of_parts(&mut self, parts: &[&[u8]]) {
        let mut bytes = parts.iter().copied().flatten();
        let Some((end, text)) = self.raw.name.split_last_mut() else { return };
        *end = 0;
        for to in text {
            *to = bytes.next().map_or(0, |&b| c_char::from_ne_bytes([b]));
        }
    }
}

/// The name of a tensor, without its end.
#[inline]
pub(crate) fn name_of(t: &TensorPtr) -> &[u8] {
    CStr::from_bytes_until_nul(bytemuck::cast_slice(t.raw_name())).map(CStr::to_bytes).unwrap_or_default()
}

/// Whether two tensors are the same but for their place.
pub(crate) fn same(a: TensorPtr, b: TensorPtr) -> bool {
    let facts = |t: TensorPtr| {
        let places = (t.slots(), t.view_src(), t.view_offs(), t.data(), t.buffer());
        (t.dtype(), t.ne(), t.nb(), t.op(), t.op_params(), t.flags(), places, t.name())
    };
    facts(a) == facts(b)
}
