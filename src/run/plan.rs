//! A graph prepared for a backend once, and computed many times.

use super::Run;
use super::raw::RawPlan;
use crate::callback;
use crate::debug::debug;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::guard;
use crate::tensor::Tensor;

/// An allocated graph prepared for one backend (`ggml_backend_graph_plan_t`), made by [`Run::plan`].
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [2])?;
/// let y = ctx.sqr(x)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let mut plan = run.plan()?;
/// for value in [1.0_f32, 2.0] {
///     plan.set(x, &[value; 2])?;
///     plan.compute()?;
///     assert_eq!(plan.get::<f32>(y)?, [value * value; 2]);
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_graph_plan_t")]
#[doc(alias = "ggml_backend_graph_plan_free")]
pub struct GraphPlan<'p, 's, 'c> {
    /// The C plan; `None` once it was leaked.
    raw: Option<RawPlan>,
    run: &'p mut Run<'s, 'c>,
}

impl<'s, 'c> Run<'s, 'c> {
    /// Prepares the graph for a CPU backend: allocates working memory and chooses each operation's thread count once,
    /// not for each computation (`ggml_backend_graph_plan_create`, `ggml_graph_plan`).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the graph is allocated for a local CPU backend alone; [`Error::Exception`] if
    /// memory runs out.
    #[doc(alias = "ggml_backend_graph_plan_create")]
    #[doc(alias = "ggml_graph_plan")]
    pub fn plan(&mut self) -> Result<GraphPlan<'_, 's, 'c>> {
        const CALL: &str = "Run::plan";
        callback::check_reentry(CALL)?;
        let _live = self.live(CALL)?;
        self.engine.choose_threads(self.graph)?;
        let graph = self.graph.as_ptr();
        let backend = self.engine.only(CALL)?;
        backend.check()?;
        let device = backend.device();
        if !device.runs_closures() {
            let why = "only a local CPU backend makes plans; use Run::compute instead";
            return Err(Error::unsupported(CALL, [], device.name(), why));
        }
        // SAFETY: the device is a local CPU (checked above), whose backends make plans, and the graph was allocated for
        // the backend. The plan borrows `self`, so graph, memory, backend, threads and closure stay as they are.
        let raw = unsafe { RawPlan::new(backend, graph) }?;
        Ok(GraphPlan { raw: Some(raw), run: self })
    }
}

impl GraphPlan<'_, '_, '_> {
    /// Sets the whole of an input (`ggml_backend_tensor_set`).
    ///
    /// # Errors
    ///
    /// As [`Run::set`].
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        callback::check_reentry("GraphPlan::set")?;
        self.run.set(t, data)
    }

    /// Computes the graph (`ggml_backend_graph_plan_compute`, `ggml_graph_compute`).
    ///
    /// # Errors
    ///
    /// As [`Run::compute`].
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_graph_plan_compute")]
    #[doc(alias = "ggml_graph_compute")]
    #[doc(alias = "ggml_graph_compute_with_ctx")]
    pub fn compute(&mut self) -> Result<()> {
        const CALL: &str = "GraphPlan::compute";
        let live = self.run.begin(CALL)?;
        let plan = self.raw.as_ref().ok_or(Error::Poisoned { object: "graph plan" })?;
        let status = self.run.call_c(CALL, |_, _| guard::compute("ggml_backend_graph_plan_compute", || plan.compute()));
        drop(live);
        self.run.finish(CALL, status)
    }

    /// Reads a result, an input or an output tensor (`ggml_backend_tensor_get`).
    ///
    /// # Errors
    ///
    /// As [`Run::get`].
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        callback::check_reentry("GraphPlan::get")?;
        self.run.get(t)
    }
}

impl Drop for GraphPlan<'_, '_, '_> {
    fn drop(&mut self) {
        // An interrupted backend was leaked, and may still use the plan. So the plan is leaked, too.
        if let Some(raw) = self.raw.take().filter(|_| self.run.backends().iter().any(|b| b.check().is_err())) {
            callback::forget(raw);
        }
    }
}

debug!(GraphPlan<'_, '_, '_>, |this| run = &this.run);
