//! ggml's scheduler with its backends, and the plan of the last graph.

use std::sync::Arc;

use ggml_sys as sys;

use super::builder::{self, Settings};
use super::pins::Pins;
use super::raw::RawSched;
use crate::alloc::Claims;
use crate::alloc::placement::{AsBuilt, Placement};
use crate::alloc::plan::{Fit, Plan};
use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::device::{Device, meta};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::rules::run as check;
use crate::{callback, list, log};

/// What an error names if a device orders the same operations differently.
const REORDER: &str = "ggml_backend_sched_alloc_graph";

/// Plans and allocates graphs over several backends, or with pipeline copies.
pub(crate) struct Splitter {
    // Field order is drop order: the scheduler goes before its backends.
    pub(super) raw: Option<RawSched>,
    pub(crate) backends: Vec<Backend>,
    settings: Settings,
    plan: Plan,
    /// The pins that the plan was made with.
    pins: Pins,
    /// Entries that a device claims, the rules refuse and the last backend accepts; pinned to that backend.
    kept_off: Vec<usize>,
    /// The order in which devices compute the operations, by which C has planned memory ([`Graph::order`]).
    order: Vec<u32>,
    /// Whether the rules of the assigned devices were checked for this plan.
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
            kept_off: Vec::new(),
            order: Vec::new(),
            checked: false,
        }
    }

    pub(super) fn buffer_types(&self) -> Vec<BufferType> {
        self.settings.buffer_types(&self.backends)
    }

    pub(super) fn plans(&self) -> usize {
        self.plan.plans()
    }

    pub(crate) fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// The live C scheduler.
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
            // The plan was for equal operations, which a device tells apart by their names. The pins are the same.
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
        self.in_c(graph, RawSched::alloc)?;
        drop(alone);
        let placement = self.record(graph, claims);
        drop(as_built);
        if placement.is_err() {
            self.forget_plan(); // it holds what was not allowed
            self.planning(RawSched::reset)?;
        }
        placement
    }

    /// Lets C plan or allocate the graph, whose headers the caller restores.
    fn in_c(
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

    /// Records what the C scheduler did with a graph, while the graph's headers show it.
    fn record(&mut self, graph: &Graph<'_>, claims: Option<Claims>) -> Result<Arc<Placement>> {
        self.check_planned()?;
        self.check_order(graph)?;
        // The assignment depends only on what the plan depends on, so one check per plan is enough. A device that is
        // implemented in Rust is asked again each time, and may answer otherwise.
        if !self.checked || self.devices().any(Device::is_driven) {
            self.check_assignments(graph)?;
            self.checked = true;
        }
        // CPU only: other devices cache graphs by `uid`, or run `init_tensor`. Not with `parallel`: each allocation
        // uses the next copy.
        let reusable = !self.settings.parallel && self.devices().all(Device::runs_closures);
        self.plan.record(graph, reusable, claims)
    }

    /// Checks that devices have ordered the operations as they did when C planned their memory, which it shares among
    /// operations by the order. C itself compares only sizes.
    fn check_order(&self, graph: &Graph<'_>) -> Result<()> {
        let order = graph.order()?;
        if order == self.order {
            return Ok(());
        }
        let names: Vec<_> = self.backends.iter().map(Backend::name).collect();
        let reason = "the order of the same operations has changed".into();
        Err(Error::DeviceFailed { call: REORDER, device: names.join(" or ").into(), reason })
    }

    /// Checks that each operation has kernels on its assigned device, and that each pin took effect.
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
        // Sizes alone don't decide: C's plan also depends on which backend gets an operation.
        if self.raw.is_some() && self.pins == pins && self.plan.fit(graph, false)? == Fit::Same {
            return Ok(());
        }
        self.forget_plan();
        pins.check(graph, &self.backends)?;
        self.renew()?;
        self.check_rules(graph)?;
        self.fit(graph)?;
        self.check_divided(graph, &pins)?;
        self.pins = pins;
        let as_built = AsBuilt::after(graph);
        self.in_c(graph, RawSched::reserve)?;
        self.order = graph.order()?;
        drop(as_built);
        self.check_planned()?;
        self.plan.set(graph)
    }

    /// Drops the plan, with the results of its checks.
    pub(super) fn forget_plan(&mut self) {
        self.plan.clear();
        self.checked = false;
    }

    /// All pins: the user's, and closures to the CPU, which is the last backend ([`builder::check`]).
    pub(super) fn pinned(&self, graph: &Graph<'_>, pins: &Pins) -> Result<Vec<(TensorPtr, *mut sys::ggml_backend)>> {
        let Some(last) = self.backends.last().map(Backend::as_ptr) else { return Ok(Vec::new()) };
        let closures = graph.entries().closures().iter().copied();
        let kept_off = self.kept_off.iter().filter_map(|&i| Some(graph.entries().get(i)?.ptr));
        let to_last = closures.chain(kept_off).map(|t| (t, last));
        let pins = pins
            .iter()
            .filter_map(|(i, backend)| Some((graph.entries().get(i)?.ptr, self.backends.get(backend)?.as_ptr())));
        list::collect(to_last.chain(pins), "the list of pinned tensors")
    }

    /// Checks the graph by all rules.
    fn check_rules(&mut self, graph: &Graph<'_>) -> Result<()> {
        let devices: Vec<_> = self.devices().collect();
        self.kept_off = check::graph(graph.entries(), None, &devices)?;
        Ok(())
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = Device> {
        self.backends.iter().map(Backend::device)
    }

    /// Makes the C scheduler large enough: C asserts that its table has room for all tensors of a graph.
    fn fit(&mut self, graph: &Graph<'_>) -> Result<()> {
        let tensors = graph.entries().len();
        let need = tensors + tensors / 4 + 64; // splitting takes room for copies
        if self.raw.as_ref().is_some_and(|raw| raw.capacity >= need) {
            return Ok(());
        }
        self.raw = None;
        builder::check(&self.backends, &self.settings)?;
        // SAFETY: the backends are dropped after the scheduler (field order); `check` drops it if `backend_mut`
        // replaced one, before any other use. `builder::check` has checked that each backend supports its buffer type.
        self.raw = Some(unsafe { RawSched::new(&self.backends, &self.settings, need) }?);
        Ok(())
    }

    /// Checks that the scheduler can be used, and drops the C object if a backend was replaced.
    fn check(&mut self) -> Result<()> {
        self.backends.iter().try_for_each(Backend::check)?;
        if self.raw.as_ref().is_some_and(|raw| !raw.is_over(&self.backends)) {
            self.raw = None;
        }
        Ok(())
    }

    /// Checks that C has planned with devices that live, none of which has failed to order its operations.
    fn check_planned(&self) -> Result<()> {
        self.check_alive()?;
        callback::check_objection()
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        self.backends.iter().try_for_each(|b| b.device().check_alive())
    }
}
