//! A graph with memory: sets inputs, computes, and reads results.
//!
//! What the methods of [`Run`] take and return: how [devices are compared](Compare), [results seen during a
//! computation](Observed), [times](Profile), [splits](Split), and a [plan](GraphPlan) to compute with less overhead.

mod alloc;
mod compare;
mod engine;
#[cfg(ggml_0_28)]
mod experts;
mod inputs;
mod observe;
pub(crate) mod part;
mod plan;
mod profile;
mod raw;
mod splits;
mod threads;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use ggml_sys as sys;

use crate::alloc::placement::{Live, Placement};
use crate::backend::{Backend, check_status, names};
use crate::debug::debug;
use crate::device::meta;
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::Owner;
use crate::ops::custom;
use crate::sched::EngineMut;
use crate::{callback, log};

pub use compare::{Compare, Compared, Comparison, Mismatch};
pub use inputs::Inputs;
pub use observe::Observed;
pub use plan::GraphPlan;
pub use profile::{Profile, Timing};
pub use splits::{Split, SplitInput};

/// A graph with memory, made by [`Sched::alloc`](crate::Sched::alloc) or
/// [`GraphAllocator::alloc`](crate::GraphAllocator::alloc), which it borrows; [`Sched::run`](crate::Sched::run)
/// computes it at once. Dropping it frees the memory for the next graph (`ggml_backend_sched_reset`).
///
/// Inputs keep their values between computations; results are those of the last one.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [2])?;
/// let y = ctx.sqr(x)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// for value in [1.0_f32, 2.0, 3.0] {
///     run.set(x, &[value; 2])?;
///     run.compute()?;
///     assert_eq!(run.get::<f32>(y)?, [value * value; 2]);
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_sched_reset")]
pub struct Run<'s, 'c> {
    engine: EngineMut<'s>,
    graph: &'s Graph<'c>,
    placement: Arc<Placement>,
    /// Whether each entry is an input that has no value yet, and how many such inputs there are.
    unset: Vec<bool>,
    n_unset: usize,
    computed: bool,
}

impl<'s, 'c> Run<'s, 'c> {
    /// Computes the graph and waits for the result (`ggml_backend_sched_graph_compute`, `ggml_backend_graph_compute`).
    ///
    /// # Errors
    ///
    /// [`Error::InputNotSet`] if an input has no value yet; [`Error::Status`], [`Error::Exception`] or
    /// [`Error::RpcLost`] if a device fails; [`Error::Poisoned`] after such a failure inside ggml.
    ///
    /// # Panics
    ///
    /// Resumes a panic of a custom operation's closure.
    #[doc(alias = "ggml_backend_sched_graph_compute")]
    #[doc(alias = "ggml_backend_graph_compute")]
    pub fn compute(&mut self) -> Result<()> {
        const CALL: &str = "Run::compute";
        log::public(|| {
            let live = self.begin(CALL)?;
            let graph = self.graph;
            let status = self.call_c(CALL, |engine, _| engine.compute(graph));
            drop(live);
            self.finish(CALL, status)
        })
    }

    /// Computes the graph while `meanwhile` runs on the calling thread, and waits for both
    /// (`ggml_backend_sched_graph_compute_async`, `ggml_backend_sched_synchronize`).
    ///
    /// `meanwhile` starts when all work was submitted. A CPU backend, and the scheduler's copies between devices,
    /// finish before that: only the remaining work of other devices overlaps with `meanwhile`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// # let ctx = Context::new();
    /// # let x = ctx.input("x", DType::F32, [2])?;
    /// # let y = ctx.sqr(x)?;
    /// # let graph = ctx.graph([y])?;
    /// # let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[2.0_f32, 3.0])?;
    /// let next = run.compute_async(|| [4.0_f32, 5.0])?; // prepares the next input
    /// assert_eq!(run.get::<f32>(y)?, [4.0, 9.0]);
    /// run.set(x, &next)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the graph uses a [`State`](crate::State), `meanwhile` can't call ggml, since it could reach memory that is
    /// being written: such calls fail with [`Error::Nested`].
    ///
    /// # Errors
    ///
    /// As [`Run::compute`]. If the computation can't be started, `meanwhile` is not called.
    ///
    /// # Panics
    ///
    /// Resumes a panic of `meanwhile` or of a custom operation's closure, once the devices are idle.
    #[doc(alias = "ggml_backend_sched_graph_compute_async")]
    #[doc(alias = "ggml_backend_sched_synchronize")]
    #[doc(alias = "ggml_backend_graph_compute_async")]
    pub fn compute_async<R>(&mut self, meanwhile: impl FnOnce() -> R) -> Result<R> {
        const CALL: &str = "Run::compute_async";
        // This waits for the devices itself, not by a guard's drop. If the user leaked such a guard, the devices'
        // memory would be freed while in use.
        let mut live = self.begin(CALL)?;
        let status = self.call_c(CALL, EngineMut::compute_async);
        let under_way = matches!(status, Ok(sys::GGML_STATUS_SUCCESS));
        live.share();
        let value = under_way.then(|| catch_unwind(AssertUnwindSafe(|| self.run_beside(meanwhile))));
        let done = self.engine.wait_idle();
        drop(live);
        let status = status.and_then(|status| done.map(|()| status));
        let finished = catch_unwind(AssertUnwindSafe(|| log::public(|| self.finish(CALL, status))));
        match (value, finished) {
            // Only one panic can be resumed. The payload of the other one is leaked: its destructor may panic too,
            // which would end the process.
            (Some(Err(panic)), Err(other)) => {
                callback::forget(other);
                resume_unwind(panic)
            }
            (Some(Err(panic)), Ok(_)) | (_, Err(panic)) => resume_unwind(panic),
            (Some(Ok(value)), Ok(finished)) => finished.map(|()| value),
            (None, Ok(finished)) => finished.and(Err(Error::Cancelled)), // it is an error already
        }
    }

