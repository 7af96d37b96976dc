//! Tensors that Rust makes: those that look at memory or copy it.
//!
//! A decoder makes as many of them as of operations that compute, and C prints a name for each, which takes longer than all
//! the rest. They are what ggml's builders make: debug builds make both and compare them.

use std::ffi::{CStr, c_char};
use std::ptr;

use ggml_sys as sys;

use super::ptr::{Owner, TensorPtr};

/// A tensor to be made.
pub(crate) struct Made {
    pub(crate) op: sys::ggml_op,
    pub(crate) params: [i32; 16],
    pub(crate) ne: [i64; 4],
    pub(crate) nb: [usize; 4],
    pub(crate) srcs: [Option<TensorPtr>; 2],
    /// The tensor that it is a view of, with the offset in that.
    pub(crate) view: Option<(TensorPtr, usize)>,
    pub(crate) name: Name,
}

impl Made {
    /// A view of all of `a`, as `a` is.
    #[inline]
    pub(crate) fn view(op: sys::ggml_op, a: TensorPtr, name: Name) -> Self {
        Self { op, params: [0; 16], ne: a.ne(), nb: a.nb(), srcs: [Some(a), None], view: Some((a, 0)), name }
    }

    /// The tensor, of the type of `like`.
    #[inline]
    pub(crate) fn tensor(&self, like: TensorPtr) -> sys::ggml_tensor {
        let (view_src, view_offs, data) = match self.view {
            None => (ptr::null_mut(), 0, ptr::null_mut()),
            Some((of, offset)) => {
                let root = of.root();
                let offset = if root == of { offset } else { of.view_offs() + offset };
                // As `TensorPtr::release` leaves it: only what is there for good has an address.
                let placed = root.owner() != Owner::Graph;
                let data = if placed { root.data().cast::<u8>().wrapping_add(offset).cast() } else { ptr::null_mut() };
                (root.as_ptr(), offset, data)
            }
        };
        let mut src = [ptr::null_mut(); sys::GGML_MAX_SRC as usize];
        for (to, from) in src.iter_mut().zip(self.srcs.iter().flatten()) {
            *to = from.as_ptr();
        }
        sys::ggml_tensor {
            type_: like.dtype().raw(),
            buffer: ptr::null_mut(),
            ne: self.ne,
            nb: self.nb,
            op: self.op,
            op_params: self.params,
            flags: 0,
            src,
            view_src,
            view_offs,
            data,
            name: self.name.text,
            extra: ptr::null_mut(),
            padding: [0; 8],
        }
    }
}

/// A tensor's name, cut to what ggml holds.
pub(crate) struct Name {
    text: [c_char; sys::GGML_MAX_NAME as usize],
    len: usize,
}

impl Name {
    /// That of `t`.
    #[inline]
    pub(crate) fn of(t: TensorPtr) -> Self {
        Self { text: [0; _], len: 0 }.and(name_of(&t))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// With `part` behind it.
    #[inline]
    pub(crate) fn and(mut self, part: &[u8]) -> Self {
        // The last byte is the end of the text.
        let n = part.len().min(self.text.len() - 1 - self.len);
        let to = self.text.get_mut(self.len..self.len + n);
        if let (Some(to), Some(part)) = (to, part.get(..n)) {
            to.copy_from_slice(bytemuck::cast_slice(part));
        }
        self.len += n;
        self
    }

    /// With the name of `t` behind it.
    #[inline]
    pub(crate) fn and_of(self, t: TensorPtr) -> Self {
        self.and(name_of(&t))
    }
}

/// The name of a tensor, without its end.
#[inline]
fn name_of(t: &TensorPtr) -> &[u8] {
    CStr::from_bytes_until_nul(bytemuck::cast_slice(t.raw_name())).map(CStr::to_bytes).unwrap_or_default()
}

/// Whether two tensors are the same but for their place.
pub(crate) fn same(a: TensorPtr, b: TensorPtr) -> bool {
    let facts = |t: TensorPtr| {
        let places = (t.slots(), t.view_src(), t.view_offs(), t.data(), t.buffer());
        (t.dtype().raw(), t.ne(), t.nb(), t.op(), t.op_params(), t.flags(), places, t.name())
    };
    facts(a) == facts(b)
}
