//! What plans, allocates and computes a scheduler's graphs: ggml's scheduler, or ggml's allocator if there is one backend.
//!
//! One backend gets no copies and no splits, so its graphs need no scheduler, whose splitting costs more than planning.

use ggml_sys as sys;

use super::builder::Settings;
use super::raw::RawSched;
use crate::alloc::raw::{Places, RawAllocator};
use crate::backend::{Backend, Id};
use crate::buffer::BufferType;
use crate::error::Result;
use crate::guard;
use crate::header::TensorPtr;

/// The C objects of a scheduler.
pub(super) enum Engine {
    /// Several backends, or pipeline copies.
    Sched(RawSched),
    /// One backend.
    Alone(Alone),
}

/// An allocator, and the one backend that computes in its memory.
pub(super) struct Alone {
    allocator: RawAllocator,
    memory: BufferType,
    backend: *mut sys::ggml_backend,
    id: Id,
}

// SAFETY: neither object has thread affinity; `&mut` keeps them on one thread at a time (docs/safety.md, "Threads").
unsafe impl Send for Alone {}

impl Engine {
    /// Whether one backend needs no scheduler.
    pub(super) fn is_alone(backends: &[Backend], settings: &Settings) -> bool {
        backends.len() == 1 && !settings.parallel
    }

    /// How many tensors a scheduler must have room for to split a graph of so many.
    pub(super) fn need(tensors: usize) -> usize {
        tensors + tensors / 4 + 64
    }

    /// An engine with room for `tensors`.
    ///
    /// # Safety
    ///
    /// As for [`RawSched::new`].
    pub(super) unsafe fn new(backends: &[Backend], settings: &Settings, tensors: usize) -> Result<Self> {
        if let [backend] = backends
            && let [memory] = settings.buffer_types(backends)[..]
            && Self::is_alone(backends, settings)
        {
            let allocator = RawAllocator::new(&[memory])?;
            return Ok(Self::Alone(Alone { allocator, memory, backend: backend.as_ptr(), id: backend.id() }));
        }
        // SAFETY: by this function's contract.
        unsafe { RawSched::new(backends, settings, tensors) }.map(Self::Sched)
    }

    /// Whether it was made with these backends.
    pub(super) fn is_over(&self, backends: &[Backend]) -> bool {
        match self {
            Self::Sched(raw) => raw.is_over(backends),
            Self::Alone(alone) => backends.iter().map(Backend::id).eq([alone.id]),
        }
    }

    /// Whether there is room for graphs of `tensors`.
    pub(super) fn has_room(&self, tensors: usize) -> bool {
        match self {
            Self::Sched(raw) => raw.capacity >= tensors,
            Self::Alone(_) => true,
        }
    }

    /// Pins tensors to backends in the next graph that is planned or allocated.
    pub(super) fn pin(&mut self, pins: &[(TensorPtr, *mut sys::ggml_backend)]) -> Result<()> {
        match self {
            Self::Sched(raw) => raw.pin(pins),
            Self::Alone(_) => Ok(()), // there is nowhere else
        }
    }

    /// Writes the memory that `graph` would need on each backend into `sizes`. The caller plans again before it allocates.
    pub(super) fn reserve_size(&mut self, graph: *mut sys::ggml_cgraph, sizes: &mut [usize]) -> Result<()> {
        match self {
            Self::Sched(raw) => raw.reserve_size(graph, sizes),
            Self::Alone(alone) => {
                // A temporary allocator: measuring leaves the C object without its memory (H21).
                let mut allocator = RawAllocator::new(&[alone.memory])?;
                let needed = allocator.sizes(graph, &Places::default(), sizes.len());
                if guard::interrupted(&needed) {
                    allocator.leak();
                }
                sizes.iter_mut().zip(needed?).for_each(|(size, needed)| *size = needed);
                Ok(())
            }
        }
    }

