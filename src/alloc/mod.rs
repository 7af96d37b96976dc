//! Allocates graphs for one backend.

pub(crate) mod placement;
pub(crate) mod plan;
mod raw;
mod views;

use std::ffi::c_int;
use std::sync::Arc;

use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::callback;
use crate::debug::debug;
use crate::device::{Device, meta};
use crate::entries::Kind;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::rules::meta as meta_rules;
use crate::rules::run as check;
use crate::tensor::Tensor;
use crate::{guard, list, log};
use placement::{AsBuilt, Placement};
use plan::{Fit, Plan, PlanVerdict, Unjudged};
use raw::RawAllocator;

pub(crate) use raw::Places;
pub(crate) use views::Claims;

/// Allocates memory for graphs from one or several buffer types (`ggml_gallocr_t`), for computations on one backend.
///
/// Memory grows to fit the largest graph, and is planned anew whenever a graph differs from the previous one.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::GraphAllocator;
/// let mut backend = Backend::cpu()?;
/// let mut allocator = GraphAllocator::new(backend.device().buffer_type());
/// for n in [4, 16, 16] {
///     let ctx = Context::new();
///     let x = ctx.input("x", DType::F32, [n])?;
///     let graph = ctx.graph([ctx.sqr(x)?])?;
///     let mut run = allocator.alloc(&graph, &mut backend)?;
///     run.set(x, &vec![1.0_f32; n])?;
///     run.compute()?;
/// }
/// assert_eq!(allocator.plans(), 2); // the third graph is like the second
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_gallocr_t")]
#[doc(alias = "ggml_gallocr_free")]
pub struct GraphAllocator {
    raw: Option<RawAllocator>,
    /// The buffer types: at least one, without duplicates.
    bufts: Box<[BufferType]>,
    choose: Option<Box<ChooseBuffer>>,
    pub(crate) plan: Plan,
    /// Which buffer type each tensor has in the current plan.
    places: Places,
}

