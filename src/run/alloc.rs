//! Allocates graphs.

use super::Run;
use crate::alloc::{GraphAllocator, Places};
use crate::backend::Backend;
use crate::entries::Kind;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::log;
use crate::sched::{Engine, Pins, Sched};
use crate::tensor::Tensor;

impl Sched {
    /// Allocates `graph` on the devices where it will run (`ggml_backend_sched_alloc_graph`). Use the result to set
    /// inputs, compute, and read results. Dropping it frees the memory for the next graph.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if no backend can run an operation or reach its weights;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); [`Error::Poisoned`](crate::Error::Poisoned) after a
    /// computation that failed inside ggml; [`Error::Backends`](crate::Error::Backends) if a backend's replacement is
    /// not valid in its position; [`Error::InUse`](crate::Error::InUse) within the closure of an [`Run::compute_async`]
    /// that uses a tensor of the graph.
    #[doc(alias = "ggml_backend_sched_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>) -> Result<Run<'s, 'c>> {
        self.allocated("Sched::alloc", graph, &[])
    }

    /// Allocates a graph as [`Sched::alloc`] does, with some tensors pinned to backends by their indices in
    /// [`Sched::backends`]: operations run there, and inputs lie there (`ggml_backend_sched_set_tensor_backend`).
    ///
    /// Different pins need a new plan. Closures that are not pinned run on the last backend.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [2])?;
    /// let (y, z) = (ctx.sqr(x)?, ctx.neg(x)?);
    /// let graph = ctx.graph([y, z])?;
    /// let mut builder = Sched::builder();
    /// if let Ok(gpu) = Device::by_type(DeviceType::Gpu) {
    ///     builder = builder.backend(gpu.init()?);
    /// }
    /// let mut sched = builder.backend(Backend::cpu()?).build()?;
    /// let cpu = sched.backends().len() - 1;
    /// let run = sched.alloc_pinned(&graph, &[(z, cpu)])?;
    /// assert_eq!(run.backend_of(z).map(|backend| backend.device()), Some(Device::cpu()?));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`]; [`Error::NotPart`](crate::Error::NotPart) for a tensor that is not part of the graph;
    /// [`Error::Param`](crate::Error::Param) for a backend index that is out of bounds, or a tensor that is pinned
    /// twice; [`Error::Unsupported`](crate::Error::Unsupported) if the device can't run the operation, if the tensor
    /// has memory already or is a view, or if ggml ignores the pin for a backend of higher priority with the same
    /// buffer type.
    #[doc(alias = "ggml_backend_sched_set_tensor_backend")]
    pub fn alloc_pinned<'s, 'c>(
        &'s mut self,
        graph: &'s Graph<'c>,
        pins: &[(Tensor<'_>, usize)],
    ) -> Result<Run<'s, 'c>> {
        self.allocated("Sched::alloc_pinned", graph, pins)
    }

    fn allocated<'s, 'c>(
        &'s mut self,
        call: &'static str,
        graph: &'s Graph<'c>,
        pins: &[(Tensor<'_>, usize)],
    ) -> Result<Run<'s, 'c>> {
        let pins = Pins::new(call, graph, self.backends().len(), pins)?;
        log::public(|| {
            let (unset, n_unset) = inputs(call, graph)?;
            let mut engine = self.engine(graph, &pins)?;
            let placement = match &mut engine {
                Engine::One(allocator, backend) => allocator.allocate(graph, Places::default(), backend),
                Engine::Many(splitter) => splitter.allocate(graph, pins),
            }?;
            Ok(Run { engine, graph, placement, unset, n_unset, computed: false })
        })
    }
}

impl GraphAllocator {
    /// Gives `graph` memory for computations on `backend` (`ggml_gallocr_alloc_graph`). Dropping the result frees the
    /// memory for the next graph.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::GraphAllocator;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [2])?;
    /// let y = ctx.sqr(x)?;
    /// let graph = ctx.graph([y])?;
    /// let mut backend = Backend::best()?;
    /// let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    /// let mut run = allocator.alloc(&graph, &mut backend)?;
    /// run.set(x, &[3.0_f32, 4.0])?;
    /// run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [9.0, 16.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the backend's device can't run an operation, reach its
    /// weights, or use the allocator's buffer types; [`Error::OutOfMemory`](crate::Error::OutOfMemory);
    /// [`Error::InUse`](crate::Error::InUse) within the closure of a [`Run::compute_async`] that uses a tensor of the
    /// graph; [`Error::Param`](crate::Error::Param) if `choose` returned an index that is out of bounds;
    /// [`Error::Poisoned`](crate::Error::Poisoned) after a computation of the backend that failed inside ggml.
    #[doc(alias = "ggml_gallocr_alloc_graph")]
    pub fn alloc<'s, 'c>(&'s mut self, graph: &'s Graph<'c>, backend: &'s mut Backend) -> Result<Run<'s, 'c>> {
        const CALL: &str = "GraphAllocator::alloc";
        let places = self.places(CALL, graph)?;
        log::public(|| {
            let (unset, n_unset) = inputs(CALL, graph)?;
            let placement = self.allocate(graph, places, backend)?;
            Ok(Run { engine: Engine::One(self, backend), graph, placement, unset, n_unset, computed: false })
        })
    }
}

/// Whether each entry of a graph is an input, and how many inputs there are.
///
/// # Errors
///
/// [`Error::InUse`](crate::Error::InUse) if a running computation uses one of the graph's tensors.
fn inputs(call: &'static str, graph: &Graph<'_>) -> Result<(Vec<bool>, usize)> {
    graph.check_free(call)?;
    let mut unset = graph.store.unset.take();
    unset.clear();
    unset.try_reserve(graph.entries().len()).map_err(|_| Error::no_memory("a graph's inputs"))?;
    unset.extend(graph.entries().iter().map(|e| e.kind == Kind::Input));
    let n = unset.iter().filter(|&&is| is).count();
    Ok((unset, n))
}
