//! Compares two devices operation by operation, to find the one whose results are wrong.

mod copy;
mod numbers;
mod report;

use super::Run;
use super::part::PartGraph;
use crate::alloc::GraphAllocator;
use crate::backend::Backend;
use crate::callback;
use crate::context::Context;
use crate::device::meta;
use crate::entries::Kind;
use crate::error::Result;
use crate::header::TensorPtr;
use crate::list;
use crate::options::options;
use crate::rules::indices;
use crate::tensor::transfer;

pub use report::{Compared, Comparison, Mismatch};

options! {
    /// How two devices are compared by [`Run::compare`], whose documentation has an example.
    ///
    /// ```
    /// use ggml::run::Compare;
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

impl Run<'_, '_> {
    /// Computes the graph, and a copy of it on `other`, one operation at a time, and compares the results
    /// (`ggml_backend_compare_graph_backend`, `ggml_backend_graph_copy`).
    ///
    /// Weights, states and inputs are copied to the other device, in addition to its memory for results. States that
    /// the graph writes to change once, as by [`Run::compute`]. Closures of custom operations are called for
    /// both devices.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::{GraphAllocator, run::Compare};
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [4])?;
    /// let y = ctx.soft_max(ctx.scale(x, 0.5)?)?;
    /// let graph = ctx.graph([y])?;
    /// let mut backend = Backend::best()?;
    /// let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    /// let mut run = allocator.alloc(&graph, &mut backend)?;
    /// run.set(x, &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let comparison = run.compare(&mut Backend::cpu()?, Compare::new())?;
    /// assert!(comparison.agrees(), "{comparison}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Run::compute`], for both devices; [`Error::Packed`](crate::Error::Packed) for repacked weights, which can't be
    /// copied; [`Error::OutOfMemory`](crate::Error::OutOfMemory); [`Error::Unsupported`](crate::Error::Unsupported) if the
    /// graph is allocated for several backends, or if the other device can't run it.
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_compare_graph_backend")]
    #[doc(alias = "ggml_backend_graph_copy")]
    #[doc(alias = "ggml_backend_graph_copy_free")]
    pub fn compare(&mut self, other: &mut Backend, how: Compare) -> Result<Comparison> {
        const CALL: &str = "Run::compare";
        callback::check_reentry(CALL)?;
        let backend = self.engine.only(CALL)?;
        let reference = backend.name();
        for device in [backend.device(), other.device()] {
            let why = "a meta device computes whole graphs only, not single operations; compare its members";
            meta::before_use(CALL, device, why)?;
        }
        other.check()?;
        let name = other.name();
        let graph = self.graph;
        let memory = other.device().buffer_type();
        // `buffers` is declared before the context: buffers must outlive the headers of the leaves in them.
        let mut buffers = Vec::new();
        let ctx = Context::new();
        let copies = copy::tensors(CALL, &ctx, graph, memory, &mut buffers)?;
        let copied = copy::graph(graph, &copies)?;
        let mut allocator = GraphAllocator::new(memory);
        let mut theirs = allocator.alloc(&copied, other)?;
        let _live = self.begin(CALL)?;
        for (e, copy) in graph.entries().iter().zip(&copies).filter(|(e, _)| e.kind == Kind::Input) {
            theirs.set_bytes(*copy, &transfer::read_raw(CALL, e.ptr)?)?;
        }
        let _their_live = theirs.begin(CALL)?;

        let mut nodes = Vec::new();
        for (e, copy) in graph.entries().iter().zip(&copies).filter(|(e, _)| e.kind == Kind::Node) {
            if e.ptr.is_view_op() {
                continue;
            }
            self.step(CALL, e.ptr)?;
            theirs.step(CALL, copy.ptr())?;
            let left = numbers::of(CALL, e.ptr)?;
            let node = Compared::new(nodes.len(), e.ptr, &left, &numbers::of(CALL, copy.ptr())?, how.tolerance);
            let stops = node.deviates && how.stop;
            list::push(&mut nodes, node, "what was compared")?;
            if stops {
                return Ok(Comparison { reference, other: name, nodes });
            }
            if how.apart && indices::may_lend(e.ptr, &left) {
                lend(CALL, e.ptr, copy.ptr())?;
            }
        }
        self.computed = true;
        Ok(Comparison { reference, other: name, nodes })
    }

    /// Computes one operation of the graph. Its sources must have been computed.
    fn step(&mut self, call: &'static str, node: TensorPtr) -> Result<()> {
        let status = self.call_c(call, |engine, _| PartGraph::new(&[node])?.compute(engine.only(call)?));
        self.end(call, status)
    }
}

/// Overwrites the result `to` by `from`, the same result on the other device. If the result is not contiguous, all of
/// its root is copied.
fn lend(call: &'static str, from: TensorPtr, to: TensorPtr) -> Result<()> {
    let (from, to) = if from.is_contiguous() { (from, to) } else { (from.root(), to.root()) };
    transfer::write_raw(call, to, &transfer::read_raw(call, from)?)
}