/// Returns the index of a tensor's buffer type.
type ChooseBuffer = dyn Fn(Tensor<'_>) -> usize + Send;

impl GraphAllocator {
    /// An allocator that uses one buffer type (`ggml_gallocr_new`). It allocates nothing until it is used.
    #[doc(alias = "ggml_gallocr_new")]
    pub fn new(buft: BufferType) -> Self {
        Self::over([buft].into(), None)
    }

    /// An allocator that uses several buffer types (`ggml_gallocr_new_n`). `choose` returns, for each operation and
    /// each input of a graph, an index into `bufts`. It has no effect on tensors that have memory already, on views,
    /// and on operations that ggml runs in place of an operand. The backend that computes must be able to use all of
    /// these buffer types.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::GraphAllocator;
    /// # fn main() -> ggml::Result<()> {
    /// let cpu = Device::cpu()?.buffer_type();
    /// assert!(GraphAllocator::with_buffers(&[cpu], |_| 0).is_ok());
    /// assert!(GraphAllocator::with_buffers(&[cpu, cpu], |_| 0).is_err(), "the same type twice");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if `bufts` is empty or has duplicates, or has a meta device's beside others.
    #[doc(alias = "ggml_gallocr_new_n")]
    pub fn with_buffers(bufts: &[BufferType], choose: impl Fn(Tensor<'_>) -> usize + Send + 'static) -> Result<Self> {
        let twice = bufts.iter().enumerate().any(|(i, b)| bufts.iter().skip(i + 1).any(|other| b == other));
        let sharded = bufts.len() > 1 && bufts.iter().filter_map(|b| b.device()).any(meta::is_meta);
        if bufts.is_empty() || twice || sharded {
            return Err(Error::param(
                "GraphAllocator::with_buffers",
                "bufts",
                format!("{bufts:?}"),
                "it needs one buffer type or more, no duplicates, and a meta device's only on its own",
            ));
        }
        Ok(Self::over(bufts.into(), Some(Box::new(choose))))
    }

    pub(crate) fn over(bufts: Box<[BufferType]>, choose: Option<Box<ChooseBuffer>>) -> Self {
        Self { raw: None, bufts, choose, plan: Plan::default(), places: Places::default() }
    }

    /// The buffer types that the allocator was made with: one for [`GraphAllocator::new`].
    pub fn buffer_types(&self) -> &[BufferType] {
        &self.bufts
    }

    /// Bytes that the allocator holds of each buffer type (`ggml_gallocr_get_buffer_size`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] if ggml fails.
    #[doc(alias = "ggml_gallocr_get_buffer_size")]
    pub fn buffer_sizes(&self) -> Result<Vec<usize>> {
        callback::check_reentry("GraphAllocator::buffer_sizes")?;
        (0..self.bufts.len()).map(|i| self.raw.as_ref().map_or(Ok(0), |raw| raw.buffer_size(i))).collect()
    }

    /// Bytes of each buffer type that a new allocator would take for graphs like this one, without taking them
    /// (`ggml_gallocr_reserve_n_size`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::GraphAllocator;
    /// # let ctx = Context::new();
    /// let graph = ctx.graph([ctx.sqr(ctx.input("x", DType::F32, [1 << 20])?)?])?;
    /// let allocator = GraphAllocator::new(Device::cpu()?.buffer_type());
    /// assert!(allocator.sizes(&graph)?[0] >= 4 << 20);
    /// assert_eq!(allocator.buffer_sizes()?, [0]); // nothing was allocated
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`GraphAllocator::alloc`].
    #[doc(alias = "ggml_gallocr_reserve_n_size")]
    pub fn sizes(&self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        const CALL: &str = "GraphAllocator::sizes";
        let places = self.places(CALL, graph)?;
        log::public(|| {
            graph.check_free(CALL)?;
            self.measure(graph, &places, self.device())
        })
    }

    pub(crate) fn measure(&self, graph: &Graph<'_>, places: &Places, device: Option<Device>) -> Result<Vec<usize>> {
        self.check(graph, device, None)?;
        // Measuring leaves a C allocator without its memory (H21), so this uses a temporary one.
        let mut raw = Some(RawAllocator::new(&self.bufts)?);
        let _as_built = AsBuilt::after(graph);
        attempt(&mut raw, |raw| raw.sizes(graph.as_ptr(), places, self.bufts.len()))
    }

    /// How many plans were made: one for each graph that differs from the previous one.
    pub fn plans(&self) -> usize {
        self.plan.plans()
    }

    /// Allocates the memory that graphs like this one need (`ggml_gallocr_reserve`, `ggml_gallocr_reserve_n`).
    ///
    /// # Errors
    ///
    /// As [`GraphAllocator::alloc`].
    #[doc(alias = "ggml_gallocr_reserve")]
    #[doc(alias = "ggml_gallocr_reserve_n")]
    pub fn reserve(&mut self, graph: &Graph<'_>) -> Result<()> {
        const CALL: &str = "GraphAllocator::reserve";
        let places = self.places(CALL, graph)?;
        log::public(|| {
            graph.check_free(CALL)?;
            self.plan_for(graph, places, self.device())
        })
    }

    /// Plans memory for the graph, unless the current plan fits, for a computation on `device` if that is known.
    pub(crate) fn plan_for(&mut self, graph: &Graph<'_>, places: Places, device: Option<Device>) -> Result<()> {
        self.prepare(graph, places, device, false).map(drop)
    }

    /// Allocates the graph for a computation on `backend`.
    pub(crate) fn allocate(
        &mut self,
        graph: &Graph<'_>,
        places: Places,
        backend: &mut Backend,
    ) -> Result<Arc<Placement>> {
        backend.check()?;
        let planned = self.prepare(graph, places, Some(backend.device()), true)?;
        if let Some(placement) = self.plan.reuse(graph).filter(|_| planned) {
            return Ok(placement);
        }
        self.plan.forget();
        let _alone = meta::lock_if_meta("GraphAllocator", self.device().into_iter(), false)?;
        let mut claims = None;
        if self.is_sharded() {
            self.plan.count(graph);
            claims = Some(Claims::of(graph, backend)?);
        }
        let mark = log::mark();
        let _as_built = AsBuilt::after(graph);
        if !self.with_raw(|raw| raw.alloc(graph.as_ptr()))? {
            return Err(self.out_of_memory(mark));
        }
        if !planned {
            self.plan.adopt(graph, PlanVerdict(Some(backend.device())));
        }
        backend.serve(self.plan.id())?;
        // Devices without host memory may initialise tensors when these get memory. Reuse of a placement would skip
        // that.
        let reusable = claims.is_none() && self.bufts.iter().all(|b| b.is_host());
        self.plan.record(graph, reusable, claims)
    }

    /// Asks the user's closure for buffer types. Called before the graph is bound: the closure may run any safe code,
    /// such as allocating the same graph elsewhere.
    pub(crate) fn places(&self, call: &'static str, graph: &Graph<'_>) -> Result<Places> {
        let mut places = Places::default();
        let Some(choose) = self.choose.as_ref().filter(|_| self.bufts.len() > 1) else { return Ok(places) };
        for e in graph.entries().iter() {
            // SAFETY: entries live as long as the graph, which is borrowed for the call.
            let chosen = choose(unsafe { Tensor::new(e.ptr) });
            let place = c_int::try_from(chosen).ok().filter(|_| chosen < self.bufts.len());
            let place = place.ok_or_else(|| {
                Error::param(
                    call,
                    "choose",
                    chosen.to_string(),
                    format!("there are {} buffer types for {}", self.bufts.len(), e.ptr.info()),
                )
            })?;
            // C expects the buffer types in the order of its own node and leaf lists.
            let list = if e.kind == Kind::Node { &mut places.nodes } else { &mut places.leafs };
            list::push(list, place, "the places of tensors")?;
        }
        Ok(places)
    }

    /// The device of the first buffer type; it is assumed to compute unless a backend is given.
    fn device(&self) -> Option<Device> {
        self.bufts.first().and_then(|b| b.device())
    }

    fn is_sharded(&self) -> bool {
        self.device().is_some_and(meta::is_meta)
    }

    /// Checks that the graph can run on `device`: its `affected` entries, or all of them for `None`.
    fn check(&self, graph: &Graph<'_>, device: Option<Device>, affected: Option<&[usize]>) -> Result<()> {
        self.check_alive()?;
        for device in self.bufts.iter().filter_map(|b| b.device()) {
            check::fits_wire(graph.entries(), device)?;
        }
        let Some(device) = device else { return meta_rules::check_absent(graph.entries()) };
        if Some(device) != self.device() || self.bufts.len() > 1 {
            self.bufts.iter().try_for_each(|&buft| check::memory(device, buft))?;
        }
        check::graph(graph.entries(), affected, &[device])?;
        meta_rules::check(graph.entries(), device, |_| true)
    }

    /// Checks the entries that were not yet found to run on `device`. A device implemented in Rust is asked about all
    /// entries each time: such a device may judge by names, which plans don't compare, or change its answer.
    fn judge(&self, graph: &Graph<'_>, device: Option<Device>, unjudged: Unjudged) -> Result<()> {
        match unjudged {
            _ if device.is_some_and(Device::is_driven) => return self.check(graph, device, None),
            Unjudged::All => return self.check(graph, device, None),
            Unjudged::Entries(affected) => self.check(graph, device, Some(&affected))?,
            Unjudged::Nothing => {}
        }
        if cfg!(debug_assertions) {
            let all = self.check(graph, device, None);
            debug_assert!(!matches!(all, Err(Error::Unsupported { .. })), "the verdict is another graph's: {all:?}");
        }
        Ok(())
    }

    /// Checks that the graph can run on `device`, and plans for it, unless the current plan fits. Returns whether C has
    /// a plan for this very graph. With `by_size`, C may decide by sizes, when it allocates, whether it needs another
    /// plan.
    fn prepare(&mut self, graph: &Graph<'_>, places: Places, device: Option<Device>, by_size: bool) -> Result<bool> {
        self.check_alive()?;
        let by_size = by_size && self.bufts.len() == 1 && !self.is_sharded();
        let verdict = PlanVerdict(device);
        let known = self.raw.is_some() && self.places == places;
        match if known { self.plan.fit(graph, verdict, by_size)? } else { Fit::Other } {
            Fit::Same(unjudged) => {
                self.judge(graph, device, unjudged)?;
                self.plan.judge(verdict);
                return Ok(true);
            }
            Fit::Sizes(unjudged) => {
                self.plan.suspend();
                return self.judge(graph, device, unjudged).map(|()| false);
            }
            Fit::Other => {}
        }
        self.plan.clear();
        if self.bufts.iter().map(|b| b.is_extra()).collect::<Result<Vec<_>>>()?.contains(&true) {
            let why = "a buffer type that repacks is for weights only";
            return Err(Error::unsupported("GraphAllocator", [], format!("{:?}", self.bufts), why));
        }
        self.check(graph, device, None)?;
        if self.is_sharded() {
            // Freeing the C allocator also drops the split states that C keeps for tensors at the allocator's
            // addresses.
            self.raw = None;
        }
        if self.raw.is_none() {
            self.raw = Some(RawAllocator::new(&self.bufts)?);
        }
        let mark = log::mark();
        let as_built = AsBuilt::after(graph);
        let done = self.with_raw(|raw| raw.reserve(graph.as_ptr(), &places));
        drop(as_built);
        if !done? {
            return Err(self.out_of_memory(mark));
        }
        self.plan.set(graph, verdict)?;
        self.places = places;
        log::note(::log::Level::Debug, || {
            let sizes = self.buffer_sizes().unwrap_or_default();
            let memory = self.bufts.iter().zip(sizes).map(|(buft, size)| format!("{size} bytes in {}", buft.name()));
            format!("planned a graph of {} nodes: {}", graph.n_nodes(), memory.collect::<Vec<_>>().join(", "))
        });
        Ok(true)
    }

    fn check_alive(&self) -> Result<()> {
        self.bufts.iter().filter_map(|b| b.device()).try_for_each(Device::check_alive)
    }

    fn with_raw<R>(&mut self, f: impl FnOnce(&mut RawAllocator) -> Result<R>) -> Result<R> {
        let _alone = meta::lock_if_meta("GraphAllocator", self.device().into_iter(), false)?;
        let result = attempt(&mut self.raw, f);
        if self.raw.is_none() {
            self.plan.clear(); // it belonged to the C object
            self.check_alive()?; // a meta device asserts that a member has memory, which a lost one has not
        }
        result
    }

    /// Makes the error for a plan whose memory could not be allocated, and drops the plan: C's allocator then looks
    /// planned but has no memory (H21).
    fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.plan.clear();
        // If an RPC server was lost, the allocation failed for that reason, which is the error to return.
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        let names: Vec<_> = self.bufts.iter().map(|b| b.name()).collect();
        let what = format!("a buffer of type {}", names.join(" or ")).into();
        Error::OutOfMemory { what, bytes: None, log }
    }
}

