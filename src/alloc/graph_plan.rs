//! A graph that is made ready for a backend once, and computed many times.

use std::fmt;

use super::raw::RawPlan;
use super::{GraphMemory, run};
use crate::backend::Backend;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An allocated graph with what one backend needs to compute it (`ggml_backend_graph_plan_t`), made by
/// [`GraphMemory::plan`].
#[doc(alias = "ggml_backend_graph_plan_t")]
#[doc(alias = "ggml_backend_graph_plan_free")]
pub struct GraphPlan<'p, 's, 'c> {
    /// None once it was leaked.
    raw: Option<RawPlan>,
    memory: &'p mut GraphMemory<'s, 'c>,
    backend: &'p mut Backend,
}

impl<'s, 'c> GraphMemory<'s, 'c> {
    /// Makes the graph ready for a CPU backend: its working memory, and how many threads each operation gets
    /// (`ggml_backend_graph_plan_create`, `ggml_graph_plan`). That is done once, instead of for each computation.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the backend is one of this process's CPU, can use the allocator's memory and run the
    /// graph; [`Error::Exception`] where there is no memory.
    #[doc(alias = "ggml_backend_graph_plan_create")]
    #[doc(alias = "ggml_graph_plan")]
    pub fn plan<'p>(&'p mut self, backend: &'p mut Backend) -> Result<GraphPlan<'p, 's, 'c>> {
        self.check_backend(backend)?;
        let device = backend.device();
        if !device.runs_closures() {
            let why = "only a CPU backend makes plans";
            return Err(Error::unsupported("GraphMemory::plan", [], device.name(), why));
        }
        let _live = self.bound.live("GraphMemory::plan")?;
        // SAFETY: the device is a CPU, whose backends make plans. `self` and `backend` are borrowed for as long as the plan
        // lives: the graph, its memory, and the backend's threads and closure stay as they are.
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
    /// A panic in the closure of a custom operation goes on from here.
    #[doc(alias = "ggml_backend_graph_plan_compute")]
    #[doc(alias = "ggml_graph_compute")]
    #[doc(alias = "ggml_graph_compute_with_ctx")]
    pub fn compute(&mut self) -> Result<()> {
        self.memory.bound.check_inputs("GraphPlan::compute")?;
        self.backend.check()?;
        let plan = self.raw.as_ref().ok_or(Error::Poisoned { object: "graph plan" })?;
        let _live = self.memory.bound.live("GraphPlan::compute")?;
        run(&mut self.memory.bound, self.backend, "ggml_backend_graph_plan_compute", || plan.compute())?;
        self.memory.bound.set_computed();
        Ok(())
    }

    /// Reads a tensor (`ggml_backend_tensor_get`).
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
        // A backend that was interrupted is leaked, and with it the plan it was working on.
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
