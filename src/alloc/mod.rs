//! Graphs on one device, without a scheduler.

pub(crate) mod bound;
pub(crate) mod check;
mod compare;
mod graph_plan;
pub(crate) mod plan;
mod raw;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml_sys as sys;

use crate::backend::{Backend, check_status};
use crate::buffer::{BufferType, out_of_memory};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::tensor::Tensor;
use crate::{guard, log};
use bound::Bound;
use plan::Plan;
use raw::RawAllocator;

pub use compare::{Compare, Compared, Comparison, Mismatch};
pub use graph_plan::GraphPlan;

/// Gives graphs memory of one type (`ggml_gallocr_t`), for computations on one backend.
///
/// Memory grows with the largest graph, and is planned anew whenever a graph differs from the one before.
#[doc(alias = "ggml_gallocr_t")]
pub struct GraphAllocator {
    raw: Option<RawAllocator>,
    buft: BufferType,
    plan: Plan,
    poisoned: bool,
}

impl GraphAllocator {
    /// An allocator of memory of this type (`ggml_gallocr_new`). It takes none until it is used.
    #[doc(alias = "ggml_gallocr_new")]
    pub fn new(buft: BufferType) -> Self {
        Self { raw: None, buft, plan: Plan::default(), poisoned: false }
    }

    /// The type of memory.
    pub fn buffer_type(&self) -> BufferType {
        self.buft
    }

    /// Bytes that the allocator holds (`ggml_gallocr_get_buffer_size`).
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] where ggml fails.
    #[doc(alias = "ggml_gallocr_get_buffer_size")]
    pub fn buffer_size(&self) -> Result<usize> {
        self.raw.as_ref().map_or(Ok(0), RawAllocator::buffer_size)
    }

    /// How often memory was planned: once for each graph that differs from the one before.
    pub fn plans(&self) -> usize {
        self.plan.plans()
    }

    /// Takes the memory that graphs like this one need (`ggml_gallocr_reserve`).
    ///
    /// # Errors
    ///
    /// As [`GraphAllocator::alloc`].
    #[doc(alias = "ggml_gallocr_reserve")]
    pub fn reserve(&mut self, graph: &Graph<'_>) -> Result<()> {
        let bound = Bound::new("GraphAllocator::reserve", graph)?;
        self.prepare(&bound)
    }

    /// Gives `graph` memory (`ggml_gallocr_alloc_graph`). When the result is dropped, it is free for the next graph.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] where a tensor of the graph is allocated elsewhere, [`Error::Unsupported`] where the device can't
    /// run an operation or reach its weights, [`Error::OutOfMemory`], [`Error::Poisoned`] after an earlier failure
    /// inside ggml.
    #[doc(alias = "ggml_gallocr_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<GraphMemory<'s, 'c>> {
        let mut bound = Bound::new("GraphAllocator::alloc", graph)?;
        self.prepare(&bound)?;
        if self.plan.put_back(&mut bound) {
            return Ok(GraphMemory { allocator: self, bound });
        }
        self.plan.forget();
        let mark = log::mark();
        if !self.with_raw(|raw| raw.alloc(bound.graph_ptr()))? {
            return Err(self.out_of_memory(mark));
        }
        // Elsewhere tensors may be initialised when they get memory.
        if self.buft.is_host() {
            self.plan.record(&mut bound);
        }
        Ok(GraphMemory { allocator: self, bound })
    }

    fn prepare(&mut self, bound: &Bound<'_, '_>) -> Result<()> {
        if self.poisoned {
            return Err(Error::Poisoned { object: "graph allocator" });
        }
        let graph = bound.graph();
        if self.raw.is_some() && self.plan.fits(graph) {
            return Ok(());
        }
        self.plan.clear();
        if self.buft.is_extra()? {
            return Err(Error::Unsupported {
                op: "GraphAllocator".into(),
                operands: Box::default(),
                device: self.buft.name().into(),
                reason: "memory that rearranges tensors is for weights only".into(),
            });
        }
        if let Some(device) = self.buft.device() {
            device.check_alive()?;
            check::runnable(graph, &[device])?;
        }
        if self.raw.is_none() {
            self.raw = Some(RawAllocator::new(self.buft)?);
        }
        let mark = log::mark();
        if !self.with_raw(|raw| raw.reserve(bound.graph_ptr()))? {
            return Err(self.out_of_memory(mark));
        }
        self.plan.set(graph);
        Ok(())
    }

    fn with_raw<R>(&mut self, f: impl FnOnce(&mut RawAllocator) -> Result<R>) -> Result<R> {
        let raw = self.raw.as_mut().ok_or(Error::Poisoned { object: "graph allocator" })?;
        let result = catch_unwind(AssertUnwindSafe(|| f(raw)));
        if guard::interrupted(&result) {
            self.poisoned = true;
            if let Some(raw) = self.raw.take() {
                raw.leak();
            }
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// After a failed plan the C allocator looks planned but has no memory (H21): the next graph is planned again.
    fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.plan.clear();
        out_of_memory(self.buft, None, log)
    }
}

