//! Shows how the scheduler split a graph, and results during a computation.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::raw::RawSched;
use crate::backend::Backend;
use crate::buffer;
use crate::callback::{self, State};
use crate::dtype::Element;
use crate::entries::{Entry, Kind};
use crate::error::Result;
use crate::graph::Graph;
use crate::guard;
use crate::header::{Owner, TensorPtr};
use crate::tensor::Tensor;
use crate::tensor::transfer;

/// A split: a part of a graph that runs on one backend without interruption.
#[derive(Debug)]
#[non_exhaustive]
pub struct Split<'a> {
    /// The backend that runs it.
    pub backend: &'a Backend,
    /// Its operations in order, including views.
    pub nodes: Vec<Tensor<'a>>,
    /// The tensors that are copied to its device before it runs.
    pub inputs: Vec<SplitInput<'a>>,
}

/// A tensor that is copied to a split's device.
#[derive(Debug)]
#[non_exhaustive]
pub struct SplitInput<'a> {
    /// The tensor that is copied.
    pub tensor: Tensor<'a>,
    /// The backend it is copied from.
    pub from: Option<&'a Backend>,
    /// The size of the copy in bytes.
    pub bytes: usize,
}

/// Derives the splits from an allocated graph: the scheduler puts a copy where a source lies on another device.
pub(super) fn splits<'a>(
    graph: &'a Graph<'_>,
    backend_of: impl Fn(TensorPtr) -> Option<&'a Backend>,
    copy_of: impl Fn(&Entry, usize) -> Option<TensorPtr>,
) -> Vec<Split<'a>> {
    let mut splits: Vec<Split<'a>> = Vec::new();
    let mut seen = Vec::new(); // copies that an earlier operation needed as well
    let mut views = Vec::new(); // views before the first operation
    for e in graph.entries().iter().filter(|e| e.kind == Kind::Node) {
        // SAFETY: entries live as long as the graph, which is borrowed for 'a.
        let node = unsafe { Tensor::new(e.ptr) };
        if is_view_op(e.ptr) {
            match splits.last_mut() {
                Some(split) => split.nodes.push(node),
                None => views.push(node),
            }
            continue;
        }
        let Some(backend) = backend_of(e.ptr) else { continue };
        let begins = splits.last().is_none_or(|split| {
            !std::ptr::eq(split.backend, backend) || (!split.inputs.is_empty() && has_remote_weight(graph, e, backend))
        });
        if begins {
            splits.push(Split { backend, nodes: std::mem::take(&mut views), inputs: Vec::new() });
        }
        let Some(split) = splits.last_mut() else { continue };
        split.nodes.push(node);
        for (i, src) in graph.entries().srcs(e) {
            let Some(copy) = copy_of(e, i).filter(|copy| !seen.contains(copy)) else { continue };
            seen.push(copy);
            // SAFETY: sources of the graph's tensors live as long as the graph, which is borrowed for 'a.
            let tensor = unsafe { Tensor::new(src) };
            split.inputs.push(SplitInput { tensor, from: backend_of(src), bytes: src.span().unwrap_or(0) });
        }
    }
    splits
}

/// Whether the scheduler begins a split at `e`, to free the copies of earlier weights.
fn has_remote_weight(graph: &Graph<'_>, e: &Entry, backend: &Backend) -> bool {
    graph.entries().srcs(e).any(|(_, src)| {
        matches!(src.owner(), Owner::Weights | Owner::Packed)
            && buffer::type_of(src).is_some_and(|buft| !backend.device().supports_buffer_type(buft))
    })
}

/// Operations that compute nothing, but view memory (`ggml_is_view_op`).
pub(super) fn is_view_op(t: TensorPtr) -> bool {
    matches!(
        t.op(),
        sys::GGML_OP_NONE | sys::GGML_OP_RESHAPE | sys::GGML_OP_VIEW | sys::GGML_OP_PERMUTE | sys::GGML_OP_TRANSPOSE
    )
}

/// A result that was just computed, passed to the closure of
/// [`Allocated::compute_with`](crate::Allocated::compute_with).
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a>(Tensor<'a>);

impl<'a> Observed<'a> {
    /// The tensor.
    pub fn tensor(self) -> Tensor<'a> {
        self.0
    }

    /// Reads its elements, in ggml's order (`ne[0]` innermost).
    ///
    /// # Errors
    ///
    /// [`Error::ElementType`](crate::Error::ElementType) if `T` is not its element type.
    pub fn get<T: Element>(self) -> Result<Vec<T>> {
        callback::reopened(|| transfer::read("Observed::get", self.0.ptr()))
    }
}

/// The two closures of an observed computation.
pub(super) struct Observer<A, S>(State<(A, S)>);

impl<A, S> Observer<A, S>
where
    A: FnMut(Tensor<'_>) -> bool,
    S: FnMut(Observed<'_>) -> ControlFlow<()>,
{
    pub(super) fn new(ask: A, see: S) -> Self {
        Self(State::new((ask, see)))
    }

    /// Computes the allocated graph and calls the closures.
    pub(super) fn compute(&self, raw: &mut RawSched, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        raw.set_callback(Some(on_node::<A, S>), (&raw const *self).cast_mut().cast());
        let status = raw.compute(graph);
        raw.set_callback(None, std::ptr::null_mut());
        status
    }

    /// Resumes a panic of the closures.
    pub(super) fn finish(self) {
        self.0.finish();
    }
}

/// # Safety
///
/// `tensor` must be a node of the graph being computed, with memory, and `user` the `Observer<A, S>` of that computation.
unsafe extern "C-unwind" fn on_node<A, S>(tensor: *mut sys::ggml_tensor, ask: bool, user: *mut c_void) -> bool
where
    A: FnMut(Tensor<'_>) -> bool,
    S: FnMut(Observed<'_>) -> ControlFlow<()>,
{
    // SAFETY: `user` is the live observer of this computation, by contract; a RefCell guards its closures.
    let observer = unsafe { &*user.cast::<Observer<A, S>>() };
    let answer = NonNull::new(tensor).and_then(|raw| {
        // SAFETY: `tensor` is live during the computation, by contract.
        let ptr = unsafe { TensorPtr::new(raw) };
        // SAFETY: as above; the closures accept any lifetime, so they can't keep `t` beyond the call.
        let t = unsafe { Tensor::new(ptr) };
        observer.0.run(|(wants, see)| if ask { Some(wants(t)) } else { see(Observed(t)).is_continue().then_some(true) })
    });
    match answer {
        Some(Some(answer)) => answer,
        // Stopped, or panicked. C's own stop ends only the current split; later ones would read missing results.
        _ => guard::cancel(),
    }
}
