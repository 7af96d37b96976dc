//! The scheduler: one graph over several devices.

mod builder;
mod divided;
mod failure;
mod observe;
#[cfg(feature = "tools")]
mod picture;
mod pins;
mod profile;
mod raw;
mod run;

use std::fmt;

use ggml_sys as sys;

use crate::alloc::bound::Bound;
use crate::alloc::placement::AsBuilt;
use crate::alloc::plan::Plan;
use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::rules::run as check;
use crate::tensor::Tensor;
use crate::{list, log};
use builder::Settings;
use pins::Pins;
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
#[doc(alias = "ggml_backend_sched_free")]
pub struct Sched {
    // Field order is drop order: the scheduler goes before its backends.
    raw: Option<RawSched>,
    backends: Vec<Backend>,
    settings: Settings,
    plan: Plan,
    /// What was pinned when the plan was made.
    pins: Pins,
    /// What is pinned to the last backend because a device before it can't be given it.
    kept_off: Vec<usize>,
    /// Whether the devices that the plan gives operations to were found to have kernels for them.
    checked: bool,
    poisoned: bool,
}

impl Sched {
    /// Begins to make a scheduler.
    pub fn builder() -> SchedBuilder {
        SchedBuilder::new()
    }

    fn new(backends: Vec<Backend>, settings: Settings) -> Self {
        Self {
            raw: None,
            backends,
            settings,
            plan: Plan::default(),
            pins: Pins::default(),
            kept_off: Vec::new(),
            checked: false,
            poisoned: false,
        }
    }

    /// The backends, first the one with the highest priority (`ggml_backend_sched_get_backend`).
    #[doc(alias = "ggml_backend_sched_get_backend")]
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The kinds of memory that the backends compute in, in their order (`ggml_backend_sched_get_buffer_type`).
    #[doc(alias = "ggml_backend_sched_get_buffer_type")]
    pub fn buffer_types(&self) -> Vec<BufferType> {
        self.settings.buffer_types(&self.backends)
    }