impl fmt::Debug for GraphAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphAllocator").field("buffer_type", &self.buft).finish_non_exhaustive()
    }
}

/// A graph with memory, for as long as it borrows its [`GraphAllocator`].
///
/// Inputs keep their values from one computation to the next; results are those of the last one.
pub struct GraphMemory<'s, 'c> {
    allocator: &'s mut GraphAllocator,
    bound: Bound<'s, 'c>,
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

    /// Computes the graph and waits for the result (`ggml_backend_graph_compute`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend's device can use the allocator's memory and run the graph,
    /// [`Error::InputNotSet`] where an input has no value yet; [`Error::Status`] or [`Error::Exception`] where the device
    /// fails.
    ///
    /// # Panics
    ///
    /// A panic in the closure of a custom operation goes on from here.
    #[doc(alias = "ggml_backend_graph_compute")]
    pub fn compute(&mut self, backend: &mut Backend) -> Result<()> {
        const CALL: &str = "ggml_backend_graph_compute";
        self.bound.check_inputs("GraphMemory::compute")?;
        self.check_backend(backend)?;
        let (raw, graph) = (backend.as_ptr(), self.bound.graph_ptr());
        run(&mut self.bound, backend, CALL, || {
            // SAFETY: backend and graph are live; all tensors have memory that the device can use and operations that it
            // supports (checked when allocated, or above). The call waits, so C keeps nothing.
            unsafe { sys::ggml_backend_graph_compute(raw, graph) }
        })?;
        self.bound.set_computed();
        Ok(())
    }

    /// Checks that the backend can compute the graph where it lies.
    fn check_backend(&self, backend: &Backend) -> Result<()> {
        backend.check()?;
        let device = backend.device();
        if Some(device) != self.allocator.buft.device() {
            check::memory(device, self.allocator.buft)?;
            check::runnable(self.bound.graph(), &[device])?;
        }
        Ok(())
    }

    /// Reads a tensor (`ggml_backend_tensor_get`).
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`](crate::Allocated::get).
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.bound.get("GraphMemory::get", t)
    }
}

/// Runs `f`, which computes the graph or a part of it on `backend`. Results of the last computation are gone; whether those
/// of this one are there, the caller says.
fn run(
    bound: &mut Bound<'_, '_>,
    backend: &mut Backend,
    call: &'static str,
    f: impl FnOnce() -> sys::ggml_status,
) -> Result<()> {
    bound.begin();
    let status = guard::compute(call, f).inspect_err(|_| backend.poison());
    // Panics of the graph's closures and of the backend's go on here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::device::Device;
    use crate::dtype::DType;

    /// Memory that is planned anew may be other memory: nothing is put back where it was before.
    #[test]
    fn a_place_is_known_until_the_next_plan() {
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
