//! The scheduler: one graph over several devices.

mod builder;
mod divided;
mod engine;
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
use crate::alloc::plan::{Fit, Plan};
use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::rules::run as check;
use crate::tensor::Tensor;
use crate::{list, log};
use builder::Settings;
use engine::Engine;
use pins::Pins;

pub use builder::SchedBuilder;
pub use observe::{Observed, Split, SplitInput};
pub use profile::{Profile, Timing};
pub use run::Allocated;

/// Splits graphs over several backends, allocates their memory, copies tensors between devices and computes
/// (`ggml_backend_sched_t`).
///
/// Each operation runs where its weights lie, or else on the first backend that supports it. The scheduler grows to fit
/// its graphs, and plans anew whenever a graph differs from the previous one.
///
/// # Why `&mut`?
///
/// A scheduler holds one graph at a time: [`Sched::alloc`] borrows it for as long as that graph has memory.
#[doc(alias = "ggml_backend_sched_t")]
#[doc(alias = "ggml_backend_sched_free")]
pub struct Sched {
    // Field order is drop order: the scheduler goes before its backends.
    raw: Option<Engine>,
    backends: Vec<Backend>,
    settings: Settings,
    plan: Plan,
    /// The pins that the plan was made with.
    pins: Pins,
    /// Entries that a device claims, the rules refuse and the last backend accepts; pinned to that backend.
    kept_off: Vec<usize>,
    /// Whether the rules of the assigned devices were checked for this plan.
    checked: bool,
    poisoned: bool,
}

impl Sched {
    /// Starts to build a scheduler.
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

    /// The backends, in order of priority (`ggml_backend_sched_get_backend`).
    #[doc(alias = "ggml_backend_sched_get_backend")]
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Each backend's buffer type, in the order of [`Sched::backends`] (`ggml_backend_sched_get_buffer_type`).
    #[doc(alias = "ggml_backend_sched_get_buffer_type")]
    pub fn buffer_types(&self) -> Vec<BufferType> {
        self.settings.buffer_types(&self.backends)
    }

    /// A backend by index, to change its settings or to replace it.
    pub fn backend_mut(&mut self, i: usize) -> Option<&mut Backend> {
        self.backends.get_mut(i)
    }

    /// How many plans were made: one for each graph that differs from the previous one. A decoder whose shapes stay the
    /// same plans once.
    pub fn plans(&self) -> usize {
        self.plan.plans()
    }

