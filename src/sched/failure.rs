//! Calls into the C scheduler that may fail inside it, and what is left then.

use super::Splitter;
use super::raw::RawSched;
use crate::alloc::placement::AsBuilt;
use crate::backend::Backend;
use crate::buffer::out_of_memory;
use crate::context::Context;
use crate::device::meta;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::{callback, guard, log};

impl Splitter {
    /// Calls into the C scheduler without computing. A failure leaves it in an unknown state: it is leaked, and the
    /// next graph gets a new one. Planning doesn't involve the backends, so they remain valid.
    pub(super) fn planning<R>(&mut self, f: impl FnOnce(&mut RawSched) -> Result<R>) -> Result<R> {
        let _alone = meta::lock_if_meta("Sched", self.devices(), false)?;
        let _of_before = callback::check_objection();
        let result = self.raw().and_then(f);
        if guard::interrupted(&result) {
            self.forget_plan();
            self.raw.take().into_iter().for_each(RawSched::leak);
            self.check_alive()?; // a meta device asserts that a member has memory, which a lost one has not
        }
        result.map_err(guard::or_out_of_memory)
    }

    /// Waits for what the C scheduler was given. Nobody is refused that as busy: what has begun must come to its end, and
    /// it looks into no table of meta devices that threads share.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let result = self.raw().and_then(RawSched::synchronize);
        self.poison_if_interrupted(&result);
        result
    }

    /// Ends the use of the allocated graph. If its placement may be reused, it stays allocated in C, which reads it again
    /// only to compute.
    pub(crate) fn release(&mut self) {
        // Asynchronous work must not outlive the memory's owner. A failure is met again by the next call.
        if self.settle().is_ok() && !self.plan_mut().is_recorded() {
            let reset = self.raw().and_then(RawSched::reset);
            self.poison_if_interrupted(&reset);
        }
    }

    /// After a failure inside C work may still run, so neither the scheduler nor the backends are used again.
    pub(crate) fn poison_if_interrupted<R>(&mut self, result: &Result<R>) {
        if guard::interrupted(result) {
            self.raw.take().into_iter().for_each(RawSched::leak);
            self.backends.iter_mut().for_each(Backend::poison);
        }
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
        let _as_built = AsBuilt::after(&least);
        self.planning(|raw| {
            raw.reset()?;
            raw.reserve(least.as_ptr())
        })
    }
}
