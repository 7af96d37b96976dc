//! The backward pass and the optimiser's steps, built by C.

use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::optimizer::Optimizer;
use crate::context::raw::Pool;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::guard::guarded;
use crate::header::TensorPtr;

/// An upper bound of the number of tensors that C creates for one operation's backward pass: seven, for a matrix
/// product, and a margin. A graph that needed more would be an error, not an overflow.
const MAX_PER_NODE: usize = 12;
/// The number of tensors created for each parameter: a contiguous copy of its gradient, the accumulation, and the step.
const PER_PARAMETER: usize = 3;

/// A parameter and its optimiser state.
pub(super) struct Parameter {
    pub(super) value: TensorPtr,
    /// The tensor that accumulates the gradients, if those of several batches are summed.
    pub(super) sum: Option<TensorPtr>,
    /// The running means of the gradients and of their squares, for `AdamW`.
    pub(super) moments: Option<[TensorPtr; 2]>,
}

/// The optimiser whose steps are built, and the tensor of its settings, which the step kernels read.
pub(super) type Steps = Option<(Optimizer, TensorPtr)>;

/// The tensors that C has built for the backward pass and the steps.
pub(super) struct BackwardGraph {
    /// The pool that owns the tensors below, and all nodes between them and the forward pass.
    pub(super) pool: Pool,
    /// The gradient of each parameter, or the tensor that adds the gradient to the sum, if there is a sum.
    pub(super) gradients: Vec<TensorPtr>,
    /// The step of each parameter, which writes to the parameter; empty without an optimiser.
    pub(super) steps: Vec<TensorPtr>,
}

