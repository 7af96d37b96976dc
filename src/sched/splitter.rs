//! ggml's scheduler with its backends, and the plan of the last graph.

use std::sync::Arc;

use ggml_sys as sys;

use super::builder::{self, Settings};
use super::pins::Pins;
use super::raw::RawSched;
use crate::alloc::Claims;
use crate::alloc::placement::{AsBuilt, Placement};
use crate::alloc::plan::{Fit, Plan, PlanVerdict, Unjudged};
use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::device::{Device, meta};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::rules::run as check;
use crate::{callback, list, log};

/// The call that errors name if a device has changed its order of the same operations.
const REORDER: &str = "ggml_backend_sched_alloc_graph";

/// A verdict for all of the scheduler's devices. When a backend is replaced, the plan is forgotten, so all verdicts are
/// for the same devices.
const BY_ALL: PlanVerdict = PlanVerdict(None);

/// Plans and allocates graphs over several backends, or with pipeline copies.
pub(crate) struct Splitter {
    // Field order is drop order: the scheduler goes before its backends.
    pub(super) raw: Option<RawSched>,
    pub(crate) backends: Vec<Backend>,
    settings: Settings,
    pub(crate) plan: Plan,
    /// The pins with which the plan was made.
    pins: Pins,
    /// Entries that a device claims, the rules refuse and the last backend accepts. They are pinned to the last
    /// backend.
    forced_to_last: Vec<usize>,
    /// The order in which devices compute the operations. C has planned memory for this order ([`Graph::order`]).
    order: Vec<u32>,
    /// Whether the plan was checked by the rules of the devices to which operations are assigned.
    checked: bool,
}

impl Splitter {
    pub(super) fn new(backends: Vec<Backend>, settings: Settings) -> Self {
        Self {
            raw: None,
            backends,
            settings,
            plan: Plan::default(),
            pins: Pins::default(),
            forced_to_last: Vec::new(),
            order: Vec::new(),
            checked: false,
        }
    }

    pub(super) fn buffer_types(&self) -> Vec<BufferType> {
        self.settings.buffer_types(&self.backends)
    }

    /// The C scheduler; an error if it was lost.
    pub(crate) fn raw(&mut self) -> Result<&mut RawSched> {
        self.raw.as_mut().ok_or(Error::Poisoned { object: "scheduler" })
    }

    pub(super) fn sizes(&mut self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        self.check()?;
        self.forget_plan();
        self.check_rules(graph)?;
        self.fit(graph)?;
        let mut sizes = vec![0; self.backends.len()];
        let as_built = AsBuilt::after(graph);
        self.planning(|raw| {
            raw.reserve_size(graph.as_ptr(), &mut sizes)?;
            raw.reset()
        })?;
        drop(as_built);
        self.check_planned()?;
        let bufts = self.buffer_types();
        for (i, buft) in bufts.iter().enumerate() {
            if let Some(size) = sizes.get_mut(i).filter(|_| bufts.iter().take(i).any(|b| b == buft)) {
                *size = 0;
            }
        }
        Ok(sizes)
    }

    /// Allocates the graph on the devices where it will run.
    pub(crate) fn allocate(&mut self, graph: &Graph<'_>, pins: Pins) -> Result<Arc<Placement>> {
        match self.place(graph, pins) {
            // The plan was for equal operations with other names, which a device orders differently. So a new plan is
            // made, with the same pins.
            Err(Error::DeviceFailed { call: REORDER, .. }) => {
                let pins = std::mem::take(&mut self.pins);
                self.place(graph, pins)
            }
            placement => placement,
        }
    }

    fn place(&mut self, graph: &Graph<'_>, pins: Pins) -> Result<Arc<Placement>> {
        self.prepare(graph, pins)?;
        if let Some(placement) = self.plan.reuse(graph) {
            return Ok(placement);
        }
        self.plan.forget();
        let alone = meta::lock_if_meta("Sched", self.devices(), false)?;
        let mut claims = None;
        if let Some(meta) = self.backends.iter_mut().find(|b| meta::is_meta(b.device())) {
            self.plan.count(graph);
            claims = Some(Claims::of(graph, meta)?);
        }
        let as_built = AsBuilt::after(graph);
        self.call_c(graph, RawSched::alloc)?;
        drop(alone);
        let placement = self.record(graph, claims);
        drop(as_built);
        if placement.is_err() {
            self.forget_plan(); // it holds what was not allowed
            self.planning(RawSched::reset)?;
        }
        placement
    }

