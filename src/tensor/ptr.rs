//! The one place that reads and writes the fields of a C tensor.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
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

    #[inline]
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

    #[inline]
    pub(crate) fn ne(self) -> [i64; 4] {
        self.get().ne
    }

    #[inline]
    pub(crate) fn nb(self) -> [usize; 4] {
        self.get().nb
    }

    /// Whether the tensor is so small that no number of elements or bytes can be near an overflow, whatever the types.
    #[inline]
    pub(crate) fn is_clearly_small(self) -> bool {
        let t = self.get();
        let [n0, n1, n2, n3] = t.ne;
        let [b0, b1, b2, b3] = t.nb;
        // With addresses of 64 bits: at most 2^60 elements, and 4 * 2^15 * 2^40 bytes.
        (n0 | n1 | n2 | n3).cast_unsigned() < 1 << (usize::BITS / 4 - 1)
            && (b0 | b1 | b2 | b3) < 1 << (usize::BITS / 8 * 5)
    }

    /// Every tensor is made by this crate or by an upstream builder, so its type is one that exists.
    #[inline]
    pub(crate) fn dtype(self) -> DType {
        DType::from_raw(self.get().type_).unwrap_or(DType::I8)
    }

    #[inline]
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

    #[inline]
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

    /// A bit for each place that has a source.
    #[inline]
    pub(crate) fn source_mask(self) -> u16 {
        let bit = |i: usize, src: &*mut sys::ggml_tensor| u16::from(!src.is_null()) << i;
        let [s0, s1, s2, rest @ ..] = &self.get().src;
        let first = bit(0, s0) | bit(1, s1) | bit(2, s2);
        // Few have more.
        if rest.iter().fold(0, |any, src| any | src.addr()) == 0 {
            return first;
        }
        rest.iter().enumerate().fold(first, |mask, (i, src)| mask | bit(i + 3, src))
    }

    /// The source in place `i`.
    #[inline]
    pub(crate) fn source(self, i: usize) -> Option<Self> {
        self.get().src.get(i).copied().and_then(NonNull::new).map(Self)
    }

    /// Puts a source into its place.
    #[inline]
    pub(crate) fn set_source(mut self, i: usize, src: Self) {
        if let Some(to) = self.get_mut().src.get_mut(i) {
            *to = src.as_ptr();
        }
    }

    /// The sources in their places, as tensors.
    pub(crate) fn slots(self) -> [Option<Self>; sys::GGML_MAX_SRC as usize] {
        self.srcs().map(|s| NonNull::new(s).map(Self))
    }

    /// The sources that are there, in order.
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

    /// The tensor whose memory this one shares: itself unless it is a view. ggml never makes chains.
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

    /// Takes over everything of another tensor but its memory: what `place` gives takes the place of the tensors that it
    /// refers to. Those must live as long as this one.
    pub(crate) fn become_copy(mut self, of: Self, place: impl Fn(Self) -> Option<Self>) {
        let raw = |t: Option<Self>| t.and_then(&place).map_or(ptr::null_mut(), Self::as_ptr);
        let (src, view_src) = (of.slots().map(raw), raw(of.view_src()));
        let (data, buffer, extra) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let copy = sys::ggml_tensor { src, view_src, data, buffer, extra, ..*of.get() };
        *self.get_mut() = copy;
    }

    #[inline]
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
    pub(crate) fn release(self) {
        self.release_from(self.view_src().is_some_and(|root| root.owner() != Owner::Graph));
    }

    /// [`TensorPtr::release`] of a tensor of which the caller knows whether it is a view of placed memory.
    #[inline]
    pub(crate) fn release_from(mut self, placed: bool) {
        let data = match self.view_src() {
            Some(root) if placed => root.get().data.cast::<u8>().wrapping_add(self.view_offs()).cast(),
            _ => ptr::null_mut(),
        };
        let t = self.get_mut();
        t.data = data;
        t.buffer = ptr::null_mut();
        t.extra = ptr::null_mut();
    }

    /// [`TensorPtr::release`] of a tensor that was put into its [`Home`].
    #[inline]
    pub(crate) fn leave_home(mut self, views_placed: bool) {
        let t = self.get_mut();
        t.buffer = ptr::null_mut();
        if !views_placed {
            t.data = ptr::null_mut();
        }
    }

    /// Where an allocator put the tensor; `None` if it did more than that. What is `placed` was there before.
    pub(crate) fn home(self, placed: bool) -> Option<Home> {
        let t = self.get();
        (placed || t.extra.is_null()).then_some(Home { tensor: self, data: t.data, buffer: t.buffer })
    }

    /// The bytes from the first to the last element (`ggml_nbytes`), or `None` where that overflows.
    #[inline]
    pub(crate) fn span(self) -> Option<usize> {
        let t = self.get();
        span(self.dtype(), t.ne, t.nb)
    }

    #[inline]
    pub(crate) fn elements(self) -> usize {
        let ne = self.get().ne;
        ne.iter().fold(1, |n: usize, &d| n.saturating_mul(usize::try_from(d).unwrap_or(0)))
    }

    /// Whether elements lie in order without gaps.
    #[inline]
    pub(crate) fn is_contiguous(self) -> bool {
        let is = self.is_contiguous_above(0);
        // SAFETY: the tensor is live; the call only reads it.
        debug_assert_eq!(is, unsafe { sys::ggml_is_contiguous(self.as_ptr()) }, "as ggml sees it");
        is
    }

    /// Whether each row's elements lie side by side, and rows in order above dimension 1.
    #[inline]
    pub(crate) fn is_contiguous_1(self) -> bool {
        let is = self.is_contiguous_above(1);
        // SAFETY: the tensor is live; the call only reads it.
        debug_assert_eq!(is, unsafe { sys::ggml_is_contiguous_1(self.as_ptr()) }, "as ggml sees it");
        is
    }

    /// Whether each row's elements lie side by side.
    #[inline]
    pub(crate) fn has_contiguous_rows(self) -> bool {
        let (t, dtype) = (self.get(), self.dtype());
        let is = t.nb[0] == dtype.type_size() || t.ne[0] == dtype.block_size();
        // SAFETY: the tensor is live; the call only reads it.
        debug_assert_eq!(is, unsafe { sys::ggml_is_contiguous_rows(self.as_ptr()) }, "as ggml sees it");
        is
    }

    /// Whether the elements of a row lie side by side, and dimensions in order but for those from 1 to `free`. Dimensions
    /// of 1 lie anywhere, as for ggml.
    #[inline]
    fn is_contiguous_above(self, free: usize) -> bool {
        let (t, dtype) = (self.get(), self.dtype());
        let size = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        if t.nb[0] != dtype.type_size() && t.ne[0] != dtype.block_size() {
            return false;
        }
        let blocks = if dtype.block_size() == 1 { t.ne[0] } else { t.ne[0] / dtype.block_size() };
        let mut next = dtype.type_size().wrapping_mul(size(blocks));
        for (i, (&ne, &nb)) in t.ne.iter().zip(&t.nb).enumerate().skip(1) {
            if i <= free {
                next = nb;
            } else if ne != 1 && nb != next {
                return false;
            }
            next = next.wrapping_mul(size(ne));
        }
        true
    }

    /// The name, with its end and what lies after it.
    #[inline]
    pub(crate) fn raw_name(&self) -> &[c_char] {
        &self.get().name
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

    /// Gives a name to a tensor without one.
    #[inline]
    pub(crate) fn name_if_nameless(mut self, name: &Numbered) {
        let t = self.get_mut();
        if t.name[0] == 0 {
            for (to, from) in t.name.iter_mut().zip(name.text) {
                *to = c_char::from_ne_bytes([from]);
            }
        }
    }

    /// What decides how an operation is planned.
    #[inline]
    pub(crate) fn facts(self) -> Facts {
        Facts { dtype: self.get().type_, words: *self.words() }
    }

    /// Whether that is the same; its parameters may be left out.
    #[inline]
    pub(crate) fn is_like(self, facts: &Facts, params: bool) -> bool {
        if self.get().type_ != facts.dtype {
            return false;
        }
        if !params {
            // Those of closures have gaps, in which C leaves anything.
            return self.is_like_but_for_params(facts);
        }
        self.words().iter().zip(&facts.words).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    fn is_like_but_for_params(self, facts: &Facts) -> bool {
        let known = |words: &[u64; WORDS]| {
            let [ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3, op, .., flags] = *words;
            ([ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3], half(op, 0), half(flags, 1))
        };
        known(self.words()) == known(&facts.words)
    }

    /// Dimensions, strides, operation, parameters and flags, which lie in a row.
    #[inline]
    fn words(&self) -> &[u64; WORDS] {
        const {
            assert!(FIRST.is_multiple_of(8), "words are aligned");
            assert!(offset_of!(sys::ggml_tensor, nb) == FIRST + 4 * 8, "strides follow dimensions");
            assert!(offset_of!(sys::ggml_tensor, op) == FIRST + 8 * 8, "the operation follows");
            assert!(offset_of!(sys::ggml_tensor, op_params) == FIRST + 8 * 8 + 4, "its parameters follow");
            assert!(offset_of!(sys::ggml_tensor, flags) == FIRST + WORDS * 8 - 4, "the flags are last");
        }
        let words = self.as_ptr().cast::<u64>().wrapping_add(FIRST / 8).cast::<[u64; WORDS]>();
        // SAFETY: inside the tensor, which is live by the type's invariants, and aligned: it begins with `ne`. All of it are
        // numbers, without padding (asserted above). Writers are on this thread and not inside this borrow.
        unsafe { &*words }
    }

    pub(crate) fn info(self) -> TensorInfo {
        TensorInfo { name: self.name().into(), dtype: self.dtype().name(), ne: self.ne() }
    }
}

/// A name that ends in a number, padded with NULs. Counting in digits is quicker than writing out a number for each tensor.
#[derive(Clone, Copy)]
pub(crate) struct Numbered {
    text: [u8; 32],
    len: usize,
}

/// The memory of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    pub(crate) tensor: TensorPtr,
    data: *mut c_void,
    buffer: *mut sys::ggml_backend_buffer,
}

