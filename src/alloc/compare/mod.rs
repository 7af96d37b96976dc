//! Compares two devices operation by operation, to find the one whose results are wrong.

mod copy;
mod report;
mod step;

use std::fmt;

use super::{GraphAllocator, GraphMemory};
use crate::backend::Backend;
use crate::context::Context;
use crate::device::meta;
use crate::entries::Kind;
use crate::error::Result;
use crate::header::TensorPtr;
use crate::list;
use crate::options::options;
use crate::tensor::transfer;

pub use report::{Compared, Comparison, Mismatch};

options! {
    /// How two devices are compared by [`GraphMemory::compare`], whose documentation has an example.
    ///
    /// ```
    /// use ggml::Compare;
    /// let of_quantised_weights = Compare::new().with_tolerance(0.01).with_stop(true);
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Compare {
        /// Compares all results, each operation with the same operands.
        new();
        /// Sets the largest accepted relative error: a result deviates if the root mean square of the difference exceeds
        /// this fraction of the reference's root mean square. Quantised weights may need 0.01.
        with_tolerance(tolerance: f64 = 0.001);
        /// Sets whether to stop after the first result that deviates.
        with_stop(stop: bool = false);
        /// Sets whether each operation of the second device starts from the first device's results, so that a difference
        /// shows where it arises and nowhere else. (Results of `argsort` and `top_k` stay the device's own.) If `false`,
        /// differences accumulate as in normal use.
        with_apart(apart: bool = true);
    }
}

impl GraphMemory<'_, '_> {
    /// Computes the graph on `backend` and a copy of it on `other`, one operation at a time, and compares the results
    /// (`ggml_backend_compare_graph_backend`, `ggml_backend_graph_copy`).
    ///
    /// Weights, states and inputs are copied to the other device, in addition to its memory for results. States that
    /// the graph writes to change once, as by [`GraphMemory::compute`]. Closures of custom operations are called for
    /// both devices.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::{Compare, GraphAllocator};
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [4])?;
    /// let y = ctx.soft_max(ctx.scale(x, 0.5)?)?;
    /// let graph = ctx.graph([y])?;
    /// let mut backend = Backend::best()?;
    /// let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    /// let mut memory = allocator.alloc(&graph)?;
    /// memory.set(x, &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let comparison = memory.compare(&mut backend, &mut Backend::cpu()?, Compare::new())?;
    /// assert!(comparison.agrees(), "{comparison}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`GraphMemory::compute`], for both devices; [`Error::Packed`](crate::Error::Packed) for repacked weights,
    /// which can't be copied; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_compare_graph_backend")]
    #[doc(alias = "ggml_backend_graph_copy")]
    #[doc(alias = "ggml_backend_graph_copy_free")]
    pub fn compare(&mut self, backend: &mut Backend, other: &mut Backend, how: Compare) -> Result<Comparison> {
        const CALL: &str = "GraphMemory::compare";
        self.bound.check_inputs(CALL)?;
        self.check_backend(backend)?;
        other.check()?;
        let graph = self.bound.graph();
        for device in [backend.device(), other.device()] {
            let why = "a meta device computes whole graphs only, not single operations; compare its members";
            meta::before_use("GraphMemory::compare", device, why)?;
        }
        let memory = other.device().buffer_type();
        // Declared before the context: buffers must outlive the headers of the leaves in them.
        let mut buffers = Vec::new();
        let ctx = Context::new();
        let copies = copy::tensors(CALL, &ctx, graph, memory, &mut buffers)?;
        let copied = copy::graph(graph, &copies)?;
        let mut allocator = GraphAllocator::new(memory);
        let mut theirs = allocator.alloc(&copied)?;
        let _live = self.bound.begin(CALL)?;
        for (e, copy) in graph.entries().iter().zip(&copies).filter(|(e, _)| e.kind == Kind::Input) {
            theirs.bound.set_bytes(CALL, *copy, &transfer::read_raw(CALL, e.ptr)?)?;
        }
        theirs.check_backend(other)?;
        let _their_live = theirs.bound.begin(CALL)?;

        let mut nodes = Vec::new();
        let mut all = true;
        for (e, copy) in graph.entries().iter().zip(&copies).filter(|(e, _)| e.kind == Kind::Node) {
            if TensorPtr::is_view_op(e.ptr) {
                continue;
            }
            step::compute(&self.bound, backend, e.ptr)?;
            step::compute(&theirs.bound, other, copy.ptr())?;
            let left = step::numbers(CALL, e.ptr)?;
            let node = Compared::new(nodes.len(), e.ptr, &left, &step::numbers(CALL, copy.ptr())?, how.tolerance);
            let deviates = node.deviates;
            list::push(&mut nodes, node, "what was compared")?;
            if deviates && how.stop {
                all = false;
                break;
            }
            if how.apart && step::may_lend(e.ptr, &left) {
                lend(CALL, e.ptr, copy.ptr())?;
            }
        }
        if all {
            self.bound.set_computed();
        }
        Ok(Comparison { reference: backend.name(), other: other.name(), nodes })
    }
}

/// Overwrites a result by the other device's. If it is not contiguous, the whole of its root is copied.
fn lend(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    let (from, to) = if from.is_contiguous() { (from, to) } else { (from.root(), to.root()) };
    transfer::write_raw(call, to, &transfer::read_raw(call, from)?)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        report::table(self, f)
    }
}