    /// Runs user code while devices compute. If the graph uses a state, the user code can't call ggml.
    fn run_beside<R>(&self, f: impl FnOnce() -> R) -> R {
        let is_state = |e: &Entry| e.kind == Kind::Placed(Owner::State);
        if self.graph.entries().iter().any(is_state) { callback::forbid_reentry(f) } else { f() }
    }

    /// Begins a computation, if all inputs have values. Results of the last computation are gone. The headers have the
    /// graph's memory as long as the returned guard lives.
    fn begin(&mut self, call: &'static str) -> Result<Live<'s, 'c>> {
        self.graph.check_free(call)?;
        if self.n_unset > 0
            && let Some((e, _)) = self.graph.entries().iter().zip(&self.unset).find(|(_, unset)| **unset)
        {
            return Err(Error::InputNotSet { call, tensor: e.ptr.info() });
        }
        self.backends().iter().try_for_each(Backend::check)?;
        self.engine.choose_threads(self.graph)?;
        self.computed = false;
        // Drops panics that were not resumed because something else failed. The payloads' destructors are user code,
        // which may compute these very tensors. So they run before anything is written into headers.
        self.graph.entries().closures().iter().for_each(|&t| drop(custom::take_panic(t)));
        self.live(call)
    }

    /// Writes the placement into the graph's headers. When the returned guard is dropped, the headers are restored.
    fn live(&self, call: &'static str) -> Result<Live<'s, 'c>> {
        Live::of(call, self.graph, Arc::clone(&self.placement))
    }

    /// Lets C compute the graph or a part of it, after [`Run::begin`]. After a failure inside C, work may still run, so
    /// the backends are not used again.
    fn call_c(
        &mut self,
        call: &'static str,
        f: impl FnOnce(&mut EngineMut<'s>, *mut sys::ggml_cgraph) -> Result<sys::ggml_status>,
    ) -> Result<sys::ggml_status> {
        let calls_user_code =
            !self.graph.entries().closures().is_empty() || self.backends().iter().any(Backend::asks_user_code);
        let _alone = meta::lock_if_meta(call, self.backends().iter().map(Backend::device), calls_user_code)?;
        let graph = self.graph;
        let compute = |engine: &mut EngineMut<'s>| f(engine, graph.as_ptr());
        #[cfg(ggml_0_28)]
        let status = experts::copying_used(&mut self.engine, graph.entries(), compute);
        #[cfg(not(ggml_0_28))]
        let status = compute(&mut self.engine);
        self.engine.poison_if_interrupted(&status);
        status
    }

    /// Ends a computation, after C has returned from it and the devices are idle.
    fn end(&mut self, call: &'static str, status: Result<sys::ggml_status>) -> Result<()> {
        if !matches!(status, Ok(sys::GGML_STATUS_SUCCESS)) {
            self.engine.plan_mut().forget();
        }
        // A panic of one of the graph's closures resumes first, or else one of a backend's abort closure.
        if let Some(panic) = self.graph.entries().closures().iter().find_map(|&t| custom::take_panic(t)) {
            resume_unwind(panic);
        }
        self.backends().iter().for_each(Backend::resume_abort);
        let status = status?;
        self.backends().iter().try_for_each(|b| b.device().check_alive())?;
        check_status(call, status)
    }

    /// Ends a computation of the whole graph, and makes its results readable.
    fn finish(&mut self, call: &'static str, status: Result<sys::ggml_status>) -> Result<()> {
        self.end(call, status)?;
        self.computed = true;
        log::note(::log::Level::Trace, || {
            format!("computed a graph of {} nodes on {}", self.graph.n_nodes(), names(self.backends()))
        });
        Ok(())
    }
}

impl Drop for Run<'_, '_> {
    fn drop(&mut self) {
        self.graph.store.unset.set(std::mem::take(&mut self.unset));
        self.engine.release();
    }
}

debug!(Run<'_, '_>, |this| graph = this.graph, splits = &this.n_splits());

#[cfg(test)]
mod tests {
    use crate::{Backend, Context, DType, Sched};

    /// With pipeline copies, each allocation takes the next copy of an input. Without them, a graph's placement is
    /// reused.
    #[test]
    fn sched_reuses_a_placement_only_without_copies() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
        for parallel in [false, true] {
            let cpu = Backend::cpu().unwrap();
            let mut sched = Sched::builder().backend(cpu).parallel(parallel).build().unwrap();
            let places = [(); 5].map(|()| {
                let mut run = sched.alloc(&graph).unwrap();
                assert_eq!(run.engine.plan_mut().is_recorded(), !parallel, "the placement can be reused");
                drop(run);
                let run = sched.alloc(&graph).unwrap();
                let _live = run.live("test").unwrap();
                x.ptr().data().addr()
            });
            // The first and third allocation use the same copy of the input, and so do the second and fourth.
            assert!(places[0] == places[2] && places[1] == places[3], "{places:?}");
            assert_eq!(places[0] == places[1], !parallel, "{places:?}");
        }
    }
}