    /// Allocates memory for graphs like this one, in advance (`ggml_backend_sched_reserve`).
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`].
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, graph: &Graph<'_>) -> Result<()> {
        log::public(|| self.prepare(&Bound::new("Sched::reserve", graph)?, Pins::default(), false).map(drop))
    }

    /// Reserves as [`Sched::reserve`] does, with the pins of [`Sched::alloc_pinned`].
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc_pinned`], except for what is known only after allocation.
    pub fn reserve_pinned(&mut self, graph: &Graph<'_>, pins: &[(Tensor<'_>, usize)]) -> Result<()> {
        const CALL: &str = "Sched::reserve_pinned";
        let pins = Pins::new(CALL, graph, self.backends.len(), pins)?;
        log::public(|| self.prepare(&Bound::new(CALL, graph)?, pins, false).map(drop))
    }

    /// The bytes that `graph` would need on each backend, in their order, without allocating them
    /// (`ggml_backend_sched_reserve_size`). Backends with the same buffer type share memory, counted for the first.
    ///
    /// Nothing is pinned here: a closure, which runs on the CPU, may be counted for another device. If the scheduler's
    /// memory is too small for this graph, it is freed.
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`], except for [`Error::OutOfMemory`].
    #[doc(alias = "ggml_backend_sched_reserve_size")]
    pub fn reserve_size(&mut self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        log::public(|| self.sizes(&Bound::new("Sched::reserve_size", graph)?))
    }

    fn sizes(&mut self, bound: &Bound<'_, '_>) -> Result<Vec<usize>> {
        self.check()?;
        self.forget_plan();
        self.check_rules(bound.graph(), None)?;
        self.fit(bound.graph())?;
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

    /// Allocates `graph` on the devices where it will run (`ggml_backend_sched_alloc_graph`). Use the result to set
    /// inputs, compute, and read results. Dropping it frees the memory for the next graph.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if no backend can run an operation or reach its weights; [`Error::OutOfMemory`];
    /// [`Error::Poisoned`] after a computation that failed inside ggml; [`Error::Backends`] if a backend's replacement
    /// is not valid in its position; [`Error::InUse`] within the closure of an [`Allocated::compute_async`] that uses a
    /// tensor of the graph.
    #[doc(alias = "ggml_backend_sched_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<Allocated<'s, 'c>> {
        log::public(|| self.allocate(Bound::new("Sched::alloc", graph)?, Pins::default()))
    }

    /// Allocates a graph as [`Sched::alloc`] does, with some tensors pinned to backends by their indices in
    /// [`Sched::backends`]: operations run there, and inputs lie there (`ggml_backend_sched_set_tensor_backend`).
    ///
    /// Different pins need a new plan. Closures that are not pinned run on the last backend.
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`]; [`Error::NotPart`] for a tensor that is not part of the graph; [`Error::Param`] for a
    /// backend index that is out of bounds, or a tensor that is pinned twice; [`Error::Unsupported`] if the device
    /// can't run the operation, if the tensor has memory already or is a view, or if ggml ignores the pin for a backend
    /// of higher priority with the same buffer type.
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
        let affected = self.prepare(&bound, pins, true)?;
        if affected.is_none() && self.plan.put_back(&mut bound) {
            return Ok(Allocated::new(self, bound));
        }
        self.plan.forget();
        if self.meta().is_some() {
            self.plan.count(bound.graph());
        }
        let graph = bound.graph();
        let as_built = AsBuilt::after(graph);
        self.in_c(graph, Engine::alloc)?;
        if affected.is_some() {
            self.plan.adopt(graph);
        }
        let noted = self.note(&mut bound, affected.as_deref());
        drop(as_built);
        if let Err(error) = noted {
            self.forget_plan(); // it holds what was not allowed
            self.planning(Engine::reset)?;
            return Err(error);
        }
        Ok(Allocated::new(self, bound))
    }

    /// Makes C plan memory for the graph.
    fn plan_in_c(&mut self, graph: &Graph<'_>) -> Result<()> {
        let _as_built = AsBuilt::after(graph);
        self.in_c(graph, Engine::reserve)
    }

    /// Lets C plan or allocate the graph, whose headers the caller restores.
    fn in_c(
        &mut self,
        graph: &Graph<'_>,
        f: impl FnOnce(&mut Engine, *mut sys::ggml_cgraph) -> Result<bool>,
    ) -> Result<()> {
        let mark = log::mark();
        let pins = self.pinned(graph, &self.pins)?;
        let done = self.planning(|raw| {
            raw.reset()?;
            raw.pin(&pins)?;
            f(raw, graph.as_ptr())
        })?;
        if done { Ok(()) } else { Err(self.out_of_memory(mark)) }
    }

    /// Records what the C scheduler did with a graph, while the graph's headers show it.
    fn note(&mut self, bound: &mut Bound<'_, '_>, affected: Option<&[usize]>) -> Result<()> {
        self.check_alive()?;
        // The assignment depends only on what the plan depends on, so one check per plan is enough.
        if !self.checked {
            self.check_assignments(bound.graph(), affected)?;
            self.checked = true;
        }
        // CPU only: other devices cache graphs by `uid`, or run `init_tensor`. Not with `parallel`: each allocation
        // uses the next copy.
        let reusable = !self.settings.parallel && self.backends.iter().all(|b| b.device().runs_closures());
        let whole = self.meta().is_some();
        self.plan.record(bound, reusable, whole)
    }

    /// Checks that each operation has kernels on its assigned device, and that each pin took effect.
    fn check_assignments(&self, graph: &Graph<'_>, affected: Option<&[usize]>) -> Result<()> {
        for (i, backend) in self.pins.iter() {
            let (Some(e), Some(wanted)) = (graph.entries().get(i), self.backends.get(backend)) else { continue };
            if self.backend_of(e.ptr).is_none_or(|b| !std::ptr::eq(b, wanted)) {
                return Err(check::moved(wanted.device(), e));
            }
        }
        let devices: Vec<_> = self.devices().collect();
        let place = |t| if let [only] = devices[..] { Some(only) } else { self.backend_of(t).map(Backend::device) };
        check::placed(graph.entries(), affected, &devices, place)
    }

    /// The backend that a tensor of the allocated graph was assigned to.
    fn backend_of(&self, t: TensorPtr) -> Option<&Backend> {
        let raw = self.raw.as_ref()?.backend_of(t);
        self.backends.iter().find(|b| std::ptr::eq(b.as_ptr(), raw))
    }

    /// Checks that the graph can run, and plans for it, unless the current plan fits. Where `by_size` allows that, C
    /// decides by sizes whether it needs another plan when it allocates; then this returns the entries that differ.
    fn prepare(&mut self, bound: &Bound<'_, '_>, pins: Pins, by_size: bool) -> Result<Option<Vec<usize>>> {
        self.check()?;
        let graph = bound.graph();
        let fit = if self.raw.is_some() && self.pins == pins { self.plan.fit(graph)? } else { Fit::Other };
        // Over several backends, C's own plan also depends on which of them gets an operation.
        let by_size = by_size && Engine::is_alone(&self.backends, &self.settings);
        match fit {
            Fit::Same => return Ok(None),
            Fit::Sizes(affected) if by_size => {
                self.plan.suspend();
                self.checked = false;
                pins.check(graph, &self.backends)?;
                self.check_rules(graph, Some(&affected))?;
                return Ok(Some(affected));
            }
            _ => {}
        }
        self.forget_plan();
        pins.check(graph, &self.backends)?;
        self.renew()?;
        self.check_rules(graph, None)?;
        self.fit(graph)?;
        self.check_divided(bound, &pins)?;
        self.pins = pins;
        self.plan_in_c(graph)?;
        self.check_alive()?;
        self.plan.set(graph)?;
        Ok(None)
    }

    /// Drops the plan, with the results of its checks.
    fn forget_plan(&mut self) {
        self.plan.clear();
        self.checked = false;
    }

    /// All pins: the user's, and closures to the CPU, which is the last backend ([`builder::check`]).
    fn pinned(&self, graph: &Graph<'_>, pins: &Pins) -> Result<Vec<(TensorPtr, *mut sys::ggml_backend)>> {
        let Some(last) = self.backends.last().map(Backend::as_ptr) else { return Ok(Vec::new()) };
        let closures = graph.entries().closures().iter().copied();
        let kept_off = self.kept_off.iter().filter_map(|&i| Some(graph.entries().get(i)?.ptr));
        let to_last = closures.chain(kept_off).map(|t| (t, last));
        let pins = pins
            .iter()
            .filter_map(|(i, backend)| Some((graph.entries().get(i)?.ptr, self.backends.get(backend)?.as_ptr())));
        list::collect(to_last.chain(pins), "the list of pinned tensors")
    }

    /// Checks the graph, or the entries that differ from the last one's, by all rules.
    fn check_rules(&mut self, graph: &Graph<'_>, affected: Option<&[usize]>) -> Result<()> {
        let devices: Vec<_> = self.devices().collect();
        // A whole check finds all entries that Vulkan must not get.
        let affected = affected.filter(|_| !devices.iter().any(|d| d.is_vulkan()));
        self.kept_off = check::graph(graph.entries(), affected, &devices)?;
        Ok(())
    }

    fn devices(&self) -> impl Iterator<Item = Device> {
        self.backends.iter().map(Backend::device)
    }

    /// Makes the C scheduler large enough: C asserts that its table has room for all tensors of a graph.
    fn fit(&mut self, graph: &Graph<'_>) -> Result<()> {
        let need = Engine::need(graph.entries().len());
        if self.raw.as_ref().is_some_and(|raw| raw.has_room(need)) {
            return Ok(());
        }
        self.raw = None;
        builder::check(&self.backends, &self.settings)?;
        // SAFETY: the backends are dropped after the scheduler (field order); `check` drops it if `backend_mut`
        // replaced one, before any other use. `builder::check` has checked that each backend supports its buffer type.
        self.raw = Some(unsafe { Engine::new(&self.backends, &self.settings, need) }?);
        Ok(())
    }

    /// Checks that the scheduler can be used, and drops the C object if a backend was replaced.
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

    /// With copies, each allocation takes the next; without, a graph's placement is reused.
    #[test]
    fn sched_reuses_a_placement_only_without_copies() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
        for parallel in [false, true] {
            let cpu = Backend::cpu().unwrap();
            let mut sched = Sched::builder().backend(cpu).parallel(parallel).build().unwrap();
            let places = [(); 5].map(|()| {
                drop(sched.alloc(&graph).unwrap());
                assert_eq!(sched.plan.is_recorded(), !parallel, "the placement can be reused");
                let run = sched.alloc(&graph).unwrap();
                let _live = run.live_for_tests();
                x.ptr().data().addr()
            });
            // Of four allocations, each pair at distance two uses one copy.
            assert!(places[0] == places[2] && places[1] == places[3], "{places:?}");
            assert_eq!(places[0] == places[1], !parallel, "{places:?}");
        }
    }
}