debug!(GraphAllocator, |this| buffer_types = &this.bufts);

/// Calls into a C allocator, and leaks it if the call did not return normally. The next graph gets a new one.
fn attempt<R>(raw: &mut Option<RawAllocator>, f: impl FnOnce(&mut RawAllocator) -> Result<R>) -> Result<R> {
    let live = raw.as_mut().ok_or(Error::Poisoned { object: "graph allocator" })?;
    let result = f(live);
    if let Some(raw) = raw.take_if(|_| guard::interrupted(&result)) {
        callback::forget(raw);
    }
    result.map_err(guard::or_out_of_memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::dtype::DType;

    /// A new plan may use other memory: no earlier placement is reused.
    #[test]
    fn allocator_reuses_a_placement_until_the_next_plan() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let y = ctx.neg(x).unwrap();
        let [one, other] = [y, ctx.sqr(y).unwrap()].map(|t| ctx.graph([t]).unwrap());
        let mut backend = Backend::cpu().unwrap();
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        for _ in 0..2 {
            allocator.allocate(&one, Places::default(), &mut backend).unwrap();
            assert!(allocator.plan.is_recorded(), "reused next time");
        }
        assert!(x.ptr().data().is_null() && y.ptr().buffer().is_null(), "tensors are left without memory");
        allocator.reserve(&other).unwrap();
        assert!(!allocator.plan.is_recorded(), "another plan");
    }
}
