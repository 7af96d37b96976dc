//! A graph prepared for a backend once, and computed many times.

use std::fmt;

use super::raw::RawPlan;
use super::{GraphMemory, run};
use crate::backend::Backend;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An allocated graph prepared for one backend (`ggml_backend_graph_plan_t`), made by [`GraphMemory::plan`].
#[doc(alias = "ggml_backend_graph_plan_t")]
#[doc(alias = "ggml_backend_graph_plan_free")]
pub struct GraphPlan<'p, 's, 'c> {
    /// `None` once it was leaked.
    raw: Option<RawPlan>,
    memory: &'p mut GraphMemory<'s, 'c>,
    backend: &'p mut Backend,
}

impl<'s, 'c> GraphMemory<'s, 'c> {
    /// Prepares the graph for a CPU backend: allocates working memory and chooses each operation's thread count once,
    /// not for each computation (`ggml_backend_graph_plan_create`, `ggml_graph_plan`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend is a local CPU backend that can use the allocator's memory and run the
    /// graph; [`Error::Exception`] if memory runs out.
    #[doc(alias = "ggml_backend_graph_plan_create")]
    #[doc(alias = "ggml_graph_plan")]
    pub fn plan<'p>(&'p mut self, backend: &'p mut Backend) -> Result<GraphPlan<'p, 's, 'c>> {
        self.check_backend(backend)?;
        let device = backend.device();
        if !device.runs_closures() {
            let why = "only a local CPU backend makes plans; use GraphMemory::compute instead";
            return Err(Error::unsupported("GraphMemory::plan", [], device.name(), why));
        }
        let _live = self.bound.live("GraphMemory::plan")?;
        // SAFETY: the device is a local CPU (checked above), whose backends make plans; `check_backend` checked the rest.
        // The plan borrows `self` and `backend`, so graph, memory, threads and closure stay as they are.
        let raw = unsafe { RawPlan::new(backend, self.bound.graph_ptr()) }?;
        Ok(GraphPlan { raw: Some(raw), memory: self, backend })
    }
}

impl GraphPlan<'_, '_, '_> {
    /// Sets the whole of an input (`ggml_backend_tensor_set`).
    ///
    /// # Errors
    ///
    /// As [`GraphMemory::set`].
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        self.memory.set(t, data)
    }

    /// Computes the graph (`ggml_backend_graph_plan_compute`, `ggml_graph_compute`).
    ///
    /// # Errors
    ///
    /// As [`GraphMemory::compute`].
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_graph_plan_compute")]
    #[doc(alias = "ggml_graph_compute")]
    #[doc(alias = "ggml_graph_compute_with_ctx")]
    pub fn compute(&mut self) -> Result<()> {
        self.memory.bound.check_inputs("GraphPlan::compute")?;
        self.backend.check()?;
        let plan = self.raw.as_ref().ok_or(Error::Poisoned { object: "graph plan" })?;
        let _live = self.memory.bound.begin("GraphPlan::compute")?;
        run(&self.memory.bound, self.backend, "ggml_backend_graph_plan_compute", || plan.compute())?;
        self.memory.bound.set_computed();
        Ok(())
    }

    /// Reads a result, an input or an output tensor (`ggml_backend_tensor_get`).
    ///
    /// # Errors
    ///
    /// As [`GraphMemory::get`].
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.memory.get(t)
    }
}

impl Drop for GraphPlan<'_, '_, '_> {
    fn drop(&mut self) {
        // An interrupted backend was leaked. Leak the plan that it may still use, too.
        if let Some(raw) = self.raw.take().filter(|_| self.backend.check().is_err()) {
            raw.leak();
        }
    }
}

impl fmt::Debug for GraphPlan<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphPlan").field("memory", &self.memory).field("backend", &self.backend).finish()
    }
}
