//! The one place that reads and writes the fields of a C tensor.

pub(crate) mod arena;
mod fingerprint;
pub(crate) mod init;
mod layout;
mod name;
mod placement;

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::dtype::{CType as _, DType};
use crate::error::TensorInfo;
use crate::ffi::{self, TensorPredicate};

pub(crate) use fingerprint::TensorFingerprint;
pub(crate) use layout::Layout;
pub(crate) use name::NumberedName;
pub(crate) use placement::{InUseScope, SavedPlacement, any_in_use};

/// A pointer to a live C tensor.
///
/// # Invariants
///
/// The pool that holds the tensor lives as long as any use of this value, and only the thread that owns the pool writes
/// to the tensor. Whoever makes a value from a raw pointer guarantees that; all methods rely on it. The tensors that
/// `src` and `view_src` point to then live too: handles carry a lifetime, which no builder extends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TensorPtr(NonNull<sys::ggml_tensor>);

/// Who owns the bytes of a leaf. This is written into the header's unused padding when the leaf is made, and never
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The allocator of each graph that the tensor is part of.
    Graph,
    /// A `State`: its leaves have memory of their own, to which operations may write.
    State,
    /// `Weights`: their leaves have memory of their own, which is frozen.
    Weights,
    /// `Weights` in a buffer type that repacks them (H27).
    Packed,
}