/// Builds the gradients of `forward`'s last tensor, the loss, and an optimiser step for each parameter. `one` is the
/// gradient of the loss itself.
///
/// The caller has checked that the loss is differentiable (`rules::training::check`), and keeps all tensors alive as
/// long as the result is used.
pub(super) fn build(
    forward: &Graph<'_>,
    parameters: &[Parameter],
    steps: Steps,
    one: TensorPtr,
) -> Result<BackwardGraph> {
    let entries = forward.entries();
    let n_new = MAX_PER_NODE * forward.n_nodes() + PER_PARAMETER * parameters.len();
    let size = entries.len() + n_new;
    // SAFETY: the C function is a pure function of two numbers, without preconditions.
    let graph_bytes = unsafe { sys::ggml_graph_overhead_custom(size, true) };
    // SAFETY: the C function returns a constant, without preconditions.
    let tensor_bytes = unsafe { sys::ggml_tensor_overhead() };
    let pool = Pool::new(graph_bytes + n_new * tensor_bytes)?;
    // SAFETY: the pool is live, and `graph_bytes` above reserved room for a graph of this size in it.
    let raw = unsafe { guarded!(new, sys::ggml_new_graph_custom(pool.as_ptr(), size, true)) }?;

    let loss = entries.last().map(|e| e.ptr).ok_or(Error::EmptyGraph)?;
    let _marks = TrainingFlags::set(loss, parameters);
    for e in entries.iter() {
        // SAFETY: `size` counts all entries, so the graph has room. Entries come in topological order, so every
        // source is in the graph and C does not recurse. The tensors outlive the graph, used in this function only.
        unsafe { guarded!(call, sys::ggml_build_forward_expand(raw.as_ptr(), e.ptr.as_ptr())) }?;
    }
    // SAFETY: `raw` lives in the pool; the call only reads it.
    let n_nodes = usize::try_from(unsafe { sys::ggml_graph_n_nodes(raw.as_ptr()) }).unwrap_or(0);
    // The list has an entry per node. The last node is the loss, whose gradient is `one`. NULL lets C create a
    // gradient, which is computed anew each time.
    let mut accumulators = vec![ptr::null_mut(); n_nodes];
    if let Some(last) = accumulators.last_mut() {
        *last = one.as_ptr();
    }
    let first = accumulators.as_mut_ptr();
    // SAFETY: `pool` and `raw` are live and have room for `n_new` tensors; `accumulators` has one entry per node. C
    // asserts that it can derive each node (guarded), and keeps pointers only in what it wrote into the pool.
    unsafe { guarded!(call, sys::ggml_build_backward_expand(pool.as_ptr(), raw.as_ptr(), first)) }?;

    let mut gradients = Vec::with_capacity(parameters.len());
    for p in parameters {
        // SAFETY: `raw` lives in the pool and the caller keeps the parameter alive; the call only reads both.
        let grad = unsafe { sys::ggml_graph_get_grad(raw.as_ptr(), p.value.as_ptr()) };
        let grad = NonNull::new(grad).ok_or_else(|| Error::NotPart {
            call: "ggml_graph_get_grad",
            tensor: p.value.info(),
            whole: "what the loss is derived by",
        })?;
        // SAFETY: C created the gradient in the pool just now, or it is `one`; its sources are in the pool or in
        // `forward`.
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
    // The views that were just made keep no stale address: views of gradients have no address yet, and those of
    // parameters and sums stay right because parameters and sums never move.
    Ok(BackwardGraph { pool, gradients, steps })
}

fn cont(pool: &Pool, t: TensorPtr) -> Result<TensorPtr> {
    // SAFETY: the pool is live and has room (PER_PARAMETER); `t` is in the pool or kept alive by `build`'s caller.
    let raw = unsafe { guarded!(new, sys::ggml_cont(pool.as_ptr(), t.as_ptr())) }?;
    // SAFETY: C created the tensor just now in a pool that is live.
    Ok(unsafe { TensorPtr::new(raw) })
}

/// Accumulates a gradient into `sum`, in place.
fn add(pool: &Pool, sum: TensorPtr, grad: TensorPtr) -> Result<TensorPtr> {
    // SAFETY: pool and tensors are live, there is room (PER_PARAMETER), and both have the parameter's shape. The
    // result keeps both as sources and is a view of the sum, which is neither an input nor part of weights.
    let raw = unsafe { guarded!(new, sys::ggml_add_inplace(pool.as_ptr(), sum.as_ptr(), grad.as_ptr())) }?;
    // SAFETY: C created the tensor just now in a pool that is live.
    Ok(unsafe { TensorPtr::new(raw) })
}

/// Builds the step of one parameter. C reads gradient and moments with the parameter's strides and type (H18): all of
/// these are contiguous and `f32`.
fn step(pool: &Pool, p: &Parameter, grad: TensorPtr, optimizer: Optimizer, settings: TensorPtr) -> Result<TensorPtr> {
    let (c, w, g, s) = (pool.as_ptr(), p.value.as_ptr(), grad.as_ptr(), settings.as_ptr());
    let raw = match (optimizer, p.moments) {
        (Optimizer::AdamW(_), Some([m, v])) => {
            // SAFETY: the pool has room (PER_PARAMETER); all tensors are live and of the parameter's shape; `TrainingFlags`
            // has flagged the parameter; `settings` has seven values (`n_values`). The result keeps all as sources.
            unsafe { guarded!(new, sys::ggml_opt_step_adamw(c, w, g, m.as_ptr(), v.as_ptr(), s)) }?
        }
        _ => {
            // SAFETY: the pool has room (PER_PARAMETER); all tensors are live and of the parameter's shape;
            // `TrainingFlags` has flagged the parameter; `settings` has two values, which C asserts. The result keeps
            // all as sources.
            unsafe { guarded!(new, sys::ggml_opt_step_sgd(c, w, g, s)) }?
        }
    };
    // SAFETY: C created the tensor just now in a pool that is live.
    Ok(unsafe { TensorPtr::new(raw) })
}

/// Flags the loss and the parameters while C builds the backward pass, and removes the flags on drop. If they stayed,
/// they would turn leaves of later graphs into nodes, and make a second training derive the first one's loss.
struct TrainingFlags(Vec<(TensorPtr, i32)>);

impl TrainingFlags {
    fn set(loss: TensorPtr, parameters: &[Parameter]) -> Self {
        let parameter = sys::GGML_TENSOR_FLAG_PARAM.cast_signed();
        let marks = parameters.iter().map(|p| (p.value, parameter));
        let marks = Self(marks.chain([(loss, sys::GGML_TENSOR_FLAG_LOSS.cast_signed())]).collect());
        marks.0.iter().for_each(|(t, flag)| t.add_flags(*flag));
        marks
    }
}

impl Drop for TrainingFlags {
    fn drop(&mut self) {
        self.0.iter().for_each(|(t, flag)| t.remove_flags(*flag));
    }
}
