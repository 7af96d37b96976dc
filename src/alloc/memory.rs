//! A graph to which a [`GraphAllocator`] gave memory.

use std::fmt;

use ggml_sys as sys;

use super::GraphAllocator;
use super::bound::Bound;
use crate::backend::{Backend, check_status};
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::rules::run as check;
use crate::tensor::Tensor;
use crate::{guard, log};

/// A graph with memory, which borrows its [`GraphAllocator`].
///
/// Inputs keep their values between computations; results are those of the last one.
pub struct GraphMemory<'s, 'c> {
    pub(super) allocator: &'s mut GraphAllocator,
    pub(super) bound: Bound<'s, 'c>,
}

impl GraphMemory<'_, '_> {
    /// Sets the whole of an input (`ggml_backend_tensor_set`).
    ///
    /// # Errors
    ///
    /// As [`Allocated::set`](crate::Allocated::set).
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        self.bound.set("GraphMemory::set", t, data)
    }

    /// Sets the whole of an input of any type from raw bytes, in ggml's block layout.
    ///
    /// # Errors
    ///
    /// As [`Allocated::set_bytes`](crate::Allocated::set_bytes).
    pub fn set_bytes(&mut self, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        self.bound.set_bytes("GraphMemory::set_bytes", t, data)
    }

    /// Computes the graph and waits for the result (`ggml_backend_graph_compute`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend's device can use the allocator's memory and run the graph;
    /// [`Error::InputNotSet`] if an input has no value yet; [`Error::Status`] or [`Error::Exception`] if the device
    /// fails.
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_graph_compute")]
    pub fn compute(&mut self, backend: &mut Backend) -> Result<()> {
        log::public(|| self.compute_on(backend))
    }

    fn compute_on(&mut self, backend: &mut Backend) -> Result<()> {
        const CALL: &str = "ggml_backend_graph_compute";
        self.bound.check_inputs("GraphMemory::compute")?;
        self.check_backend(backend)?;
        backend.serve(self.allocator.plan.id())?;
        let _live = self.bound.begin(CALL)?;
        let (raw, graph) = (backend.as_ptr(), self.bound.graph_ptr());
        run(&self.bound, backend, CALL, || {
            // SAFETY: backend and graph are live; all tensors have memory that the device can use and operations that it
            // supports (checked when allocated, or above). The call waits, so C keeps nothing.
            unsafe { sys::ggml_backend_graph_compute(raw, graph) }
        })?;
        self.bound.set_computed();
        Ok(())
    }

    /// Starts to compute the graph (`ggml_backend_graph_compute_async`), calls `meanwhile`, and waits for the result,
    /// even if `meanwhile` panics. A device without asynchronous execution finishes before `meanwhile` starts.
    ///
    /// # Errors
    ///
    /// As [`GraphMemory::compute`]. If the computation can't be started, `meanwhile` is not called.
    ///
    /// # Panics
    ///
    /// As [`GraphMemory::compute`].
    #[doc(alias = "ggml_backend_graph_compute_async")]
    pub fn compute_async<R>(&mut self, backend: &mut Backend, meanwhile: impl FnOnce() -> R) -> Result<R> {
        const CALL: &str = "ggml_backend_graph_compute_async";
        self.bound.check_inputs("GraphMemory::compute_async")?;
        self.check_backend(backend)?;
        backend.serve(self.allocator.plan.id())?;
        let device = backend.device();
        let mut live = self.bound.begin(CALL)?;
        let alone = meta::lock_if_meta(CALL, std::iter::once(device), false)?;
        let graph = self.bound.graph_ptr();
        let mut work = Underway(Some(backend));
        let status = guard::compute(CALL, || {
            // SAFETY: as in `compute`. What the device uses is borrowed until this call ends, and the drop of `work`
            // waits for the device before that, even during a panic.
            unsafe { sys::ggml_backend_graph_compute_async(work.backend(), graph) }
        });
        drop(alone);
        live.share();
        let result = matches!(status, Ok(sys::GGML_STATUS_SUCCESS)).then(|| self.bound.run_beside(meanwhile));
        let settled = work.settle();
        drop(work);
        drop(live);
        if status.is_err() {
            backend.poison();
        }
        end(&self.bound, backend, CALL, status.and_then(|status| settled.map(|()| status)))?;
        self.bound.set_computed();
        result.ok_or(Error::Status { call: CALL, status: sys::GGML_STATUS_FAILED, log: Box::default() })
    }

    /// Checks that the backend can use the graph's memory and run its operations.
    pub(super) fn check_backend(&self, backend: &Backend) -> Result<()> {
        backend.check()?;
        let device = backend.device();
        self.allocator.bufts.iter().try_for_each(|&buft| check::memory(device, buft))?;
        if Some(device) != self.allocator.device() {
            check::runnable(self.bound.graph().entries(), &[device])?;
        }
        Ok(())
    }

    /// Reads a result, an input or an output tensor (`ggml_backend_tensor_get`).
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`](crate::Allocated::get).
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.bound.get("GraphMemory::get", t)
    }
}

/// A computation that may still run: dropping this waits. If starting or waiting failed, the backend is poisoned.
struct Underway<'b>(Option<&'b mut Backend>);

impl Underway<'_> {
    fn backend(&self) -> *mut sys::ggml_backend {
        self.0.as_deref().map_or(std::ptr::null_mut(), Backend::as_ptr)
    }

    fn settle(&mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), Backend::settle)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            log::say(::log::Level::Error, format!("could not wait for a computation to finish: {error}"));
        }
    }
}

/// Runs `f`, which computes the graph or a part of it on `backend`, after [`Bound::begin`]. Whether its results are there, the
/// caller says.
pub(crate) fn run(
    bound: &Bound<'_, '_>,
    backend: &mut Backend,
    call: &'static str,
    f: impl FnOnce() -> sys::ggml_status,
) -> Result<()> {
    let alone = meta::lock_if_meta(call, std::iter::once(backend.device()), false)?;
    let status = guard::compute(call, f).inspect_err(|_| backend.poison());
    drop(alone);
    end(bound, backend, call, status)
}

/// Ends a computation, after C returned from it and the device is idle.
fn end(bound: &Bound<'_, '_>, backend: &Backend, call: &'static str, status: Result<sys::ggml_status>) -> Result<()> {
    // Resumes panics of the graph's closures and of the backend's.
    bound.go_on();
    backend.resume_abort();
    let status = status?;
    backend.device().check_alive()?;
    check_status(call, status)
}

impl fmt::Debug for GraphMemory<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphMemory").field("graph", self.bound.graph()).finish_non_exhaustive()
    }
}
