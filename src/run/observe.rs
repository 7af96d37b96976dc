//! Shows results during a computation.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::Run;
use super::part::PartGraph;
use crate::backend::Backend;
use crate::callback::{self, CallbackCell};
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::sched::{Engine, RawSched};
use crate::tensor::Tensor;
use crate::tensor::transfer;
use crate::{guard, list, log};

impl Run<'_, '_> {
    /// Computes the graph and shows results during the computation (`ggml_backend_sched_set_eval_callback`).
    ///
    /// `ask` is called before each operation. If it returns `true`, `see` is called with the operation's result.
    /// Operations run in groups that end at those asked for, so observing few costs little. `see` can stop the
    /// computation. In both closures, [`Observed::get`] is the only call into ggml that doesn't fail with
    /// [`Error::Nested`].
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use std::ops::ControlFlow;
    /// # let ctx = Context::new();
    /// let y = ctx.sum(ctx.sqr(ctx.arange(1.0, 4.0, 1.0)?)?)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// let mut ops = Vec::new();
    /// run.compute_with(|_| true, |observed| {
    ///     ops.push(observed.tensor().op());
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(ops, ["ARANGE", "SQR", "SUM"]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if `see` stopped it; otherwise as [`Run::compute`].
    ///
    /// # Panics
    ///
    /// A panic in either closure, or in a custom operation's, stops the computation and resumes here.
    #[doc(alias = "ggml_backend_sched_set_eval_callback")]
    pub fn compute_with(
        &mut self,
        ask: impl FnMut(Tensor<'_>) -> bool,
        see: impl FnMut(Observed<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        const CALL: &str = "Run::compute_with";
        for backend in self.backends() {
            let why = "a meta device computes whole graphs only, not single operations; use `compute` and outputs";
            meta::before_use(CALL, backend.device(), why)?;
        }
        let observer = Observer(CallbackCell::new((ask, see)));
        let live = self.begin(CALL)?;
        let nodes = self.graph;
        let status = self.call_c(CALL, |engine, graph| match engine {
            Engine::One(_, backend) => observer.compute_parts(backend, nodes),
            Engine::Many(splitter) => observer.compute(splitter.raw()?, graph),
        });
        drop(live);
        observer.0.finish();
        log::public(|| self.finish(CALL, status))
    }
}

/// A result that was just computed, passed to the closure of
/// [`Run::compute_with`](crate::Run::compute_with).
///
/// ```
/// # use ggml::prelude::*;
/// use std::ops::ControlFlow;
/// # let ctx = Context::new();
/// let y = ctx.sum(ctx.sqr(ctx.arange(1.0, 4.0, 1.0)?)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let mut seen = Vec::new();
/// run.compute_with(
///     |t| t.op() == "SQR",
///     |observed| {
///         seen.extend(observed.get::<f32>().unwrap_or_default());
///         ControlFlow::Continue(())
///     },
/// )?;
/// assert_eq!(seen, [1.0, 4.0, 9.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a>(Tensor<'a>);

impl<'a> Observed<'a> {
    /// The tensor whose value was just computed.
    pub fn tensor(self) -> Tensor<'a> {
        self.0
    }

    /// Reads the result's elements, in ggml's order (`ne[0]` innermost).
    ///
    /// # Errors
    ///
    /// [`Error::ElementType`](crate::Error::ElementType) if `T` is not the tensor's element type.
    pub fn get<T: Element>(self) -> Result<Vec<T>> {
        callback::allow_reentry(|| transfer::read("Observed::get", self.0.ptr()))
    }
}

/// The two closures of an observed computation.
struct Observer<A, S>(CallbackCell<(A, S)>);

impl<A, S> Observer<A, S>
where
    A: FnMut(Tensor<'_>) -> bool,
    S: FnMut(Observed<'_>) -> ControlFlow<()>,
{
    /// Lets the scheduler compute the allocated graph, and call the two closures.
    fn compute(&self, raw: &mut RawSched, graph: *mut sys::ggml_cgraph) -> Result<sys::ggml_status> {
        raw.set_callback(Some(on_node::<A, S>), (&raw const *self).cast_mut().cast());
        let status = raw.compute(graph);
        raw.set_callback(None, std::ptr::null_mut());
        status
    }

    /// Computes the graph on one backend. As in the scheduler, each part ends where a result is asked for.
    fn compute_parts(&self, backend: &mut Backend, graph: &Graph<'_>) -> Result<sys::ggml_status> {
        let mut part = Vec::new();
        for (i, t) in graph.nodes().enumerate() {
            list::push(&mut part, t.ptr(), "the operations of a graph")?;
            let asked = self.call(t, true).ok_or(Error::Cancelled)?;
            if !asked && i + 1 < graph.n_nodes() {
                continue;
            }
            let status = PartGraph::new(&part)?.compute(backend)?;
            if status != sys::GGML_STATUS_SUCCESS {
                return Ok(status);
            }
            part.clear();
            if asked {
                self.call(t, false).ok_or(Error::Cancelled)?;
            }
        }
        Ok(sys::GGML_STATUS_SUCCESS)
    }

    /// Calls `ask` or `see`, the user's closures, for one tensor. Returns `None` if the computation must stop.
    fn call(&self, t: Tensor<'_>, ask: bool) -> Option<bool> {
        let answer = |(wants, see): &mut (A, S)| {
            if ask { Some(wants(t)) } else { see(Observed(t)).is_continue().then_some(true) }
        };
        self.0.run(answer).flatten()
    }
}

/// # Safety
///
/// `tensor` must be a node of the graph being computed, with memory, and `user` the `Observer<A, S>` of that
/// computation.
unsafe extern "C-unwind" fn on_node<A, S>(tensor: *mut sys::ggml_tensor, ask: bool, user: *mut c_void) -> bool
where
    A: FnMut(Tensor<'_>) -> bool,
    S: FnMut(Observed<'_>) -> ControlFlow<()>,
{
    // SAFETY: `user` is the live observer of this computation, by this function's `# Safety`; a RefCell guards the
    // observer's closures.
    let observer = unsafe { &*user.cast::<Observer<A, S>>() };
    let answer = NonNull::new(tensor).and_then(|raw| {
        // SAFETY: `tensor` is live during the computation, by this function's `# Safety`.
        let ptr = unsafe { TensorPtr::new(raw) };
        // SAFETY: `tensor` is live during the computation; the closures accept any lifetime, so they can't keep the
        // handle beyond the call.
        observer.call(unsafe { Tensor::new(ptr) }, ask)
    });
    // Without an answer, the closure has stopped the computation or panicked. If C stopped by itself, it would end only
    // the current split, and later splits would read missing results.
    answer.unwrap_or_else(|| guard::cancel())
}
