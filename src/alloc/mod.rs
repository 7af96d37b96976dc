//! Allocates graphs on one device, without a scheduler.

pub(crate) mod bound;
mod compare;
mod graph_plan;
mod memory;
pub(crate) mod placement;
pub(crate) mod plan;
pub(crate) mod raw;

use std::ffi::c_int;
use std::fmt;

use crate::buffer::BufferType;
use crate::device::Device;
use crate::device::meta;
use crate::entries::Kind;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::rules::meta as meta_rules;
use crate::rules::run as check;
use crate::tensor::Tensor;
use crate::{guard, list, log};
use bound::Bound;
use plan::{Fit, Plan};
use raw::{Places, RawAllocator};

pub use compare::{Compare, Compared, Comparison, Mismatch};
pub use graph_plan::GraphPlan;
pub use memory::GraphMemory;
use memory::run;
use placement::AsBuilt;

/// Allocates memory for graphs from one or several buffer types (`ggml_gallocr_t`), for computations on one backend.
///
/// Memory grows to fit the largest graph, and is planned anew whenever a graph differs from the previous one.
#[doc(alias = "ggml_gallocr_t")]
#[doc(alias = "ggml_gallocr_free")]
pub struct GraphAllocator {
    raw: Option<RawAllocator>,
    /// Not empty, without duplicates.
    bufts: Box<[BufferType]>,
    choose: Option<Box<Choose>>,
    plan: Plan,
    /// The buffer types that the plan was made with, by tensor.
    places: Places,
}