impl Home {
    /// Puts the tensor there again. One that views placed memory has its address already, perhaps in another buffer than
    /// last time: weights may have been replaced by others whose tensors got the same place.
    #[inline]
    pub(crate) fn put_back(mut self, views_placed: bool) {
        let placed = if views_placed { self.tensor.view_src() } else { None };
        let buffer = placed.map_or(self.buffer, TensorPtr::buffer);
        let t = self.tensor.get_mut();
        t.buffer = buffer;
        if !views_placed {
            t.data = self.data;
        }
    }
}

impl Numbered {
    /// The first name, with its number of one digit.
    pub(crate) fn new(first: &[u8]) -> Self {
        let mut text = [0; 32];
        for (to, &from) in text.iter_mut().zip(first) {
            *to = from;
        }
        Self { text, len: first.len() }
    }

    /// Makes it the next one.
    #[inline]
    pub(crate) fn count(&mut self) {
        for i in (0..self.len).rev() {
            match self.text.get_mut(i) {
                Some(digit @ b'0'..=b'8') => return *digit += 1,
                Some(digit @ b'9') => *digit = b'0',
                _ => return self.lengthen(i + 1),
            }
        }
    }

    /// Puts a 1 before the digits, which begin at `at` and are all 0. There is room for every number.
    #[cold]
    fn lengthen(&mut self, at: usize) {
        if let Some(end) = self.text.get_mut(self.len) {
            *end = b'0';
            self.len += 1;
        }
        if let Some(first) = self.text.get_mut(at) {
            *first = b'1';
        }
    }
}

/// Where a tensor's dimensions begin, and how many words there are from there to the end of its flags.
const FIRST: usize = offset_of!(sys::ggml_tensor, ne);
const WORDS: usize = 17;

/// What decides how an operation is planned, but for its sources and its memory.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    dtype: sys::ggml_type,
    words: [u64; WORDS],
}

/// A half of a word, the first or the second in memory.
fn half(word: u64, which: usize) -> [u8; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    if which == 0 { [a, b, c, d] } else { [e, f, g, h] }
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
