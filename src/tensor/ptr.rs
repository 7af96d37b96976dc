//! The one place that reads and writes the fields of a C tensor.

use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::TensorInfo;

/// A pointer to a live C tensor.
///
/// # Invariants
///
/// The pool that holds the tensor lives as long as any use of this value, and only the thread that owns the pool writes
/// to the tensor. Whoever makes one from a raw pointer vouches for that; all methods rely on it. The tensors that `src`
/// and `view_src` point to then live too: handles carry a lifetime that no builder lengthens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TensorPtr(NonNull<sys::ggml_tensor>);

/// Who owns the bytes of a leaf, written into the tensor's unused padding when the leaf is made and never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The allocator of whatever graph the tensor is part of.
    Graph,
    /// A `State`: memory of its own, writable by operations.
    State,
    /// `Weights`: memory of its own, frozen.
    Weights,
    /// `Weights` that a device keeps in an order of its own (H27).
    Packed,
}

impl TensorPtr {
    /// # Safety
    ///
    /// The type's invariants.
    pub(crate) unsafe fn new(raw: NonNull<sys::ggml_tensor>) -> Self {
        Self(raw)
    }

    pub(crate) fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.0.as_ptr()
    }

    /// The tensor as it is now. The borrow must end before anything writes to it, so it never leaves this file.
    fn get(&self) -> &sys::ggml_tensor {
        // SAFETY: live by the type's invariants; writers are on this thread and not inside this borrow.
        unsafe { self.0.as_ref() }
    }

    /// The tensor for a write of one of its fields; the same rule as for `get`.
    fn get_mut(&mut self) -> &mut sys::ggml_tensor {
        // SAFETY: live by the type's invariants; only this thread uses it, and no other borrow leaves this file.
        unsafe { self.0.as_mut() }
    }

    pub(crate) fn ne(self) -> [i64; 4] {
        self.get().ne
    }

    pub(crate) fn nb(self) -> [usize; 4] {
        self.get().nb
    }

    pub(crate) fn raw_type(self) -> sys::ggml_type {
        self.get().type_
    }

    /// Every tensor is made by this crate or by an upstream builder, so its type is one that exists.
    pub(crate) fn dtype(self) -> DType {
        DType::from_raw(self.get().type_).unwrap_or(DType::I8)
    }

    pub(crate) fn op(self) -> sys::ggml_op {
        self.get().op
    }

    pub(crate) fn op_params(self) -> [i32; 16] {
        self.get().op_params
    }

    /// Where the parameters lie, for those that are more than numbers.
    pub(crate) fn params_ptr(self) -> *const [i32; 16] {
        &raw const self.get().op_params
    }

    pub(crate) fn flags(self) -> i32 {
        self.get().flags
    }

    pub(crate) fn add_flags(mut self, flags: i32) {
        self.get_mut().flags |= flags;
    }

    pub(crate) fn remove_flags(mut self, flags: i32) {
        self.get_mut().flags &= !flags;
    }

    pub(crate) fn srcs(self) -> [*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize] {
        self.get().src
    }

    pub(crate) fn set_srcs(mut self, srcs: [*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize]) {
        self.get_mut().src = srcs;
    }

    /// The sources in their places, as tensors.
    pub(crate) fn slots(self) -> [Option<Self>; sys::GGML_MAX_SRC as usize] {
        self.srcs().map(|s| NonNull::new(s).map(Self))
    }

    /// The sources that are there, in order.
    pub(crate) fn sources(self) -> impl Iterator<Item = Self> {
        self.slots().into_iter().flatten()
    }

    pub(crate) fn view_src(self) -> Option<Self> {
        NonNull::new(self.get().view_src).map(Self)
    }

    pub(crate) fn view_offs(self) -> usize {
        self.get().view_offs
    }

    /// The tensor whose memory this one shares: itself unless it is a view. ggml never makes chains.
    pub(crate) fn root(self) -> Self {
        self.view_src().unwrap_or(self)
    }

    pub(crate) fn owner(self) -> Owner {
        match self.root().get().padding.first() {
            Some(1) => Owner::State,
            Some(2) => Owner::Weights,
            Some(3) => Owner::Packed,
            _ => Owner::Graph,
        }
    }

    pub(crate) fn set_owner(mut self, owner: Owner) {
        let mark = match owner {
            Owner::Graph => 0,
            Owner::State => 1,
            Owner::Weights => 2,
            Owner::Packed => 3,
        };
        if let Some(first) = self.get_mut().padding.first_mut() {
            *first = mark;
        }
    }

    pub(crate) fn buffer(self) -> *mut sys::ggml_backend_buffer {
        self.get().buffer
    }

    /// Says what type of buffer a tensor without memory would lie in. It must be released before the buffer goes.
    pub(crate) fn set_buffer(mut self, buffer: *mut sys::ggml_backend_buffer) {
        self.get_mut().buffer = buffer;
    }

    pub(crate) fn has_data(self) -> bool {
        !self.get().data.is_null()
    }

    /// The first element, on whatever device; NULL without memory.
    pub(crate) fn data(self) -> *mut c_void {
        self.get().data
    }

    /// Puts the tensor's memory back to what its builder leaves, so that an allocation sees it as new: none, or for a
    /// view of placed memory its address there.
    pub(crate) fn release(mut self) {
        let data = match self.view_src() {
            Some(root) if root.owner() != Owner::Graph => {
                root.get().data.cast::<u8>().wrapping_add(self.view_offs()).cast()
            }
            _ => ptr::null_mut(),
        };
        let t = self.get_mut();
        t.data = data;
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
    }

    /// The bytes from the first to the last element (`ggml_nbytes`), or `None` where that overflows.
    pub(crate) fn span(self) -> Option<usize> {
        let t = self.get();
        span(self.dtype(), t.ne, t.nb)
    }

    pub(crate) fn elements(self) -> usize {
        let ne = self.get().ne;
        ne.iter().fold(1, |n: usize, &d| n.saturating_mul(usize::try_from(d).unwrap_or(0)))
    }

    /// Whether elements lie in order without gaps.
    pub(crate) fn is_contiguous(self) -> bool {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_is_contiguous(self.as_ptr()) }
    }

    /// Whether each row's elements lie side by side, and rows in order above dimension 1.
    pub(crate) fn is_contiguous_1(self) -> bool {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_is_contiguous_1(self.as_ptr()) }
    }

    /// Whether each row's elements lie side by side.
    pub(crate) fn has_contiguous_rows(self) -> bool {
        // SAFETY: the tensor is live; the call only reads it.
        unsafe { sys::ggml_is_contiguous_rows(self.as_ptr()) }
    }

    pub(crate) fn name(self) -> String {
        let name = self.get().name.map(c_char::cast_unsigned);
        let end = name.iter().position(|&c| c == 0).unwrap_or(name.len());
        String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
    }

    /// Names the tensor, cut to what ggml holds (63 bytes) at a character's end.
    pub(crate) fn set_name(mut self, name: &str) {
        let t = self.get_mut();
        let mut end = name.len().min(t.name.len() - 1);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        t.name.fill(0);
        for (to, &from) in t.name.iter_mut().zip(name.as_bytes().iter().take(end)) {
            *to = c_char::from_ne_bytes([from]);
        }
    }

    pub(crate) fn info(self) -> TensorInfo {
        TensorInfo { name: self.name().into(), dtype: self.dtype().name(), ne: self.ne() }
    }
}

/// Bytes from the first to the last element of a tensor with these strides (`ggml_nbytes`, checked).
pub(crate) fn span(dtype: DType, ne: [i64; 4], nb: [usize; 4]) -> Option<usize> {
    let (block, size) = (dtype.block_size(), dtype.type_size());
    let first = if block == 1 {
        size.checked_add(steps(ne[0], nb[0])?)?
    } else {
        usize::try_from(ne[0] / block).ok()?.checked_mul(nb[0])?
    };
    ne.into_iter().zip(nb).skip(1).try_fold(first, |n, (ne, nb)| n.checked_add(steps(ne, nb)?))
}

/// The way from the first to the last of `n` things that are `stride` apart.
fn steps(n: i64, stride: usize) -> Option<usize> {
    usize::try_from(n.checked_sub(1)?).ok()?.checked_mul(stride)
}
