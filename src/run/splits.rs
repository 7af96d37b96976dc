//! Where the parts of an allocated graph run, and how much memory they have.

use std::collections::HashSet;

use super::Run;
use crate::backend::Backend;
use crate::buffer;
use crate::callback;
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::sched::Engine;
use crate::tensor::Tensor;

/// A split: a part of a graph that runs on one backend without interruption.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let y = ctx.sum(ctx.sqr(ctx.arange(0.0, 4.0, 1.0)?)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// for split in run.splits()? {
///     println!("{}: {} operations, {} copies", split.backend.name(), split.nodes.len(), split.inputs.len());
/// }
/// assert_eq!(run.splits()?.len(), run.n_splits());
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Split<'a> {
    /// The backend that runs the split.
    pub backend: &'a Backend,
    /// The split's operations in order, including views.
    pub nodes: Vec<Tensor<'a>>,
    /// The tensors that are copied to the split's device before the split runs.
    pub inputs: Vec<SplitInput<'a>>,
}

/// A tensor that is copied to a split's device.
///
/// ```standalone_crate
/// # use ggml::prelude::*; let ctx = Context::new();
/// # let [(gpu, _)] = testkit::fake_gpu::devices(Default::default()); // so that this runs anywhere
/// let y = ctx.sqr(ctx.input("x", DType::F32, [4])?)?;
/// let z = ctx.neg(y)?;
/// let graph = ctx.graph([z])?;
/// let mut sched = Sched::builder().backend(gpu.init()?).backend(Backend::cpu()?).build()?;
/// let run = sched.alloc_pinned(&graph, &[(y, 0), (z, 1)])?; // on the GPU, and on the CPU
/// let splits = run.splits()?;
/// let copied = &splits[1].inputs[0];
/// assert_eq!((copied.tensor, copied.bytes), (y, 16));
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct SplitInput<'a> {
    /// The tensor that is copied.
    pub tensor: Tensor<'a>,
    /// The backend from which the tensor is copied.
    pub from: Option<&'a Backend>,
    /// The size of the copy in bytes.
    pub bytes: usize,
}

/// Derives the splits from an allocated graph. Where an operation's source lies on another device, the scheduler has
/// put a copy in its place.
fn splits<'a>(
    graph: &'a Graph<'_>,
    backend_of: impl Fn(TensorPtr) -> Option<&'a Backend>,
    copy_of: impl Fn(usize, usize) -> Option<TensorPtr>,
) -> Result<Vec<Split<'a>>> {
    const LIST: &str = "the list of splits";
    let mut splits: Vec<Split<'a>> = Vec::new();
    let mut seen = HashSet::new(); // copies that an earlier operation needed as well
    let mut views = Vec::new(); // views before the first operation
    for (entry, e) in graph.entries().iter().enumerate().filter(|(_, e)| e.kind == Kind::Node) {
        // SAFETY: entries live as long as the graph, which is borrowed for 'a.
        let node = unsafe { Tensor::new(e.ptr) };
        if e.ptr.is_view_op() {
            match splits.last_mut() {
                Some(split) => list::push(&mut split.nodes, node, LIST)?,
                None => list::push(&mut views, node, LIST)?,
            }
            continue;
        }
        let Some(backend) = backend_of(e.ptr) else { continue };
        let begins = splits.last().is_none_or(|split| {
            !std::ptr::eq(split.backend, backend) || (!split.inputs.is_empty() && has_remote_weight(graph, e, backend))
        });
        if begins {
            let nodes = std::mem::take(&mut views);
            list::push(&mut splits, Split { backend, nodes, inputs: Vec::new() }, LIST)?;
        }
        let Some(split) = splits.last_mut() else { continue };
        list::push(&mut split.nodes, node, LIST)?;
        for (i, src) in graph.entries().srcs(e) {
            seen.try_reserve(1).map_err(|_| Error::no_memory(LIST))?;
            if !copy_of(entry, i).is_some_and(|copy| seen.insert(copy.as_ptr())) {
                continue;
            }
            // SAFETY: sources of the graph's tensors live as long as the graph, which is borrowed for 'a.
            let tensor = unsafe { Tensor::new(src) };
            let input = SplitInput { tensor, from: backend_of(src), bytes: src.span().unwrap_or(0) };
            list::push(&mut split.inputs, input, LIST)?;
        }
    }
    Ok(splits)
}

/// Whether the scheduler begins a split at `e`, because it copies weights of `e` to the device. It does so to free the
/// copies of earlier weights.
fn has_remote_weight(graph: &Graph<'_>, e: &Entry, backend: &Backend) -> bool {
    graph.entries().srcs(e).any(|(_, src)| {
        matches!(src.owner(), Owner::Weights | Owner::Packed)
            && buffer::type_of(src).is_some_and(|buft| !backend.device().supports_buffer_type(buft))
    })
}

impl Run<'_, '_> {
    /// The number of splits of the graph (`ggml_backend_sched_get_n_splits`).
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub fn n_splits(&self) -> usize {
        match &self.engine {
            Engine::One(..) => 1,
            Engine::Many(splitter) => splitter.n_splits(),
        }
    }

    /// How many copies each input and each tensor copied between devices has
    /// (`ggml_backend_sched_get_n_copies`). 1, unless the scheduler was built with
    /// [`SchedBuilder::parallel`](crate::SchedBuilder::parallel).
    #[doc(alias = "ggml_backend_sched_get_n_copies")]
    pub fn n_copies(&self) -> usize {
        match &self.engine {
            Engine::One(..) => 1,
            Engine::Many(splitter) => splitter.n_copies(),
        }
    }

    /// The splits of the graph in execution order, each with the tensors that are copied to its device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn splits(&self) -> Result<Vec<Split<'_>>> {
        splits(self.graph, |t| self.engine.backend_of(t), |entry, slot| self.placement.copy_of(entry, slot))
    }

    /// The backend that a tensor of the graph was assigned to (`ggml_backend_sched_get_tensor_backend`).
    #[doc(alias = "ggml_backend_sched_get_tensor_backend")]
    pub fn backend_of(&self, t: Tensor<'_>) -> Option<&Backend> {
        self.graph.entries().position(t.ptr())?;
        self.engine.backend_of(t.ptr())
    }

    /// The graph that this run computes.
    pub fn graph(&self) -> &Graph<'_> {
        self.graph
    }

    /// The backends that compute the graph, in the scheduler's order.
    pub fn backends(&self) -> &[Backend] {
        self.engine.backends()
    }

    /// Bytes of compute memory on each backend, in the order of [`Sched::backends`](crate::Sched::backends)
    /// (`ggml_backend_sched_get_buffer_size`); for a run of a [`GraphAllocator`](crate::GraphAllocator), the sum of its
    /// buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] if ggml fails.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    pub fn buffer_sizes(&self) -> Result<Vec<usize>> {
        callback::check_reentry("Run::buffer_sizes")?;
        match &self.engine {
            Engine::One(allocator, _) => Ok(vec![allocator.buffer_sizes()?.iter().sum()]),
            Engine::Many(splitter) => splitter.buffer_sizes(),
        }
    }
}