    /// Lets C plan or allocate the graph. The caller restores the graph's headers afterwards.
    fn call_c(
        &mut self,
        graph: &Graph<'_>,
        f: impl FnOnce(&mut RawSched, *mut sys::ggml_cgraph) -> Result<bool>,
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

    /// Records what the C scheduler did with a graph, as long as the graph's headers show it.
    fn record(&mut self, graph: &Graph<'_>, claims: Option<Claims>) -> Result<Arc<Placement>> {
        self.check_planned()?;
        self.check_order(graph)?;
        // Which devices get the operations depends only on what the plan depends on, so one check per plan is enough. A
        // device that is implemented in Rust is asked each time, because its answer may change.
        if !self.checked || self.devices().any(Device::is_driven) {
            self.check_assignments(graph)?;
            self.checked = true;
        }
        // Placements are reused on CPUs only: other devices cache graphs by `uid`, or run `init_tensor`. With
        // `parallel`, none is reused, because each allocation uses the next copy of the inputs.
        let reusable = !self.settings.parallel && self.devices().all(Device::runs_closures);
        self.plan.record(graph, reusable, claims)
    }

    /// Checks that devices have ordered the operations as they did when C planned the memory. Which operations share
    /// memory depends on the order, but C compares only sizes.
    fn check_order(&self, graph: &Graph<'_>) -> Result<()> {
        let order = graph.store.order()?;
        if order == self.order {
            return Ok(());
        }
        let names: Vec<_> = self.backends.iter().map(Backend::name).collect();
        let reason = "the order of the same operations has changed".into();
        Err(Error::DeviceFailed { call: REORDER, device: names.join(" or ").into(), reason })
    }

    /// Checks that each operation has kernels on the device to which it is assigned, and that each pin took effect.
    fn check_assignments(&self, graph: &Graph<'_>) -> Result<()> {
        for (i, backend) in self.pins.iter() {
            let (Some(e), Some(wanted)) = (graph.entries().get(i), self.backends.get(backend)) else { continue };
            if self.backend_of(e.ptr).is_none_or(|b| !std::ptr::eq(b, wanted)) {
                return Err(check::moved(wanted.device(), e));
            }
        }
        check::placed(graph.entries(), |t| self.backend_of(t).map(Backend::device))
    }

    /// The backend that a tensor of the allocated graph was assigned to.
    pub(crate) fn backend_of(&self, t: TensorPtr) -> Option<&Backend> {
        let raw = self.raw.as_ref()?.backend_of(t);
        self.backends.iter().find(|b| std::ptr::eq(b.as_ptr(), raw))
    }

    /// The number of splits of the allocated graph.
    pub(crate) fn n_splits(&self) -> usize {
        self.raw.as_ref().map_or(0, RawSched::n_splits)
    }

    /// How many copies there are of each input and of each tensor copied between devices.
    pub(crate) fn n_copies(&self) -> usize {
        self.raw.as_ref().map_or(1, RawSched::n_copies)
    }

    /// Bytes of compute memory on each backend.
    pub(crate) fn buffer_sizes(&self) -> Result<Vec<usize>> {
        let raw = self.raw.as_ref().ok_or(Error::Poisoned { object: "scheduler" })?;
        self.backends.iter().map(|b| raw.buffer_size(b)).collect()
    }

    /// Checks that the graph can run, and plans for it, unless the current plan fits.
    pub(super) fn prepare(&mut self, graph: &Graph<'_>, pins: Pins) -> Result<()> {
        self.check()?;
        // Equal sizes are not enough for reuse of the plan, because C's plan also depends on which backend gets an
        // operation.
        let known = self.raw.is_some() && self.pins == pins;
        if known && self.plan.fit(graph, BY_ALL, false)? == Fit::Same(Unjudged::Nothing) {
            self.debug_assert_judged(graph);
            return Ok(());
        }
        self.forget_plan();
        pins.check(graph, &self.backends)?;
        self.renew()?;
        self.check_rules(graph)?;
        self.fit(graph)?;
        self.check_sharded(graph, &pins)?;
        self.pins = pins;
        let as_built = AsBuilt::after(graph);
        self.call_c(graph, RawSched::reserve)?;
        self.order = graph.store.order()?;
        drop(as_built);
        self.check_planned()?;
        self.plan.set(graph, BY_ALL)?;
        log::note(::log::Level::Debug, || {
            let (nodes, splits, sizes) = (graph.n_nodes(), self.n_splits(), self.buffer_sizes().unwrap_or_default());
            let memory = self.backends.iter().zip(sizes).map(|(b, size)| format!("{size} bytes for {}", b.name()));
            format!("planned a graph of {nodes} nodes in {splits} splits: {}", memory.collect::<Vec<_>>().join(", "))
        });
        Ok(())
    }

    /// Asserts that the rules' verdict on a graph with a plan is still that of the planned graph. Devices implemented
    /// in Rust are left out, because they may change their answers, whatever they promise.
    fn debug_assert_judged(&self, graph: &Graph<'_>) {
        if cfg!(debug_assertions) && !self.devices().any(Device::is_driven) {
            let devices: Vec<_> = self.devices().collect();
            match check::graph(graph.entries(), None, &devices) {
                Ok(forced_to_last) => {
                    debug_assert_eq!(forced_to_last, self.forced_to_last, "what is kept off a device");
                }
                Err(error) => {
                    debug_assert!(
                        !matches!(error, Error::Unsupported { .. }),
                        "the verdict is another graph's: {error}"
                    );
                }
            }
        }
    }

    /// Forgets the plan, and that it was checked.
    pub(super) fn forget_plan(&mut self) {
        self.plan.clear();
        self.checked = false;
    }

    /// All pins: the user's, and those of closures and wrongly claimed operations to the last backend, which is a CPU
    /// ([`builder::check`]).
    pub(super) fn pinned(&self, graph: &Graph<'_>, pins: &Pins) -> Result<Vec<(TensorPtr, *mut sys::ggml_backend)>> {
        let Some(last) = self.backends.last().map(Backend::as_ptr) else { return Ok(Vec::new()) };
        let closures = graph.entries().closures().iter().copied();
        let forced_to_last = self.forced_to_last.iter().filter_map(|&i| Some(graph.entries().get(i)?.ptr));
        let to_last = closures.chain(forced_to_last).map(|t| (t, last));
        let pins = pins
            .iter()
            .filter_map(|(i, backend)| Some((graph.entries().get(i)?.ptr, self.backends.get(backend)?.as_ptr())));
        list::collect(to_last.chain(pins), "the list of pinned tensors")
    }

    /// Checks the graph by all rules.
    fn check_rules(&mut self, graph: &Graph<'_>) -> Result<()> {
        let devices: Vec<_> = self.devices().collect();
        self.forced_to_last = check::graph(graph.entries(), None, &devices)?;
        Ok(())
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = Device> {
        self.backends.iter().map(Backend::device)
    }

    /// Makes the C scheduler large enough for the graph: C asserts that its table has room for all tensors of a graph.
    fn fit(&mut self, graph: &Graph<'_>) -> Result<()> {
        let tensors = graph.entries().len();
        let need = tensors + tensors / 4 + 64; // splitting takes room for copies
        if self.raw.as_ref().is_some_and(|raw| raw.capacity >= need) {
            return Ok(());
        }
        self.raw = None;
        builder::check(&self.backends, &self.settings)?;
        // SAFETY: the backends are dropped after the scheduler (field order); if `backend_mut` replaced a backend,
        // `check` drops the scheduler before any other use. `builder::check` has checked that each backend supports its
        // buffer type.
        self.raw = Some(unsafe { RawSched::new(&self.backends, &self.settings, need) }?);
        Ok(())
    }

    /// Checks that the scheduler can be used, and drops the C scheduler if a backend was replaced.
    fn check(&mut self) -> Result<()> {
        self.backends.iter().try_for_each(Backend::check)?;
        if self.raw.as_ref().is_some_and(|raw| !raw.is_over(&self.backends)) {
            self.raw = None;
        }
        Ok(())
    }

    /// Checks that no device was lost while C planned, and that no device rejected the graph.
    fn check_planned(&self) -> Result<()> {
        self.check_alive()?;
        callback::check_rejection()
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        self.backends.iter().try_for_each(|b| b.device().check_alive())
    }
}
