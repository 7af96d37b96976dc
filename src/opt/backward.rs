//! The backward pass and the optimiser's steps, as C builds them.

use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::optimizer::Optimizer;
use crate::context::raw::Pool;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::guard;
use crate::header::TensorPtr;

/// The most tensors that C makes to pass a gradient through one operation (a product of matrices: seven), with room to
/// spare. A graph that needed more would be an error, not an overflow.
const MOST_PER_NODE: usize = 12;
/// The most tensors that are made for each parameter: a copy of its gradient, the sum with earlier ones, and the step.
const PER_PARAMETER: usize = 3;

/// A parameter and what goes with it.
pub(super) struct Parameter {
    pub(super) value: TensorPtr,
    /// What its gradients are added to, if they are those of several batches.
    pub(super) sum: Option<TensorPtr>,
    /// The means of its gradients and of their squares, for an optimiser that keeps such.
    pub(super) moments: Option<[TensorPtr; 2]>,
}

/// The optimiser whose steps are to be built, and the tensor of what its kernels read.
pub(super) type Steps = Option<(Optimizer, TensorPtr)>;

/// What C built.
pub(super) struct Backward {
    /// Holds the tensors below, and all that lies between them and the forward pass.
    pub(super) pool: Pool,
    /// The gradient of each parameter, or where there is one, its sum, which is written to.
    pub(super) gradients: Vec<TensorPtr>,
    /// The step of each parameter, which writes to it; none without an optimiser.
    pub(super) steps: Vec<TensorPtr>,
}

/// Builds the gradients of `forward`'s last tensor, the loss, and a step of the optimiser for each parameter. `one` is the
/// loss's own gradient.
///
/// The caller has checked that the loss can be derived (`rules::training::check`), and keeps all tensors alive as long as the
/// result is used.
pub(super) fn build(forward: &Graph<'_>, parameters: &[Parameter], steps: Steps, one: TensorPtr) -> Result<Backward> {
    let entries = forward.entries();
    let n_new = MOST_PER_NODE * forward.n_nodes() + PER_PARAMETER * parameters.len();
    let size = entries.len() + n_new;
    // SAFETY: a pure function.
    let graph_bytes = unsafe { sys::ggml_graph_overhead_custom(size, true) };
    // SAFETY: a constant.
    let tensor_bytes = unsafe { sys::ggml_tensor_overhead() };
    let pool = Pool::new(graph_bytes + n_new * tensor_bytes)?;
    let raw = guard::call("ggml_new_graph_custom", || {
        // SAFETY: the pool is live and was made with the room that a graph of this size takes.
        unsafe { sys::ggml_new_graph_custom(pool.as_ptr(), size, true) }
    })?;
    let raw = NonNull::new(raw).ok_or(Error::Null { call: "ggml_new_graph_custom", log: Box::default() })?;

    let loss = entries.last().map(|e| e.ptr).ok_or(Error::EmptyGraph)?;
    let _marks = Marks::set(loss, parameters);
    for e in entries {
        guard::call("ggml_build_forward_expand", || {
            // SAFETY: the graph has room for all entries, and every source came before, so C does not recurse. The tensors
            // outlive the graph, which is not used beyond this function.
            unsafe { sys::ggml_build_forward_expand(raw.as_ptr(), e.ptr.as_ptr()) }
        })?;
    }
    // SAFETY: the graph is live; the call only reads it.
    let n_nodes = usize::try_from(unsafe { sys::ggml_graph_n_nodes(raw.as_ptr()) }).unwrap_or(0);
    // One for each node; the loss is the last. All other gradients are made anew in each computation.
    let mut accumulators = vec![ptr::null_mut(); n_nodes];
    if let Some(last) = accumulators.last_mut() {
        *last = one.as_ptr();
    }
    let first = accumulators.as_mut_ptr();
    guard::call("ggml_build_backward_expand", || {
        // SAFETY: pool and graph are live and have room; there is one accumulator for each node. C refuses what it can't
        // derive by an assertion, and keeps nothing but what it wrote into the pool.
        unsafe { sys::ggml_build_backward_expand(pool.as_ptr(), raw.as_ptr(), first) }
    })?;

    let mut gradients = Vec::with_capacity(parameters.len());
    for p in parameters {
        // SAFETY: graph and tensor are live; the call only reads them.
        let grad = unsafe { sys::ggml_graph_get_grad(raw.as_ptr(), p.value.as_ptr()) };
        let grad = NonNull::new(grad).ok_or_else(|| Error::NotPart {
            call: "ggml_graph_get_grad",
            tensor: p.value.info(),
            whole: "what the loss is derived by",
        })?;
        // SAFETY: made by C just now in the pool, or `one`; its sources are in the pool or in the forward pass.
        let grad = unsafe { TensorPtr::new(grad) };
        let grad = if grad.is_contiguous() { grad } else { cont(&pool, grad)? };
        gradients.push(p.sum.map_or(Ok(grad), |sum| add(&pool, sum, grad))?);
    }
    let steps = steps.into_iter().flat_map(|(optimizer, settings)| {
        let each = parameters.iter().zip(&gradients);
        each.map(move |(p, &grad)| (p, grad, optimizer, settings))
    });
    let steps = steps.map(|(p, grad, optimizer, settings)| step(&pool, p, grad, optimizer, settings));
    let steps = steps.collect::<Result<_>>()?;
    // No view among the new tensors keeps an address that another allocation gave: they look at gradients, which have none
    // yet, and at parameters and sums, which stay where they are.
    Ok(Backward { pool, gradients, steps })
}

