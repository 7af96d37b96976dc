//! All calls into the C scheduler, and how a failed one is handled.

use ggml_sys as sys;

use super::Sched;
use super::engine::Engine;
use super::raw::RawSched;
use crate::alloc::bound::Bound;
use crate::alloc::placement::AsBuilt;
use crate::backend::Backend;
use crate::buffer::out_of_memory;
use crate::context::Context;
use crate::device::meta;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::{guard, log};

impl Sched {
    /// Calls into the C scheduler without computing. A failure leaves it in an unknown state: it is leaked, and the
    /// next graph gets a new one. Planning doesn't involve the backends, so they remain valid.
    pub(super) fn planning<R>(&mut self, f: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let result = self.with_raw(false, f);
        if guard::interrupted(&result) {
            self.forget_plan();
            self.raw.take().into_iter().for_each(Engine::leak);
        }
        result.map_err(guard::or_out_of_memory)
    }

    /// Calls into the C scheduler to compute the allocated graph. After a failure work may still run, so neither the
    /// scheduler nor the backends are used again.
    pub(super) fn computing<R>(&mut self, graph: &Graph<'_>, f: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let calls_user_code =
            !graph.entries().closures().is_empty() || self.backends.iter().any(Backend::asks_user_code);
        let result = self.with_raw(calls_user_code, f);
        self.poison_if_interrupted(&result);
        result
    }

    /// Computes the allocated graph, whose headers have its placement, by C's scheduler: only that shows results on the way.
    pub(super) fn observed(
        &mut self,
        graph: &Graph<'_>,
        f: impl FnOnce(&mut RawSched) -> Result<sys::ggml_status>,
    ) -> Result<sys::ggml_status> {
        if !Engine::is_alone(&self.backends, &self.settings) {
            return self.computing(graph, |engine| match engine {
                Engine::Sched(raw) => f(raw),
                Engine::Alone(_) => Err(Error::Poisoned { object: "scheduler" }),
            });
        }
        // SAFETY: the scheduler is dropped before the backends, here. They support their buffer types (`fit`).
        let mut raw = unsafe { RawSched::new(&self.backends, &self.settings, Engine::need(graph.entries().len())) }?;
        // All tensors have memory, so this allocates nothing and only assigns them to the backend.
        let result = match raw.alloc(graph.as_ptr()) {
            Ok(true) => self.computing(graph, |_| f(&mut raw)),
            Ok(false) => Err(Error::no_memory("a scheduler")),
            Err(error) => {
                raw.leak();
                return Err(guard::or_out_of_memory(error));
            }
        };
        if guard::interrupted(&result) {
            raw.leak();
        }
        result
    }

    /// Waits for what the C scheduler was given. Nobody is refused that as busy: what has begun must come to its end, and it
    /// looks into no table of meta devices that threads share.
    pub(super) fn settling<R>(&mut self, f: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let result = self.raw.as_mut().ok_or(Error::Poisoned { object: "scheduler" }).and_then(f);
        self.poison_if_interrupted(&result);
        result
    }

    fn poison_if_interrupted<R>(&mut self, result: &Result<R>) {
        if guard::interrupted(result) {
            self.poisoned = true;
            self.raw.take().into_iter().for_each(Engine::leak);
            self.backends.iter_mut().for_each(Backend::poison);
        }
    }

    fn with_raw<R>(&mut self, calls_user_code: bool, f: impl FnOnce(&mut Engine) -> Result<R>) -> Result<R> {
        let _alone = meta::lock_if_meta("Sched", self.backends.iter().map(Backend::device), calls_user_code)?;
        f(self.raw.as_mut().ok_or(Error::Poisoned { object: "scheduler" })?)
    }

    /// The error for a plan whose memory could not be allocated, with ggml's log since `mark`.
    ///
    /// C's allocator then looks planned but has no memory, and if two backends share a buffer, it still has the freed
    /// pointer (H21). Planning a tiny graph, which always fits, repairs both.
    pub(super) fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.forget_plan();
        if !self.plan_least().unwrap_or(false)
            && let Some(raw) = self.raw.take()
        {
            raw.leak();
        }
        // A lost server also reports a failed allocation: name the cause.
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        match self.buffer_types().first() {
            Some(&buft) => out_of_memory(buft, None, log),
            None => Error::Poisoned { object: "scheduler" },
        }
    }

    /// Plans the smallest possible graph.
    fn plan_least(&mut self) -> Result<bool> {
        let ctx = Context::new();
        let least = ctx.graph([ctx.neg(ctx.input("", DType::F32, [1])?)?])?;
        let bound = Bound::new("Sched::alloc", &least)?;
        let _as_built = AsBuilt::after(&least);
        self.planning(|raw| {
            raw.reset()?;
            raw.reserve(bound.graph_ptr())
        })
    }
}
