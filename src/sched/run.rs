//! A graph that the scheduler has given memory.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml_sys as sys;

use super::observe::{Observed, Observer};
use super::raw::RawSched;
use super::{Sched, Split};
use crate::alloc::bound::Bound;
use crate::backend::{Backend, check_status};
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::graph::{Entry, Graph};
use crate::header::TensorPtr;
use crate::log;
use crate::tensor::Tensor;

/// A graph with memory, for as long as it borrows the scheduler; that is given back when this is dropped
/// (`ggml_backend_sched_reset`).
///
/// Inputs keep their values from one computation to the next; results are those of the last one.
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
    /// [`Error::NotPart`] unless `t` is an input of the graph, [`Error::ElementType`], [`Error::Length`]; of numbers that an
    /// operation uses as indices, [`Error::Index`] and [`Error::Repeated`].
    #[doc(alias = "ggml_backend_tensor_set")]
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        self.bound.set("Allocated::set", t, data)
    }

    /// Sets a part of an input: `data.len()` elements from element `offset` on, in ggml's order. What was never set is
    /// zero.
    ///
    /// # Errors
    ///
    /// As [`Allocated::set`], with [`Error::Range`] where the part does not lie inside the tensor, and [`Error::Param`] where
    /// it must be set as a whole, for [`Context::set_rows`](crate::Context::set_rows).
    pub fn set_at<T: Element>(&mut self, t: Tensor<'_>, offset: usize, data: &[T]) -> Result<()> {
        self.bound.set_at("Allocated::set_at", t, offset, data)
    }

    /// Sets the whole of an input of any type to the bytes of its blocks.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless `t` is an input of the graph, [`Error::Length`].
    pub fn set_bytes(&mut self, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        self.bound.set_bytes("Allocated::set_bytes", t, data)
    }

    /// Computes the graph and waits for the result (`ggml_backend_sched_graph_compute`).
    ///
    /// # Errors
    ///
    /// [`Error::InputNotSet`] where an input has no value yet; [`Error::Status`], [`Error::Exception`] or
    /// [`Error::RpcLost`] where a device fails.
    ///
    /// # Panics
    ///
    /// A panic in the closure of a custom operation goes on from here.
    #[doc(alias = "ggml_backend_sched_graph_compute")]
    pub fn compute(&mut self) -> Result<()> {
        log::public(|| {
            self.bound.check_inputs("Allocated::compute")?;
            self.bound.begin();
            let live = self.bound.live("Allocated::compute")?;
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
    /// `meanwhile` begins as soon as all work has been given to the devices. A CPU, and the scheduler where it copies from
    /// one device to another, work before that: only what other devices have left to do then takes no time of its own.
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
    /// Where the graph uses a [`State`](crate::State), ggml can't be used within `meanwhile`, for it could reach what is
    /// being written: all that would fails with [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// As [`Allocated::compute`]. `meanwhile` is not called where the computation did not get under way.
    ///
    /// # Panics
    ///
    /// A panic in `meanwhile`, or in the closure of a custom operation, goes on from here when the devices are done.
    #[doc(alias = "ggml_backend_sched_graph_compute_async")]
    #[doc(alias = "ggml_backend_sched_synchronize")]
    pub fn compute_async<R>(&mut self, meanwhile: impl FnOnce() -> R) -> Result<R> {
        // A guard that waits when it is dropped would not do: one that is leaked does not, and what devices read would go.
        self.bound.check_inputs("Allocated::compute_async")?;
        self.bound.begin();
        let graph = self.bound.graph_ptr();
        let mut live = self.bound.live("Allocated::compute_async")?;
        let mut status = self.sched.computing(self.bound.graph(), |raw| raw.compute_async(graph));
        let under_way = matches!(status, Ok(sys::GGML_STATUS_SUCCESS));
        live.share();
        let value = under_way.then(|| catch_unwind(AssertUnwindSafe(|| self.bound.run_beside(meanwhile))));
        let done = self.sched.computing(self.bound.graph(), RawSched::synchronize);
        drop(live);
        status = status.and_then(|status| done.map(|()| status));
        self.bound.go_on();
        let finished = self.finish(status);
        match value {
            Some(Ok(value)) => finished.map(|()| value),
            Some(Err(panic)) => resume_unwind(panic),
            None => finished.and(Err(Error::Cancelled)), // it is an error already
        }
    }

    /// Computes the graph and shows results on the way (`ggml_backend_sched_set_eval_callback`).
    ///
    /// `ask` is called for each operation before it runs; for those that it answers `true`, `see` is called when they have
    /// run. Operations are computed in groups that end at the ones asked for, so asking for few costs little. `see` may
    /// stop the computation. Within both closures, [`Observed::get`] is the only call into ggml that doesn't fail with
    /// [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] where `see` stopped it; else as [`Allocated::compute`].
    ///
    /// # Panics
    ///
    /// A panic in either closure stops the computation and goes on from here, as does one of a custom operation.
    #[doc(alias = "ggml_backend_sched_set_eval_callback")]
    pub fn compute_with(
        &mut self,
        ask: impl FnMut(Tensor<'_>) -> bool,
        see: impl FnMut(Observed<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.bound.check_inputs("Allocated::compute_with")?;
        for backend in &self.sched.backends {
            let why = "several devices that work as one compute a graph as a whole";
            meta::before_use("Allocated::compute_with", backend.device(), why)?;
        }
        self.bound.begin();
        let graph = self.bound.graph_ptr();
        let observer = Observer::new(ask, see);
        let live = self.bound.live("Allocated::compute_with")?;
        let status = self.sched.computing(self.bound.graph(), |raw| observer.compute(raw, graph));
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

    /// Reads a tensor: a result, an input, or anything marked with [`Context::output`](crate::Context::output) before the
    /// graph was made. Elements come in ggml's order, whatever the strides.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] and [`Error::NotKept`] for tensors whose values are not there, [`Error::NotComputed`] before the
    /// first computation, [`Error::ElementType`].
    #[doc(alias = "ggml_backend_tensor_get")]
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.bound.get("Allocated::get", t)
    }

    /// [`Allocated::get`] of a contiguous tensor into memory that is there already.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`]; [`Error::Length`], and [`Error::Shape`] where the tensor is not contiguous.
    pub fn get_into<T: Element>(&self, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        self.bound.get_into("Allocated::get_into", t, out)
    }

    /// [`Allocated::get`] of a contiguous tensor of any type, as the bytes of its blocks.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`]; [`Error::Shape`] where the tensor is not contiguous.
    pub fn get_bytes(&self, t: Tensor<'_>) -> Result<Vec<u8>> {
        self.bound.get_bytes("Allocated::get_bytes", t)
    }

    /// The number of parts that the graph was split into (`ggml_backend_sched_get_n_splits`).
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub fn n_splits(&self) -> usize {
        self.sched.raw.as_ref().map_or(0, RawSched::n_splits)
    }

    /// How many copies there are of each input and of what is copied between devices (`ggml_backend_sched_get_n_copies`):
    /// one, unless the scheduler was made with [`SchedBuilder::parallel`](crate::SchedBuilder::parallel).
    #[doc(alias = "ggml_backend_sched_get_n_copies")]
    pub fn n_copies(&self) -> usize {
        self.sched.raw.as_ref().map_or(1, RawSched::n_copies)
    }

    /// The parts that the graph was split into, in the order in which they run, each with what is copied to its device.
    pub fn splits(&self) -> Vec<Split<'_>> {
        let copy_of = |e: &Entry, slot| self.bound.placement().ok()?.copy_of(e, slot);
        super::observe::splits(self.bound.graph(), |t| self.backend_of_ptr(t), copy_of)
    }

    /// The backend that a tensor of the graph was given to (`ggml_backend_sched_get_tensor_backend`).
    #[doc(alias = "ggml_backend_sched_get_tensor_backend")]
    pub fn backend_of(&self, t: Tensor<'_>) -> Option<&Backend> {
        self.bound.graph().position(t.ptr())?;
        self.backend_of_ptr(t.ptr())
    }

    #[cfg(feature = "tools")]
    pub(super) fn backends(&self) -> &[Backend] {
        &self.sched.backends
    }

    pub(super) fn graph(&self) -> &'s Graph<'c> {
        self.bound.graph()
    }

    /// The graph in the DOT language, with the backend of each operation and each leaf's (`ggml_graph_dump_dot`).
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

    /// Bytes of memory for computations that the scheduler holds on each backend, in their order
    /// (`ggml_backend_sched_get_buffer_size`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] where ggml fails.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    pub fn buffer_sizes(&self) -> Result<Vec<usize>> {
        let raw = self.sched.raw.as_ref().ok_or(Error::Poisoned { object: "scheduler" })?;
        self.sched.backends.iter().map(|b| raw.buffer_size(b)).collect()
    }
}

impl Drop for Allocated<'_, '_> {
    fn drop(&mut self) {
        // What may be put back stays allocated for the scheduler, which then looks at it again only to compute.
        let keep = self.sched.plan.is_recorded();
        // Asynchronous work must not outlive the memory's owner. A failure is met again by the next call.
        let _done = self.sched.computing(self.bound.graph(), |raw| {
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
