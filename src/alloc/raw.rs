//! Owns C graph allocators. No other file frees one.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::buffer::BufferType;
use crate::error::Result;
use crate::guard;
use crate::guard::guarded;

/// Each node's and leaf's buffer type, as an index into the allocator's list. Empty if there is only one type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub(super) nodes: Vec<c_int>,
    pub(super) leafs: Vec<c_int>,
}

impl Places {
    /// The two lists as pointers for C; NULL for empty lists, which C reads as all zeros.
    fn as_ptrs(&self) -> (*const c_int, *const c_int) {
        if self.nodes.is_empty() { (ptr::null(), ptr::null()) } else { (self.nodes.as_ptr(), self.leafs.as_ptr()) }
    }
}

/// A live graph allocator that this value alone frees.
pub(super) struct RawAllocator(NonNull<sys::ggml_gallocr>);

// SAFETY: an allocator has no thread affinity; `&mut` keeps it on one thread at a time (docs/safety.md, "Threads").
unsafe impl Send for RawAllocator {}

impl RawAllocator {
    /// An allocator for these buffer types: at least one, no duplicates. If the allocation of a buffer that two entries
    /// share fails, C frees it twice (H21).
    pub(super) fn new(bufts: &[BufferType]) -> Result<Self> {
        let mut raw: Vec<_> = bufts.iter().map(|b| b.as_ptr()).collect();
        let n = c_int::try_from(raw.len()).unwrap_or(c_int::MAX);
        // SAFETY: buffer types are never freed; `raw` has `n` elements, which C copies. The result is ours.
        let raw = unsafe { guarded!(new, sys::ggml_gallocr_new_n(raw.as_mut_ptr(), n)) };
        raw.map(Self).map_err(guard::or_out_of_memory)
    }

    fn as_ptr(&self) -> *mut sys::ggml_gallocr {
        self.0.as_ptr()
    }

    /// Plans memory for `graph`. Returns `false` if it could not be allocated.
    pub(super) fn reserve(&mut self, graph: *mut sys::ggml_cgraph, places: &Places) -> Result<bool> {
        let (nodes, leafs) = places.as_ptrs();
        // SAFETY: allocator and graph are live; the lists have an index for each node and leaf, in bounds of the
        // allocator's types (GraphAllocator::places). C keeps no pointer to them nor to the graph's tensors.
        unsafe { guarded!(call, sys::ggml_gallocr_reserve_n(self.as_ptr(), graph, nodes, leafs)) }
    }

    /// The bytes of each buffer type that [`RawAllocator::reserve`] would take. Afterwards the allocator may lack
    /// memory that it had, and looks planned (H21): the caller drops it.
    pub(super) fn sizes(&mut self, graph: *mut sys::ggml_cgraph, places: &Places, n: usize) -> Result<Vec<usize>> {
        let (nodes, leafs) = places.as_ptrs();
        let mut sizes = vec![0; n];
        let to = sizes.as_mut_ptr();
        // SAFETY: as in `reserve`; C writes one size for each of the allocator's `n` types, and `sizes` has `n`.
        unsafe { guarded!(call, sys::ggml_gallocr_reserve_n_size(self.as_ptr(), graph, nodes, leafs, to)) }?;
        Ok(sizes)
    }

    /// Gives `graph`, which has a plan, its memory. Returns `false` if it could not be allocated.
    pub(super) fn alloc(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        // SAFETY: allocator and graph are live, and the plan is this graph's (GraphAllocator::prepare). The tensors
        // point into the allocator's buffers until the caller's AsBuilt restores the headers.
        unsafe { guarded!(call, sys::ggml_gallocr_alloc_graph(self.as_ptr(), graph)) }
    }

    /// The bytes allocated for the `i`th type, which must exist.
    pub(super) fn buffer_size(&self, i: usize) -> Result<usize> {
        let i = c_int::try_from(i).unwrap_or(c_int::MAX);
        // SAFETY: the allocator is live by the type's invariant; C asserts that `i` is in bounds.
        unsafe { guarded!(call, sys::ggml_gallocr_get_buffer_size(self.as_ptr(), i)) }
    }
}

impl Drop for RawAllocator {
    fn drop(&mut self) {
        // SAFETY: the allocator is live and ours by the type's invariant.
        unsafe { guarded!(free, sys::ggml_gallocr_free(self.as_ptr())) };
    }
}
