//! What a failure inside ggml leaves of a scheduler.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::Sched;
use super::raw::RawSched;
use crate::alloc::bound::Bound;
use crate::backend::Backend;
use crate::buffer::out_of_memory;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::{guard, log, meta};

impl Sched {
    /// Calls into the C scheduler. A failure inside it leaves it in an unknown state: it is not used again.
    pub(super) fn with_raw<R>(&mut self, f: impl FnOnce(&mut RawSched) -> Result<R>) -> Result<R> {
        let _alone = meta::alone("Sched", self.backends.iter().map(Backend::device))?;
        let raw = self.raw.as_mut().ok_or(Error::Poisoned { object: "scheduler" })?;
        let result = catch_unwind(AssertUnwindSafe(|| f(raw)));
        if guard::interrupted(&result) {
            self.poison();
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Gives up the C objects without freeing them.
    fn poison(&mut self) {
        self.poisoned = true;
        if let Some(raw) = self.raw.take() {
            raw.leak();
        }
        self.backends.iter_mut().for_each(Backend::poison);
    }

    /// The error for a plan that could not be had, with what ggml logged since `mark`.
    ///
    /// The C scheduler's allocator then looks planned but has no memory, and where two backends share a buffer it still
    /// has the pointer that was freed (H21). Planning a graph that surely fits puts that right.
    pub(super) fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.forget_plan();
        if !self.plan_least().unwrap_or(false)
            && let Some(raw) = self.raw.take()
        {
            raw.leak();
        }
        // A server that was lost while it was asked gives no memory either.
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        match self.buffer_types().first() {
            Some(&buft) => out_of_memory(buft, None, log),
            None => Error::Poisoned { object: "scheduler" },
        }
    }

    /// Plans the smallest graph there is.
    fn plan_least(&mut self) -> Result<bool> {
        let ctx = Context::new();
        let least = ctx.graph([ctx.neg(ctx.input("", DType::F32, [1])?)?])?;
        let bound = Bound::new("Sched::alloc", &least)?;
        self.with_raw(|raw| {
            raw.reset()?;
            raw.reserve(bound.graph_ptr())
        })
    }
}
