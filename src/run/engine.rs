//! How an allocated graph is computed: by one backend, or by ggml's scheduler.

use ggml_sys as sys;

use super::threads;
use crate::alloc::plan::Plan;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::guard;
use crate::guard::guarded;
use crate::header::TensorPtr;
use crate::sched::EngineMut;

impl EngineMut<'_> {
    pub(super) fn backends(&self) -> &[Backend] {
        match self {
            Self::One(_, backend) => std::slice::from_ref(backend),
            Self::Many(splitter) => &splitter.backends,
        }
    }

    /// Chooses how many threads of the CPU compute the graph.
    pub(super) fn choose_threads(&mut self, graph: &Graph<'_>) -> Result<()> {
        let backends = match self {
            Self::One(_, backend) => std::slice::from_mut(*backend),
            Self::Many(splitter) => &mut splitter.backends,
        };
        backends.iter_mut().try_for_each(|b| threads::choose(b, graph))
    }

    /// The backend, if there is only one; else an error.
    pub(super) fn only(&mut self, call: &'static str) -> Result<&mut Backend> {
        match self {
            Self::One(_, backend) => Ok(backend),
            Self::Many(_) => {
                let why = "the graph is allocated for several backends, or with pipeline copies; use a GraphAllocator";
                Err(Error::unsupported(call, [], "Sched", why))
            }
        }
    }

    pub(super) fn plan_mut(&mut self) -> &mut Plan {
        match self {
            Self::One(allocator, _) => &mut allocator.plan,
            Self::Many(splitter) => &mut splitter.plan,
        }
    }

    /// Computes the allocated graph, whose headers have its placement, and waits for the result.
    pub(super) fn compute(&mut self, graph: &Graph<'_>) -> Result<sys::ggml_status> {
        match self {
            Self::One(_, backend) => threads::compute(backend, graph),
            Self::Many(splitter) => splitter.raw()?.compute(graph.as_ptr()),
        }
    }

    /// Starts to compute the allocated graph. The caller waits for the backends before it uses or frees anything of the
    /// graph.
    pub(super) fn compute_async(&mut self, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        match self {
            Self::One(_, backend) => {
                let raw = backend.as_ptr();
                // SAFETY: backend and graph are live, as for `compute`; what the device uses lives until the caller has
                // waited.
                unsafe { guarded!(compute, sys::ggml_backend_graph_compute_async(raw, graph)) }
            }
            Self::Many(splitter) => splitter.raw()?.compute_async(graph),
        }
    }

    /// Waits until all backends are idle. Never panics.
    pub(super) fn wait_idle(&mut self) -> Result<()> {
        match self {
            Self::One(_, backend) => backend.wait_idle(),
            Self::Many(splitter) => splitter.wait_idle(),
        }
    }

    /// Leaks the backend or scheduler that was interrupted, if the result is a failure inside C.
    pub(super) fn poison_if_interrupted<R>(&mut self, result: &Result<R>) {
        match self {
            Self::One(_, backend) if guard::interrupted(result) => _ = backend.poison(),
            Self::One(..) => {}
            Self::Many(splitter) => splitter.poison_if_interrupted(result),
        }
    }

    /// Ends the use of the allocated graph. If there is only one backend, there is nothing to do: it has been waited
    /// for, and its allocator holds no graph.
    pub(super) fn release(&mut self) {
        if let Self::Many(splitter) = self {
            splitter.release();
        }
    }

    /// The backend that a tensor of the allocated graph was assigned to.
    pub(super) fn backend_of(&self, t: TensorPtr) -> Option<&Backend> {
        match self {
            Self::One(_, backend) => Some(backend),
            Self::Many(splitter) => splitter.backend_of(t),
        }
    }
}