    /// Assigns the operations of `graph` to backends, until the next reset.
    pub(super) fn split(&mut self, graph: *mut sys::ggml_cgraph) -> Result<()> {
        match self {
            Self::Sched(raw) => raw.split(graph),
            Self::Alone(_) => Ok(()),
        }
    }

    /// Plans memory for `graph`, whose tensors have none. Returns `false` if it could not be allocated.
    pub(super) fn reserve(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        match self {
            Self::Sched(raw) => raw.reserve(graph),
            Self::Alone(alone) => alone.allocator.reserve(graph, &Places::default()),
        }
    }

    /// Gives `graph` the planned memory. Returns `false` if it could not be allocated.
    pub(super) fn alloc(&mut self, graph: *mut sys::ggml_cgraph) -> Result<bool> {
        match self {
            Self::Sched(raw) => raw.alloc(graph),
            Self::Alone(alone) => alone.allocator.alloc(graph),
        }
    }

    /// Computes the allocated graph, and waits for the result.
    pub(super) fn compute(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        match self {
            Self::Sched(raw) => raw.compute(graph),
            Self::Alone(alone) => guard::compute("ggml_backend_graph_compute", || {
                // SAFETY: the backend is alive (Engine::new). The caller holds the graph's Live, so its tensors are live and
                // have memory; the backend can use that and runs the operations (Sched::prepare). C keeps nothing.
                unsafe { sys::ggml_backend_graph_compute(alone.backend, graph) }
            }),
        }
    }

    /// Starts to compute the allocated graph. The caller synchronises before it uses or frees anything of it.
    pub(super) fn compute_async(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        match self {
            Self::Sched(raw) => raw.compute_async(graph),
            Self::Alone(alone) => guard::compute("ggml_backend_graph_compute_async", || {
                // SAFETY: as for `compute`; what the device uses lives until the caller has synchronised.
                unsafe { sys::ggml_backend_graph_compute_async(alone.backend, graph) }
            }),
        }
    }

    /// Drops the allocated graph.
    pub(super) fn reset(&mut self) -> Result<()> {
        match self {
            Self::Sched(raw) => raw.reset(),
            Self::Alone(_) => Ok(()), // an allocator holds no graph
        }
    }

    /// Waits until all backends are idle.
    pub(super) fn synchronize(&mut self) -> Result<()> {
        match self {
            Self::Sched(raw) => raw.synchronize(),
            Self::Alone(alone) => guard::settle("ggml_backend_synchronize", || {
                // SAFETY: the backend is alive (Engine::new), and `&mut` excludes other threads.
                unsafe { sys::ggml_backend_synchronize(alone.backend) }
            }),
        }
    }

    /// The number of splits of the last planned graph.
    pub(super) fn n_splits(&self) -> usize {
        match self {
            Self::Sched(raw) => raw.n_splits(),
            Self::Alone(_) => 1,
        }
    }

    /// How many copies there are of each input and of each tensor copied between devices.
    pub(super) fn n_copies(&self) -> usize {
        match self {
            Self::Sched(raw) => raw.n_copies(),
            Self::Alone(_) => 1,
        }
    }

    /// The backend that a tensor of the allocated graph was assigned to.
    pub(super) fn backend_of(&self, t: TensorPtr) -> *mut sys::ggml_backend {
        match self {
            Self::Sched(raw) => raw.backend_of(t),
            Self::Alone(alone) => alone.backend,
        }
    }

    /// Bytes of compute memory on `backend`, which is one of the scheduler's.
    pub(super) fn buffer_size(&self, backend: &Backend) -> Result<usize> {
        match self {
            Self::Sched(raw) => raw.buffer_size(backend),
            Self::Alone(alone) => alone.allocator.buffer_size(0),
        }
    }

    /// Leaks the C objects: freeing them after an interrupted call is not safe.
    pub(super) fn leak(self) {
        match self {
            Self::Sched(raw) => raw.leak(),
            Self::Alone(alone) => alone.allocator.leak(),
        }
    }
}