/// Returns the index of a tensor's buffer type.
type Choose = dyn Fn(Tensor<'_>) -> usize + Send;

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
        let divided = bufts.len() > 1 && bufts.iter().filter_map(|b| b.device()).any(meta::is_meta);
        if bufts.is_empty() || twice || divided {
            return Err(Error::Param {
                call: "GraphAllocator::with_buffers",
                name: "bufts",
                value: format!("{bufts:?}").into(),
                expected: "it needs one buffer type or more, no duplicates, and a meta device's only on its own".into(),
            });
        }
        Ok(Self::over(bufts.into(), Some(Box::new(choose))))
    }

    fn over(bufts: Box<[BufferType]>, choose: Option<Box<Choose>>) -> Self {
        Self { raw: None, bufts, choose, plan: Plan::default(), places: Places::default() }
    }

    /// The buffer types, as given; one for [`GraphAllocator::new`].
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
        (0..self.bufts.len()).map(|i| self.raw.as_ref().map_or(Ok(0), |raw| raw.buffer_size(i))).collect()
    }

    /// Bytes of each buffer type that a new allocator would take for graphs like this one, without taking them
    /// (`ggml_gallocr_reserve_n_size`).
    ///
    /// # Errors
    ///
    /// As [`GraphAllocator::alloc`].
    #[doc(alias = "ggml_gallocr_reserve_n_size")]
    pub fn sizes(&self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        let places = self.places("GraphAllocator::sizes", graph)?;
        log::public(|| {
            let bound = Bound::new("GraphAllocator::sizes", graph)?;
            self.check(graph, None)?;
            // A temporary allocator: measuring leaves the C object without its memory (H21).
            let mut raw = Some(RawAllocator::new(&self.bufts)?);
            let _as_built = AsBuilt::after(graph);
            attempt(&mut raw, |raw| raw.sizes(bound.graph_ptr(), &places, self.bufts.len()))
        })
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
        let places = self.places("GraphAllocator::reserve", graph)?;
        log::public(|| self.prepare(&Bound::new("GraphAllocator::reserve", graph)?, places, false).map(drop))
    }

    /// Gives `graph` memory (`ggml_gallocr_alloc_graph`). Dropping the result frees the memory for the next graph.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device can't run an operation or reach its weights; [`Error::OutOfMemory`];
    /// [`Error::InUse`] within the closure of a [`compute_async`](crate::Allocated::compute_async) that uses a tensor
    /// of the graph; [`Error::Param`] if `choose` returned an index that is out of bounds.
    #[doc(alias = "ggml_gallocr_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<GraphMemory<'s, 'c>> {
        let places = self.places("GraphAllocator::alloc", graph)?;
        log::public(|| self.allocate(Bound::new("GraphAllocator::alloc", graph)?, places))
    }

    fn allocate<'s, 'c>(&'s mut self, mut bound: Bound<'s, 'c>, places: Places) -> Result<GraphMemory<'s, 'c>> {
        let planned = self.prepare(&bound, places, true)?;
        if planned && self.plan.put_back(&mut bound) {
            return Ok(GraphMemory { allocator: self, bound });
        }
        self.plan.forget();
        if self.device().is_some_and(meta::is_meta) {
            self.plan.count(bound.graph());
        }
        let mark = log::mark();
        let as_built = AsBuilt::after(bound.graph());
        if !self.with_raw(|raw| raw.alloc(bound.graph_ptr()))? {
            return Err(self.out_of_memory(mark));
        }
        if !planned {
            self.plan.adopt(bound.graph());
        }
        // Other devices may initialise tensors when they get memory, which reuse would skip.
        let reusable = self.bufts.iter().all(|b| b.is_host());
        self.plan.record(&mut bound, reusable, self.device().is_some_and(meta::is_meta))?;
        drop(as_built);
        Ok(GraphMemory { allocator: self, bound })
    }

    /// Asks the user's closure for buffer types. Called before the graph is bound: the closure may run any safe code,
    /// such as allocating the same graph elsewhere.
    fn places(&self, call: &'static str, graph: &Graph<'_>) -> Result<Places> {
        let mut places = Places::default();
        let Some(choose) = self.choose.as_ref().filter(|_| self.bufts.len() > 1) else { return Ok(places) };
        for e in graph.entries().iter() {
            // SAFETY: entries live as long as the graph, which is borrowed for the call.
            let chosen = choose(unsafe { Tensor::new(e.ptr) });
            let place = c_int::try_from(chosen).ok().filter(|_| chosen < self.bufts.len());
            let place = place.ok_or_else(|| Error::Param {
                call,
                name: "choose",
                value: chosen.to_string().into(),
                expected: format!("there are {} buffer types for {}", self.bufts.len(), e.ptr.info()).into(),
            })?;
            // C expects them in the order of its own node and leaf lists.
            let list = if e.kind == Kind::Node { &mut places.nodes } else { &mut places.leafs };
            list::push(list, place, "the places of tensors")?;
        }
        Ok(places)
    }

    /// The device of the first buffer type; it is assumed to compute unless a backend is given.
    fn device(&self) -> Option<Device> {
        self.bufts.first().and_then(|b| b.device())
    }

    /// The checks that don't need to know which backend will compute.
    fn check(&self, graph: &Graph<'_>, affected: Option<&[usize]>) -> Result<()> {
        self.check_alive()?;
        for device in self.bufts.iter().filter_map(|b| b.device()) {
            check::fits_wire(graph.entries(), device)?;
        }
        let Some(device) = self.device() else { return meta_rules::check_absent(graph.entries()) };
        check::graph(graph.entries(), affected, &[device])?;
        meta_rules::check(graph.entries(), device, |_| true)
    }

    /// Checks that the graph can run, and plans for it, unless the current plan fits. Returns whether C has a plan for
    /// this very graph. Where `by_size` allows that, C decides by sizes whether it needs another when it allocates.
    fn prepare(&mut self, bound: &Bound<'_, '_>, places: Places, by_size: bool) -> Result<bool> {
        self.check_alive()?;
        let graph = bound.graph();
        let fit = if self.raw.is_some() && self.places == places { self.plan.fit(graph)? } else { Fit::Other };
        let divided = self.device().is_some_and(meta::is_meta);
        let by_size = by_size && self.bufts.len() == 1 && !divided;
        match fit {
            Fit::Same => return Ok(true),
            Fit::Sizes(affected) if by_size => {
                self.plan.suspend();
                self.check(graph, Some(&affected))?;
                return Ok(false);
            }
            _ => {}
        }
        self.plan.clear();
        if self.bufts.iter().map(|b| b.is_extra()).collect::<Result<Vec<_>>>()?.contains(&true) {
            let why = "a buffer type that repacks is for weights only";
            return Err(Error::unsupported("GraphAllocator", [], format!("{:?}", self.bufts), why));
        }
        self.check(graph, None)?;
        if divided {
            // Freeing the allocator also drops the split states that C keeps for tensors at its addresses.
            self.raw = None;
        }
        if self.raw.is_none() {
            self.raw = Some(RawAllocator::new(&self.bufts)?);
        }
        let mark = log::mark();
        let as_built = AsBuilt::after(graph);
        let done = self.with_raw(|raw| raw.reserve(bound.graph_ptr(), &places));
        drop(as_built);
        if !done? {
            return Err(self.out_of_memory(mark));
        }
        self.plan.set(graph)?;
        self.places = places;
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
        }
        result
    }

    /// The error for a failed plan. C's allocator then looks planned but has no memory (H21), so the plan is dropped.
    fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.plan.clear();
        // A lost server also reports a failed allocation: name the cause.
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        let names: Vec<_> = self.bufts.iter().map(|b| b.name()).collect();
        let what = format!("a buffer of type {}", names.join(" or ")).into();
        Error::OutOfMemory { what, bytes: None, log }
    }
}

impl fmt::Debug for GraphAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphAllocator").field("buffer_types", &self.bufts).finish_non_exhaustive()
    }
}

/// Calls into a C allocator, and leaks it if the call did not return normally. The next graph gets a new one.
fn attempt<R>(raw: &mut Option<RawAllocator>, f: impl FnOnce(&mut RawAllocator) -> Result<R>) -> Result<R> {
    let live = raw.as_mut().ok_or(Error::Poisoned { object: "graph allocator" })?;
    let result = f(live);
    if let Some(raw) = raw.take_if(|_| guard::interrupted(&result)) {
        raw.leak();
    }
    result.map_err(guard::or_out_of_memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::device::Device;
    use crate::dtype::DType;

    /// A new plan may use other memory: no earlier placement is reused.
    #[test]
    fn allocator_reuses_a_placement_until_the_next_plan() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let y = ctx.neg(x).unwrap();
        let [one, other] = [y, ctx.sqr(y).unwrap()].map(|t| ctx.graph([t]).unwrap());
        let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
        for _ in 0..2 {
            drop(allocator.alloc(&one).unwrap());
            assert!(allocator.plan.is_recorded(), "put back next time");
        }
        assert!(x.ptr().data().is_null() && y.ptr().buffer().is_null(), "tensors are left without memory");
        allocator.reserve(&other).unwrap();
        assert!(!allocator.plan.is_recorded(), "another plan");
    }
}
