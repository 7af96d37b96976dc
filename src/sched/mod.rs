//! The scheduler: one graph over several devices.

mod builder;
mod observe;
mod profile;
mod raw;
mod run;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use ggml_sys as sys;

use crate::alloc::bound::Bound;
use crate::alloc::{check, plan::Plan};
use crate::backend::Backend;
use crate::buffer::out_of_memory;
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::{guard, log};
use raw::RawSched;

pub use builder::SchedBuilder;
pub use observe::{Observed, Split, SplitInput};
pub use profile::{Profile, Timing};
pub use run::Allocated;

/// Splits graphs over several backends, gives them memory, copies tensors between devices and computes
/// (`ggml_backend_sched_t`).
///
/// Each operation runs where its weights lie, or on the first backend that supports it. The scheduler sizes itself by the
/// graphs it is given, and plans anew whenever a graph differs from the one before.
///
/// # Why `&mut`?
///
/// A scheduler has one graph at a time: [`Sched::alloc`] borrows it for as long as that graph has memory.
#[doc(alias = "ggml_backend_sched_t")]
pub struct Sched {
    // Field order is drop order: the scheduler goes before its backends.
    raw: Option<RawSched>,
    backends: Vec<Backend>,
    devices: Vec<Device>,
    op_offload: bool,
    plan: Plan,
    poisoned: bool,
}

impl Sched {
    /// Begins to make a scheduler.
    pub fn builder() -> SchedBuilder {
        SchedBuilder::new()
    }

    fn new(backends: Vec<Backend>, op_offload: bool) -> Self {
        let devices = backends.iter().map(Backend::device).collect();
        Self { raw: None, backends, devices, op_offload, plan: Plan::default(), poisoned: false }
    }

    /// The backends, first the one with the highest priority (`ggml_backend_sched_get_backend`).
    #[doc(alias = "ggml_backend_sched_get_backend")]
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// A backend, to change its settings.
    pub fn backend_mut(&mut self, i: usize) -> Option<&mut Backend> {
        self.backends.get_mut(i)
    }

    /// How often memory was planned: once for each graph that differs from the one before. A decoder whose shapes stay the
    /// same plans once.
    pub fn plans(&self) -> usize {
        self.plan.plans()
    }