    /// A backend, to change its settings, or to put another one in its place.
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
        log::public(|| self.prepare(&Bound::new("Sched::reserve", graph)?, Pins::default()))
    }

    /// [`Sched::reserve`] for [`Sched::alloc_pinned`].
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc_pinned`], but for what is known only when the graph has its memory.
    pub fn reserve_pinned(&mut self, graph: &Graph<'_>, pins: &[(Tensor<'_>, usize)]) -> Result<()> {
        const CALL: &str = "Sched::reserve_pinned";
        let pins = Pins::new(CALL, graph, self.backends.len(), pins)?;
        log::public(|| self.prepare(&Bound::new(CALL, graph)?, pins))
    }

    /// The bytes of memory that computing `graph` would take on each backend, in their order, without taking them
    /// (`ggml_backend_sched_reserve_size`). Backends with one kind of memory share it; it is counted for the first.
    ///
    /// Nothing is pinned: a closure, which runs on the CPU, may be counted for another device. Memory that the scheduler
    /// has is given back where it would not do for this graph.
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`], but for [`Error::OutOfMemory`].
    #[doc(alias = "ggml_backend_sched_reserve_size")]
    pub fn reserve_size(&mut self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        log::public(|| self.sizes(&Bound::new("Sched::reserve_size", graph)?))
    }

    fn sizes(&mut self, bound: &Bound<'_, '_>) -> Result<Vec<usize>> {
        self.check()?;
        self.forget_plan();
        self.fit_for(bound.graph())?;
        let mut sizes = vec![0; self.backends.len()];
        let as_built = AsBuilt::after(bound.graph());
        self.planning(|raw| {
            raw.reserve_size(bound.graph_ptr(), &mut sizes)?;
            raw.reset()
        })?;
        drop(as_built);
        self.check_alive()?;
        let bufts = self.buffer_types();
        for (i, buft) in bufts.iter().enumerate() {
            if let Some(size) = sizes.get_mut(i).filter(|_| bufts.iter().take(i).any(|b| b == buft)) {
                *size = 0;
            }
        }
        Ok(sizes)
    }

    /// Gives `graph` memory on the devices where it will run (`ggml_backend_sched_alloc_graph`). The result is the only
    /// way to set its inputs, compute it and read what comes out; when it is dropped, the memory is free for the next
    /// graph.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where no backend can run an operation or reach its weights, [`Error::OutOfMemory`],
    /// [`Error::Poisoned`] after a computation that failed inside ggml, [`Error::Backends`] where a backend was replaced by
    /// one that does not do in its place, [`Error::InUse`] within the closure of an [`Allocated::compute_async`] that uses a
    /// tensor of the graph.
    #[doc(alias = "ggml_backend_sched_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<Allocated<'s, 'c>> {
        log::public(|| self.allocate(Bound::new("Sched::alloc", graph)?, Pins::default()))
    }

    /// [`Sched::alloc`] of a graph some of whose tensors are pinned to backends, by their places among
    /// [`Sched::backends`]: operations run there, and inputs lie there (`ggml_backend_sched_set_tensor_backend`).
    ///
    /// What is pinned differently is planned anew. Closures that are not pinned run on the last backend.
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`]; [`Error::NotPart`] for a tensor that is not part of the graph, [`Error::Param`] for a backend
    /// that there is not or a tensor that is pinned twice, [`Error::Unsupported`] where the device can't run the
    /// operation, the tensor lies in memory of its own or another tensor's, or ggml puts it on a backend of higher
    /// priority with the same kind of memory, as it does even with what is pinned.
    #[doc(alias = "ggml_backend_sched_set_tensor_backend")]
    pub fn alloc_pinned<'s, 'c>(
        &'s mut self,
        graph: &'s Graph<'c>,
        pins: &[(Tensor<'_>, usize)],
    ) -> Result<Allocated<'s, 'c>> {
        const CALL: &str = "Sched::alloc_pinned";
        let pins = Pins::new(CALL, graph, self.backends.len(), pins)?;
        log::public(|| self.allocate(Bound::new(CALL, graph)?, pins))
    }

    fn allocate<'s, 'c>(&'s mut self, mut bound: Bound<'s, 'c>, pins: Pins) -> Result<Allocated<'s, 'c>> {
        self.prepare(&bound, pins)?;
        if self.plan.put_back(&mut bound) {
            return Ok(Allocated::new(self, bound));
        }
        self.plan.forget();
        if self.meta().is_some() {
            self.plan.count(bound.graph());
        }
        let mark = log::mark();
        let graph = bound.graph();
        let pins = self.pinned(graph, &self.pins)?;
        let as_built = AsBuilt::after(graph);
        let done = self.planning(|raw| {
            raw.reset()?;
            raw.pin(&pins)?;
            raw.alloc(bound.graph_ptr())
        })?;
        if !done {
            return Err(self.out_of_memory(mark));
        }
        let noted = self.note(&mut bound);
        drop(as_built);
        if let Err(error) = noted {
            self.planning(RawSched::reset)?;
            return Err(error);
        }
        Ok(Allocated::new(self, bound))
    }

    /// Looks at what the C scheduler did with a graph, while the graph's headers say so.
    fn note(&mut self, bound: &mut Bound<'_, '_>) -> Result<()> {
        self.check_alive()?;
        // Where operations run depends on no more than the plan does.
        if !self.checked {
            self.check_assignments(bound.graph())?;
            self.checked = true;
        }
        // Other devices remember graphs by numbers that only an allocation renews, or initialise tensors; and where there
        // are copies, each allocation takes the next.
        let reusable = !self.settings.parallel && self.backends.iter().all(|b| b.device().runs_closures());
        let whole = self.meta().is_some();
        self.plan.record(bound, reusable, whole)
    }

    /// Checks that each operation was given to a device that has a kernel for it, and that pins were heeded.
    fn check_assignments(&self, graph: &Graph<'_>) -> Result<()> {
        for (i, backend) in self.pins.iter() {
            let (Some(e), Some(wanted)) = (graph.entries().get(i), self.backends.get(backend)) else { continue };
            if self.backend_of(e.ptr).is_none_or(|b| !std::ptr::eq(b, wanted)) {
                return Err(check::moved(wanted.device(), e));
            }
        }
        check::placed(graph, |t| self.backend_of(t).map(Backend::device))
    }

    /// The backend that a tensor of the allocated graph was given to.
    fn backend_of(&self, t: TensorPtr) -> Option<&Backend> {
        let raw = self.raw.as_ref()?.backend_of(t);
        self.backends.iter().find(|b| std::ptr::eq(b.as_ptr(), raw))
    }

    /// Makes the plan fit the graph, and checks that the graph can run at all.
    fn prepare(&mut self, bound: &Bound<'_, '_>, pins: Pins) -> Result<()> {
        self.check()?;
        let graph = bound.graph();
        if self.raw.is_some() && self.pins == pins && self.plan.fits(graph) {
            return Ok(());
        }
        self.forget_plan();
        pins.check(graph, &self.backends)?;
        self.renew()?;
        self.fit_for(graph)?;
        self.check_divided(bound, &pins)?;
        let mark = log::mark();
        self.pins = pins;
        let pins = self.pinned(graph, &self.pins)?;
        let as_built = AsBuilt::after(graph);
        let done = self.planning(|raw| {
            raw.reset()?;
            raw.pin(&pins)?;
            raw.reserve(bound.graph_ptr())
        });
        drop(as_built);
        if !done? {
            return Err(self.out_of_memory(mark));
        }
        self.check_alive()?;
        self.plan.set(graph)
    }

    /// Forgets the plan, and what is known of it.
    fn forget_plan(&mut self) {
        self.plan.clear();
        self.checked = false;
    }

    /// The backends of all that is pinned: closures to the CPU, which is the last ([`builder::check`]), and the user's.
    fn pinned(&self, graph: &Graph<'_>, pins: &Pins) -> Result<Vec<(TensorPtr, *mut sys::ggml_backend)>> {
        let Some(last) = self.backends.last().map(Backend::as_ptr) else { return Ok(Vec::new()) };
        let closures = graph.closures().iter().copied();
        let kept_off = self.kept_off.iter().filter_map(|&i| Some(graph.entries().get(i)?.ptr));
        let to_last = closures.chain(kept_off).map(|t| (t, last));
        let pins = pins
            .iter()
            .filter_map(|(i, backend)| Some((graph.entries().get(i)?.ptr, self.backends.get(backend)?.as_ptr())));
        list::collect(to_last.chain(pins), "the list of what is pinned")
    }

    /// Asks every table whether the graph can run, and makes the C scheduler large enough for it.
    fn fit_for(&mut self, graph: &Graph<'_>) -> Result<()> {
        let devices: Vec<_> = self.backends.iter().map(Backend::device).collect();
        self.kept_off = check::graph(graph, &devices)?;
        self.fit(graph)
    }

    /// Makes the C scheduler large enough. Its table takes all tensors of a graph and asserts that there is room.
    fn fit(&mut self, graph: &Graph<'_>) -> Result<()> {
        let need = graph.entries().len() + graph.entries().len() / 4 + 64;
        if self.raw.as_ref().is_some_and(|raw| raw.capacity >= need) {
            return Ok(());
        }
        self.raw = None;
        let capacity = need.next_multiple_of(1024);
        // C does not look whether it gets that memory.
        drop(list::reserved(self.settings.bytes_of_tables(capacity, self.backends.len()), "the scheduler's tables")?);
        builder::check(&self.backends, &self.settings)?;
        // SAFETY: the backends are dropped after the scheduler (field order). Where one is replaced (`backend_mut`), the
        // scheduler is dropped before anything else is done with it (`check`). What they compute in was checked.
        self.raw = Some(unsafe { RawSched::new(&self.backends, &self.settings, capacity) }?);
        Ok(())
    }

    /// Checks that the scheduler can be used, and lets go of the C one if backends were replaced.
    fn check(&mut self) -> Result<()> {
        if self.poisoned {
            return Err(Error::Poisoned { object: "scheduler" });
        }
        self.check_alive()?;
        if self.raw.as_ref().is_some_and(|raw| !raw.is_over(&self.backends)) {
            self.raw = None;
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<()> {
        self.backends.iter().try_for_each(|b| b.device().check_alive())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, DType};

    /// Where there are copies, the next allocation takes the next; else a graph is put back where it was.
    #[test]
    fn only_without_copies_is_a_graph_put_back() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
        for parallel in [false, true] {
            let cpu = Backend::cpu().unwrap();
            let mut sched = Sched::builder().backend(cpu).parallel(parallel).build().unwrap();
            let places = [(); 5].map(|()| {
                drop(sched.alloc(&graph).unwrap());
                assert_eq!(sched.plan.is_recorded(), !parallel, "known for the next time");
                let run = sched.alloc(&graph).unwrap();
                let _live = run.live_for_tests();
                x.ptr().data().addr()
            });
            // Every second of four copies.
            assert!(places[0] == places[2] && places[1] == places[3], "{places:?}");
            assert_eq!(places[0] == places[1], !parallel, "{places:?}");
        }
    }
}
