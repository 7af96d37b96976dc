//! A graph to which the scheduler gave memory.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml_sys as sys;

use super::engine::Engine;
use super::observe::{Observed, Observer};
use super::{Sched, Split};
use crate::alloc::bound::Bound;
use crate::backend::{Backend, check_status};
use crate::device::meta;
use crate::dtype::Element;
use crate::entries::Entry;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::tensor::Tensor;
use crate::{callback, log};

/// A graph with memory, which borrows its scheduler. Dropping it frees the memory for the next graph
/// (`ggml_backend_sched_reset`).
///
/// Inputs keep their values between computations; results are those of the last one.
#[doc(alias = "ggml_backend_sched_reset")]
pub struct Allocated<'s, 'c> {
    sched: &'s mut Sched,
    bound: Bound<'s, 'c>,
}

impl<'s, 'c> Allocated<'s, 'c> {
    #[cfg(test)]
    pub(super) fn live_for_tests(&self) -> crate::alloc::placement::Live<'s, 'c> {
        self.bound.live("test").unwrap()
    }

    pub(super) fn new(sched: &'s mut Sched, bound: Bound<'s, 'c>) -> Self {
        Self { sched, bound }
    }

    /// Sets the whole of an input (`ggml_backend_tensor_set`).
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless `t` is an input of the graph; [`Error::ElementType`]; [`Error::Length`]; for indices,
    /// [`Error::Index`] if one is out of bounds and [`Error::Repeated`] if they must be distinct.
    #[doc(alias = "ggml_backend_tensor_set")]
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        self.bound.set("Allocated::set", t, data)
    }

    /// Sets a part of an input: `data.len()` elements from element `offset` on, in ggml's order. Elements that were
    /// never set are zero.
    ///
    /// # Errors
    ///
    /// As [`Allocated::set`]; [`Error::Range`] if the part exceeds the tensor; [`Error::Param`] for indices of
    /// [`Context::set_rows`](crate::Context::set_rows), which must be set as a whole.
    pub fn set_at<T: Element>(&mut self, t: Tensor<'_>, offset: usize, data: &[T]) -> Result<()> {
        self.bound.set_at("Allocated::set_at", t, offset, data)
    }

    /// Sets the whole of an input of any type from raw bytes, in ggml's block layout.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless `t` is an input of the graph; [`Error::Length`]; for indices, as [`Allocated::set`].
    pub fn set_bytes(&mut self, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        self.bound.set_bytes("Allocated::set_bytes", t, data)
    }

    /// Computes the graph and waits for the result (`ggml_backend_sched_graph_compute`).
    ///
    /// # Errors
    ///
    /// [`Error::InputNotSet`] if an input has no value yet; [`Error::Status`], [`Error::Exception`] or
    /// [`Error::RpcLost`] if a device fails.
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_sched_graph_compute")]
    pub fn compute(&mut self) -> Result<()> {
        log::public(|| {
            self.bound.check_inputs("Allocated::compute")?;
            let live = self.bound.begin("Allocated::compute")?;
            let graph = self.bound.graph_ptr();
            let status = self.sched.computing(self.bound.graph(), |raw| raw.compute(graph));
            drop(live);
            self.bound.go_on();
            self.finish(status)
        })
    }

    /// Computes the graph while `meanwhile` runs on the calling thread, and waits for both
    /// (`ggml_backend_sched_graph_compute_async`, `ggml_backend_sched_synchronize`).
    ///
    /// `meanwhile` starts when all work was submitted. A CPU backend, and the scheduler's copies between devices,
    /// finish before that: only the remaining work of other devices overlaps with `meanwhile`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// # let ctx = Context::new();
    /// # let x = ctx.input("x", DType::F32, [2])?;
    /// # let y = ctx.sqr(x)?;
    /// # let graph = ctx.graph([y])?;
    /// # let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[2.0_f32, 3.0])?;
    /// let next = run.compute_async(|| [4.0_f32, 5.0])?; // prepares the next input
    /// assert_eq!(run.get::<f32>(y)?, [4.0, 9.0]);
    /// run.set(x, &next)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the graph uses a [`State`](crate::State), `meanwhile` can't call ggml, since it could reach memory that is
    /// being written: such calls fail with [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// As [`Allocated::compute`]. If the computation can't be started, `meanwhile` is not called.
    ///
    /// # Panics
    ///
    /// Resumes a panic of `meanwhile` or of a custom operation's closure, once the devices are idle.
    #[doc(alias = "ggml_backend_sched_graph_compute_async")]
    #[doc(alias = "ggml_backend_sched_synchronize")]
    pub fn compute_async<R>(&mut self, meanwhile: impl FnOnce() -> R) -> Result<R> {
        // Not a guard that waits on drop: if the user leaked it, the devices' memory would be freed while in use.
        self.bound.check_inputs("Allocated::compute_async")?;
        let graph = self.bound.graph_ptr();
        let mut live = self.bound.begin("Allocated::compute_async")?;
        let mut status = self.sched.computing(self.bound.graph(), |raw| raw.compute_async(graph));
        let under_way = matches!(status, Ok(sys::GGML_STATUS_SUCCESS));
        live.share();
        let value = under_way.then(|| catch_unwind(AssertUnwindSafe(|| self.bound.run_beside(meanwhile))));
        let done = self.sched.settling(Engine::synchronize);
        drop(live);
        status = status.and_then(|status| done.map(|()| status));
        let finished = catch_unwind(AssertUnwindSafe(|| {
            self.bound.go_on();
            self.finish(status)
        }));
        match (value, finished) {
            // Dropped on the way of the other, a payload whose destructor panics would end the process.
            (Some(Err(panic)), Err(other)) => {
                callback::forget(other);
                resume_unwind(panic)
            }
            (Some(Err(panic)), Ok(_)) | (_, Err(panic)) => resume_unwind(panic),
            (Some(Ok(value)), Ok(finished)) => finished.map(|()| value),
            (None, Ok(finished)) => finished.and(Err(Error::Cancelled)), // it is an error already
        }
    }

    /// Computes the graph and shows results during the computation (`ggml_backend_sched_set_eval_callback`).
    ///
    /// `ask` is called before each operation. If it returns `true`, `see` is called with the operation's result.
    /// Operations run in groups that end at those asked for, so observing few costs little. `see` can stop the
    /// computation. In both closures, [`Observed::get`] is the only call into ggml that doesn't fail with
    /// [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if `see` stopped it; otherwise as [`Allocated::compute`].
    ///
    /// # Panics
    ///
    /// A panic in either closure, or in a custom operation's, stops the computation and resumes here.
    #[doc(alias = "ggml_backend_sched_set_eval_callback")]
    pub fn compute_with(
        &mut self,
        ask: impl FnMut(Tensor<'_>) -> bool,
        see: impl FnMut(Observed<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.bound.check_inputs("Allocated::compute_with")?;
        for backend in &self.sched.backends {
            let why = "a meta device computes whole graphs only, not single operations; use `compute` and outputs";
            meta::before_use("Allocated::compute_with", backend.device(), why)?;
        }
        let graph = self.bound.graph_ptr();
        let observer = Observer::new(ask, see);
        let live = self.bound.begin("Allocated::compute_with")?;
        let status = self.sched.observed(self.bound.graph(), |raw| observer.compute(raw, graph));
        drop(live);
        observer.finish();
        self.bound.go_on();
        self.finish(status)
    }

    fn finish(&mut self, status: Result<sys::ggml_status>) -> Result<()> {
        if !matches!(status, Ok(sys::GGML_STATUS_SUCCESS)) {
            self.sched.plan.forget();
        }
        let status = status?;
        self.sched.backends.iter().for_each(Backend::resume_abort);
        self.sched.check_alive()?;
        check_status("ggml_backend_sched_graph_compute", status)?;
        self.bound.set_computed();
        Ok(())
    }

    /// Reads a result, an input, or a tensor marked by [`Context::output`](crate::Context::output) before the graph was
    /// made. Elements come in ggml's order (`ne[0]` innermost), whatever the strides.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] if `t` is not part of the graph; [`Error::NotKept`] if its memory is reused;
    /// [`Error::NotComputed`] before the first computation; [`Error::InputNotSet`]; [`Error::ElementType`].
    #[doc(alias = "ggml_backend_tensor_get")]
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.bound.get("Allocated::get", t)
    }

    /// Reads a contiguous tensor as [`Allocated::get`] does, into `out`.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`]; [`Error::Length`]; [`Error::Shape`] if the tensor is not contiguous.
    pub fn get_into<T: Element>(&self, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        self.bound.get_into("Allocated::get_into", t, out)
    }

    /// Reads a contiguous tensor of any type as [`Allocated::get`] does, as raw bytes in ggml's block layout.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`], except for [`Error::ElementType`]; [`Error::Shape`] if the tensor is not contiguous.
    pub fn get_bytes(&self, t: Tensor<'_>) -> Result<Vec<u8>> {
        self.bound.get_bytes("Allocated::get_bytes", t)
    }

    /// The number of splits of the graph (`ggml_backend_sched_get_n_splits`).
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub fn n_splits(&self) -> usize {
        self.sched.raw.as_ref().map_or(0, Engine::n_splits)
    }

    /// How many copies each input and each tensor copied between devices has
    /// (`ggml_backend_sched_get_n_copies`). 1, unless the scheduler was built with
    /// [`SchedBuilder::parallel`](crate::SchedBuilder::parallel).
    #[doc(alias = "ggml_backend_sched_get_n_copies")]
    pub fn n_copies(&self) -> usize {
        self.sched.raw.as_ref().map_or(1, Engine::n_copies)
    }

    /// The splits of the graph in execution order, each with the tensors that are copied to its device.
    pub fn splits(&self) -> Vec<Split<'_>> {
        let copy_of = |e: &Entry, slot| self.bound.placement().ok()?.copy_of(e, slot);
        super::observe::splits(self.bound.graph(), |t| self.backend_of_ptr(t), copy_of)
    }

    /// The backend that a tensor of the graph was assigned to (`ggml_backend_sched_get_tensor_backend`).
    #[doc(alias = "ggml_backend_sched_get_tensor_backend")]
    pub fn backend_of(&self, t: Tensor<'_>) -> Option<&Backend> {
        self.bound.graph().entries().position(t.ptr())?;
        self.backend_of_ptr(t.ptr())
    }

    #[cfg(feature = "tools")]
    pub(super) fn backends(&self) -> &[Backend] {
        &self.sched.backends
    }

    pub(super) fn graph(&self) -> &'s Graph<'c> {
        self.bound.graph()
    }

    /// The graph in the DOT language, with the backend of each operation and leaf (`ggml_graph_dump_dot`).
    pub fn to_dot(&self) -> String {
        let backends: Vec<_> = self.sched.backends.iter().map(Backend::name).collect();
        self.graph().dot(&backends, |t| {
            let backend = self.backend_of_ptr(t)?;
            self.sched.backends.iter().position(|b| std::ptr::eq(b, backend))
        })
    }

    pub(super) fn backend_of_ptr(&self, t: TensorPtr) -> Option<&Backend> {
        self.sched.backend_of(t)
    }

    /// Bytes of compute memory that the scheduler holds on each backend, in the order of [`Sched::backends`]
    /// (`ggml_backend_sched_get_buffer_size`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] if ggml fails.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    pub fn buffer_sizes(&self) -> Result<Vec<usize>> {
        let raw = self.sched.raw.as_ref().ok_or(Error::Poisoned { object: "scheduler" })?;
        self.sched.backends.iter().map(|b| raw.buffer_size(b)).collect()
    }
}

impl Drop for Allocated<'_, '_> {
    fn drop(&mut self) {
        // If its placement may be reused, the graph stays allocated in C, which reads it again only to compute.
        let keep = self.sched.plan.is_recorded();
        // Asynchronous work must not outlive the memory's owner. A failure is met again by the next call.
        let _done = self.sched.settling(|raw| {
            raw.synchronize()?;
            if keep { Ok(()) } else { raw.reset() }
        });
    }
}

impl fmt::Debug for Allocated<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocated").field("graph", self.bound.graph()).field("splits", &self.n_splits()).finish()
    }
}