    /// Plans memory for graphs like this one, so that allocating one later needs no more (`ggml_backend_sched_reserve`).
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`].
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, graph: &Graph<'_>) -> Result<()> {
        let bound = Bound::new("Sched::reserve", graph)?;
        self.prepare(&bound).map(|_planned| ())
    }

    /// Gives `graph` memory on the devices where it will run (`ggml_backend_sched_alloc_graph`). The result is the only
    /// way to set its inputs, compute it and read what comes out; when it is dropped, the memory is free for the next
    /// graph.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] where a tensor of the graph is allocated elsewhere, [`Error::Unsupported`] where no backend can
    /// run an operation or reach its weights, [`Error::OutOfMemory`], [`Error::Poisoned`] after an earlier failure
    /// inside ggml.
    #[doc(alias = "ggml_backend_sched_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<Allocated<'s, 'c>> {
        let mut bound = Bound::new("Sched::alloc", graph)?;
        let planned = self.prepare(&bound)?;
        if self.plan.put_back(&mut bound) {
            return Ok(Allocated::new(self, bound));
        }
        self.plan.forget();
        let mark = log::mark();
        let cpu = self.cpu();
        let done = self.with_raw(|raw| {
            raw.reset()?;
            raw.pin(bound.graph().closures(), cpu)?;
            raw.alloc(bound.graph_ptr())
        })?;
        if !done {
            return Err(self.out_of_memory(mark));
        }
        self.check_alive()?;
        // Other devices remember graphs by numbers that only an allocation renews, or initialise tensors.
        if self.devices.iter().all(|d| d.runs_closures()) {
            self.plan.record(&mut bound);
        }
        let run = Allocated::new(self, bound);
        // Where operations run depends on no more than the plan does.
        if planned {
            run.check_assignments()?;
        }
        Ok(run)
    }

    /// Makes the plan fit the graph, and checks that the graph can run at all. Returns whether there is a new plan.
    fn prepare(&mut self, bound: &Bound<'_, '_>) -> Result<bool> {
        if self.poisoned {
            return Err(Error::Poisoned { object: "scheduler" });
        }
        self.check_alive()?;
        let graph = bound.graph();
        if self.raw.is_some() && self.plan.fits(graph) {
            return Ok(false);
        }
        self.plan.clear();
        check::runnable(graph, &self.devices)?;
        self.fit(graph)?;
        let mark = log::mark();
        let cpu = self.cpu();
        let done = self.with_raw(|raw| {
            raw.reset()?;
            raw.pin(bound.graph().closures(), cpu)?;
            raw.reserve(bound.graph_ptr())
        });
        bound.restore();
        if !done? {
            return Err(self.out_of_memory(mark));
        }
        self.check_alive()?;
        self.plan.set(graph);
        Ok(true)
    }

    /// The CPU, which is the last ([`SchedBuilder::build`]).
    fn cpu(&self) -> *mut sys::ggml_backend {
        self.backends.last().map_or(ptr::null_mut(), Backend::as_ptr)
    }

    /// Makes the C scheduler large enough. Its table takes all tensors of a graph and asserts that there is room; its
    /// other tables take some 20 KB of address space for each.
    fn fit(&mut self, graph: &Graph<'_>) -> Result<()> {
        let need = graph.entries().len() + graph.entries().len() / 4 + 64;
        if self.raw.as_ref().is_some_and(|raw| raw.capacity >= need) {
            return Ok(());
        }
        self.raw = None;
        let capacity = need.next_multiple_of(1024);
        // SAFETY: the backends are dropped after the scheduler (field order), and never replaced.
        self.raw = Some(unsafe { RawSched::new(&self.backends, capacity, false, self.op_offload) }?);
        Ok(())
    }

    /// Calls into the C scheduler. A failure inside it leaves it in an unknown state: it is not used again.
    fn with_raw<R>(&mut self, f: impl FnOnce(&mut RawSched) -> Result<R>) -> Result<R> {
        let raw = self.raw.as_mut().ok_or(Error::Poisoned { object: "scheduler" })?;
        let result = catch_unwind(AssertUnwindSafe(|| f(raw)));
        if guard::interrupted(&result) {
            self.poison();
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Gives up the C objects without freeing them.
    fn poison(&mut self) {
        self.poisoned = true;
        if let Some(raw) = self.raw.take() {
            raw.leak();
        }
        self.backends.iter_mut().for_each(Backend::poison);
    }

    /// The error for a plan that could not be had, with what ggml logged since `mark`.
    ///
    /// The C scheduler's allocator then looks planned but has no memory, and where two backends share a buffer it still
    /// has the pointer that was freed (H21). Planning a graph that surely fits puts that right.
    fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.plan.clear();
        if !self.plan_least().unwrap_or(false)
            && let Some(raw) = self.raw.take()
        {
            raw.leak();
        }
        match self.devices.first() {
            Some(d) => out_of_memory(d.buffer_type(), None, log),
            None => Error::Poisoned { object: "scheduler" },
        }
    }

    /// Plans the smallest graph there is.
    fn plan_least(&mut self) -> Result<bool> {
        let ctx = Context::new();
        let least = ctx.graph([ctx.neg(ctx.input("", DType::F32, [1])?)?])?;
        let bound = Bound::new("Sched::alloc", &least)?;
        self.with_raw(|raw| {
            raw.reset()?;
            raw.reserve(bound.graph_ptr())
        })
    }

    fn check_alive(&self) -> Result<()> {
        self.devices.iter().try_for_each(|d| d.check_alive())
    }
}

impl fmt::Debug for Sched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sched")
            .field("backends", &self.backends)
            .field("poisoned", &self.poisoned)
            .finish_non_exhaustive()
    }
}
