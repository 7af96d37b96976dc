//! Computes single operations of an allocated graph.

use std::ptr::NonNull;

use ggml_sys as sys;

use crate::alloc::{bound::Bound, run};
use crate::backend::Backend;
use crate::context::raw::Pool;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::tensor::transfer;
use crate::{guard, list};

/// Computes an operation of `bound`'s graph, whose sources were computed. Its result is there until the next ones need the
/// memory.
pub(super) fn compute(bound: &Bound<'_, '_>, backend: &mut Backend, node: TensorPtr) -> Result<()> {
    const CALL: &str = "ggml_backend_graph_compute";
    // SAFETY: a pure function; `grads` is off.
    let pool = Pool::new(unsafe { sys::ggml_graph_overhead_custom(1, false) })?;
    let raw = guard::call("ggml_new_graph_custom", || {
        // SAFETY: the pool is live and was made with the room that a graph of this size takes.
        unsafe { sys::ggml_new_graph_custom(pool.as_ptr(), 1, false) }
    })?;
    let graph = NonNull::new(raw).ok_or(Error::Null { call: "ggml_new_graph_custom", log: Box::default() })?;
    guard::call("ggml_graph_add_node", || {
        // SAFETY: graph and tensor are live, and the graph has room for one.
        unsafe { sys::ggml_graph_add_node(graph.as_ptr(), node.as_ptr()) }
    })?;
    let raw = backend.as_ptr();
    run(bound, backend, CALL, || {
        // SAFETY: backend and graph are live; the operation is one of a graph that was allocated for this device, so it and
        // its sources have memory there. The call waits, so C keeps nothing.
        unsafe { sys::ggml_backend_graph_compute(raw, graph.as_ptr()) }
    })
}

/// What there is no memory for, in errors.
const COMPARED: &str = "numbers to compare";

/// A tensor's elements as `f64`, dequantised.
pub(super) fn numbers(call: &'static str, t: TensorPtr) -> Result<Vec<f64>> {
    fn all<T: Element>(call: &'static str, t: TensorPtr, f: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        list::collect(transfer::read(call, t)?.into_iter().map(f), COMPARED)
    }
    match t.dtype() {
        DType::F32 => all(call, t, |x: f32| x.into()),
        DType::F64 => all(call, t, |x: f64| x),
        DType::F16 => all(call, t, half::f16::to_f64),
        DType::BF16 => all(call, t, half::bf16::to_f64),
        DType::I8 => all(call, t, |x: i8| x.into()),
        DType::I16 => all(call, t, |x: i16| x.into()),
        DType::I32 => all(call, t, |x: i32| x.into()),
        #[expect(clippy::cast_precision_loss, reason = "numbers beyond 2^53 differ by more than that, or are equal")]
        DType::I64 => all(call, t, |x: i64| x as f64),
        blocks => {
            let whole = if t.is_contiguous() { t } else { t.root() };
            let numbers = blocks.dequantize(&transfer::read_raw(call, whole)?)?;
            list::collect(numbers.into_iter().map(f64::from), COMPARED)
        }
    }
}

/// Whether another device may start from this result. Not if that breaks what safety checks rely on: sorts get no NaN
/// from the clamp before them, and indices that sorts make are in range and distinct.
pub(super) fn may_lend(t: TensorPtr, numbers: &[f64]) -> bool {
    match t.op() {
        sys::GGML_OP_ARGSORT | sys::GGML_OP_TOP_K => false,
        sys::GGML_OP_CLAMP => !numbers.iter().any(|x| x.is_nan()),
        _ => true,
    }
}