fn cont(pool: &Pool, t: TensorPtr) -> Result<TensorPtr> {
    let raw = guard::call("ggml_cont", || {
        // SAFETY: pool and tensor are live, and there is room (PER_PARAMETER).
        unsafe { sys::ggml_cont(pool.as_ptr(), t.as_ptr()) }
    })?;
    made("ggml_cont", raw)
}

/// Adds a gradient to the sum of earlier ones, in place.
fn add(pool: &Pool, sum: TensorPtr, grad: TensorPtr) -> Result<TensorPtr> {
    let raw = guard::call("ggml_add_inplace", || {
        // SAFETY: pool and tensors are live, there is room (PER_PARAMETER), and both are of the parameter's shape. The result
        // keeps both as sources, and looks at the sum, which is no input and lies in no weights.
        unsafe { sys::ggml_add_inplace(pool.as_ptr(), sum.as_ptr(), grad.as_ptr()) }
    })?;
    made("ggml_add_inplace", raw)
}

/// The step of one parameter. C reads gradient and moments by the parameter's strides and types (H18): all are contiguous
/// and `f32`.
fn step(pool: &Pool, p: &Parameter, grad: TensorPtr, optimizer: Optimizer, settings: TensorPtr) -> Result<TensorPtr> {
    let (c, w, g, s) = (pool.as_ptr(), p.value.as_ptr(), grad.as_ptr(), settings.as_ptr());
    let (call, raw) = match (optimizer, p.moments) {
        (Optimizer::AdamW(_), Some([m, v])) => (
            "ggml_opt_step_adamw",
            guard::call("ggml_opt_step_adamw", || {
                // SAFETY: the pool has room; all tensors are live and of the parameter's shape, which is marked as one;
                // `settings` has seven values. The result keeps them as sources.
                unsafe { sys::ggml_opt_step_adamw(c, w, g, m.as_ptr(), v.as_ptr(), s) }
            })?,
        ),
        _ => (
            "ggml_opt_step_sgd",
            guard::call("ggml_opt_step_sgd", || {
                // SAFETY: as above; C asserts that `settings` has two values.
                unsafe { sys::ggml_opt_step_sgd(c, w, g, s) }
            })?,
        ),
    };
    made(call, raw)
}

fn made(call: &'static str, raw: *mut sys::ggml_tensor) -> Result<TensorPtr> {
    let raw = NonNull::new(raw).ok_or(Error::Null { call, log: Box::default() })?;
    // SAFETY: made by C just now in a live pool.
    Ok(unsafe { TensorPtr::new(raw) })
}

/// The flags by which C knows loss and parameters, for as long as it builds: left on, they would turn the leaves of
/// later graphs into nodes, and make a second training derive the first one's loss.
struct Marks(Vec<(TensorPtr, i32)>);

impl Marks {
    fn set(loss: TensorPtr, parameters: &[Parameter]) -> Self {
        let parameter = sys::GGML_TENSOR_FLAG_PARAM.cast_signed();
        let marks = parameters.iter().map(|p| (p.value, parameter));
        let marks = Self(marks.chain([(loss, sys::GGML_TENSOR_FLAG_LOSS.cast_signed())]).collect());
        marks.0.iter().for_each(|(t, flag)| t.add_flags(*flag));
        marks
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.0.iter().for_each(|(t, flag)| t.remove_flags(*flag));
    }
}