impl TensorPtr {
    /// # Safety
    ///
    /// The type's invariants.
    pub(crate) unsafe fn new(raw: NonNull<sys::ggml_tensor>) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.0.as_ptr()
    }

    /// The C tensor, for reading. The borrow must end before anything writes to the tensor, so it never leaves this
    /// folder.
    fn get(&self) -> &sys::ggml_tensor {
        // SAFETY: the tensor is live by the type's invariants; only this thread writes to it, and not inside this
        // borrow.
        unsafe { self.0.as_ref() }
    }

    /// The C tensor, for writing a field. As with `get`, the borrow never leaves this folder.
    fn get_mut(&mut self) -> &mut sys::ggml_tensor {
        // SAFETY: the tensor is live by the type's invariants; only this thread uses it, and no other borrow leaves
        // this folder.
        unsafe { self.0.as_mut() }
    }

    #[inline]
    pub(crate) fn ne(self) -> [i64; 4] {
        self.get().ne
    }

    #[inline]
    pub(crate) fn nb(self) -> [usize; 4] {
        self.get().nb
    }

    /// Whether the tensor is so small that no count of its elements or bytes can overflow, whatever its type.
    #[inline]
    pub(crate) fn is_clearly_small(self) -> bool {
        let t = self.get();
        let [n0, n1, n2, n3] = t.ne;
        let [b0, b1, b2, b3] = t.nb;
        // With addresses of 64 bits, these bounds allow at most 2^60 elements, and 4 * 2^15 * 2^40 bytes.
        (n0 | n1 | n2 | n3).cast_unsigned() < 1 << (usize::BITS / 4 - 1)
            && (b0 | b1 | b2 | b3) < 1 << (usize::BITS / 8 * 5)
    }

    /// The element type. This crate always knows it, because this crate or a builder of ggml made the tensor.
    #[inline]
    pub(crate) fn dtype(self) -> DType {
        DType::from_raw(self.get().type_).unwrap_or(DType::I8)
    }

    #[inline]
    pub(crate) fn op(self) -> sys::ggml_op {
        self.get().op
    }

    /// ggml's name of the operation, such as `MUL_MAT` or `RELU` (`ggml_op_desc`).
    pub(crate) fn op_desc(self) -> String {
        // SAFETY: the tensor is live (the type's invariants); C reads its operation and returns a static string.
        unsafe { ffi::text_of(sys::ggml_op_desc, self.as_ptr()) }
    }

    /// The operation's name, as [`TensorPtr::op_desc`] returns it, but in lower case, as errors and pictures show it.
    pub(crate) fn op_name(self) -> String {
        self.op_desc().to_lowercase()
    }

    /// Whether the tensor is a leaf: no operation made it.
    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.op() == sys::GGML_OP_NONE
    }

    /// Whether the builder `view` made the tensor.
    #[inline]
    pub(crate) fn is_view_at_offset(self) -> bool {
        self.op() == sys::GGML_OP_VIEW
    }

    /// Whether the tensor is a leaf or a plain view, so that nothing is computed for it (`ggml_is_view_op`).
    #[inline]
    pub(crate) fn is_view_op(self) -> bool {
        matches!(
            self.op(),
            sys::GGML_OP_NONE
                | sys::GGML_OP_RESHAPE
                | sys::GGML_OP_VIEW
                | sys::GGML_OP_PERMUTE
                | sys::GGML_OP_TRANSPOSE
        )
    }

    /// Whether a closure computes the tensor.
    #[inline]
    pub(crate) fn is_custom(self) -> bool {
        matches!(
            self.op(),
            sys::GGML_OP_CUSTOM | sys::GGML_OP_MAP_CUSTOM1 | sys::GGML_OP_MAP_CUSTOM2 | sys::GGML_OP_MAP_CUSTOM3
        )
    }

    pub(crate) fn op_params(self) -> [i32; 16] {
        self.get().op_params
    }

    /// The address of the operation's parameters, for reading pointers among them.
    pub(crate) fn params_ptr(self) -> *const [i32; 16] {
        &raw const self.get().op_params
    }

    #[inline]
    /// Whether the tensor is an input, which the host sets.
    pub(crate) fn is_input(self) -> bool {
        self.flags() & sys::GGML_TENSOR_FLAG_INPUT.cast_signed() != 0
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

    #[inline]
    pub(crate) fn srcs(self) -> [*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize] {
        self.get().src
    }

    /// A bit for each slot of `src` that holds a source.
    #[inline]
    pub(crate) fn source_mask(self) -> u16 {
        let bit = |i: usize, src: &*mut sys::ggml_tensor| u16::from(!src.is_null()) << i;
        let [s0, s1, s2, rest @ ..] = &self.get().src;
        let first = bit(0, s0) | bit(1, s1) | bit(2, s2);
        // Few operations have more than three sources.
        if rest.iter().fold(0, |any, src| any | src.addr()) == 0 {
            return first;
        }
        rest.iter().enumerate().fold(first, |mask, (i, src)| mask | bit(i + 3, src))
    }

    /// The source in slot `i`.
    #[inline]
    pub(crate) fn source(self, i: usize) -> Option<Self> {
        self.get().src.get(i).copied().and_then(NonNull::new).map(Self)
    }

    /// Writes a source into slot `i`.
    #[inline]
    pub(crate) fn set_source(mut self, i: usize, src: Self) {
        if let Some(to) = self.get_mut().src.get_mut(i) {
            *to = src.as_ptr();
        }
    }

    /// The sources by slot.
    pub(crate) fn slots(self) -> [Option<Self>; sys::GGML_MAX_SRC as usize] {
        self.srcs().map(|s| NonNull::new(s).map(Self))
    }

    /// The sources, without empty slots.
    pub(crate) fn sources(self) -> impl Iterator<Item = Self> {
        self.slots().into_iter().flatten()
    }

    #[inline]
    pub(crate) fn view_src(self) -> Option<Self> {
        NonNull::new(self.get().view_src).map(Self)
    }

    #[inline]
    pub(crate) fn view_offs(self) -> usize {
        self.get().view_offs
    }

    /// The tensor whose memory this one shares: itself unless it is a view. ggml makes no view of a view.
    #[inline]
    pub(crate) fn root(self) -> Self {
        self.view_src().unwrap_or(self)
    }

    #[inline]
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

    /// Copies the header of another tensor, except its memory. `place` maps each tensor to which the header refers to
    /// another one, which must live as long as this tensor.
    pub(crate) fn become_copy(mut self, of: Self, place: impl Fn(Self) -> Option<Self>) {
        // A cast has itself as its second source, which kernels read. So the copy of a cast refers to itself.
        let place = |t: Self| if t == of { Some(self) } else { place(t) };
        let raw = |t: Option<Self>| t.and_then(place).map_or(ptr::null_mut(), Self::as_ptr);
        let (src, view_src) = (of.slots().map(raw), raw(of.view_src()));
        let (data, buffer, extra) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let copy = sys::ggml_tensor { src, view_src, data, buffer, extra, ..*of.get() };
        *self.get_mut() = copy;
    }

    #[inline]
    pub(crate) fn buffer(self) -> *mut sys::ggml_backend_buffer {
        self.get().buffer
    }

    /// Sets a buffer, which gives a tensor without memory a buffer type. Release the tensor before the buffer is freed.
    pub(crate) fn set_buffer(mut self, buffer: *mut sys::ggml_backend_buffer) {
        self.get_mut().buffer = buffer;
    }

    pub(crate) fn has_data(self) -> bool {
        !self.get().data.is_null()
    }

    /// The address of the first element in the device's memory; NULL if the tensor has no memory.
    pub(crate) fn data(self) -> *mut c_void {
        self.get().data
    }

    /// The tensor's layout in memory.
    #[inline]
    pub(crate) fn layout(self) -> Layout {
        let t = self.get();
        Layout { dtype: self.dtype(), ne: t.ne, nb: t.nb }
    }

    /// The bytes that the tensor's layout spans: [`Layout::span`].
    #[inline]
    pub(crate) fn span(self) -> Option<usize> {
        self.layout().span()
    }

    #[inline]
    pub(crate) fn elements(self) -> usize {
        self.layout().elements()
    }

    /// Whether the tensor's layout [is contiguous](Layout::is_contiguous).
    #[inline]
    pub(crate) fn is_contiguous(self) -> bool {
        self.as_by_ggml(self.layout().is_contiguous(), sys::ggml_is_contiguous)
    }

    /// Whether the tensor's layout [has contiguous and evenly spaced rows](Layout::is_contiguous_1).
    #[inline]
    pub(crate) fn is_contiguous_1(self) -> bool {
        self.as_by_ggml(self.layout().is_contiguous_1(), sys::ggml_is_contiguous_1)
    }

    /// Whether the tensor's layout [has contiguous rows](Layout::has_contiguous_rows).
    #[inline]
    pub(crate) fn has_contiguous_rows(self) -> bool {
        self.as_by_ggml(self.layout().has_contiguous_rows(), sys::ggml_is_contiguous_rows)
    }

    /// Whether the tensor's layout [is transposed](Layout::is_transposed).
    #[inline]
    pub(crate) fn is_transposed(self) -> bool {
        self.as_by_ggml(self.layout().is_transposed(), sys::ggml_is_transposed)
    }

    /// Whether the tensor's layout [has dense rows](Layout::has_dense_rows).
    #[inline]
    pub(crate) fn has_dense_rows(self) -> bool {
        self.layout().has_dense_rows()
    }

    /// Whether the tensor's layout [is packed](Layout::is_packed).
    #[inline]
    pub(crate) fn is_packed(self) -> bool {
        self.layout().is_packed()
    }

    /// Returns `is`, the answer to a question about the tensor. Debug builds compare the answer with that of ggml's
    /// `predicate`.
    #[inline]
    fn as_by_ggml(self, is: bool, predicate: TensorPredicate) -> bool {
        // SAFETY: the tensor is live (the type's invariants); `predicate` is one of ggml's, which only read it.
        debug_assert_eq!(is, unsafe { predicate(self.as_ptr()) }, "differs from ggml's predicate");
        is
    }

    /// Whether two tensors have one root, and their extents in it overlap.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let extent = |t: Self| {
            let start = if t.view_src().is_some() { t.view_offs() } else { 0 };
            (start, start.saturating_add(t.span().unwrap_or(usize::MAX)))
        };
        let ((a0, a1), (b0, b1)) = (extent(self), extent(other));
        self.root() == other.root() && a0 < b1 && b0 < a1
    }

    pub(crate) fn info(self) -> TensorInfo {
        TensorInfo { name: self.name().into(), dtype: self.dtype().name(), ne: self.ne() }
    }
}
