//! Recovery after failed calls into the C scheduler.

use super::Splitter;
use super::raw::RawSched;
use crate::alloc::placement::AsBuilt;
use crate::buffer::out_of_memory;
use crate::context::Context;
use crate::device::meta;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::{callback, guard, log};

impl Splitter {
    /// Calls into the C scheduler without computing. A failure leaves the scheduler in an unknown state. Then it is
    /// leaked, and the next graph gets a new one. Planning doesn't involve the backends, so they remain valid.
    pub(super) fn planning<R>(&mut self, f: impl FnOnce(&mut RawSched) -> Result<R>) -> Result<R> {
        let _alone = meta::lock_if_meta("Sched", self.devices(), false)?;
        let _of_before = callback::check_rejection();
        let result = self.raw().and_then(f);
        if guard::interrupted(&result) {
            self.forget_plan();
            self.raw.take().into_iter().for_each(callback::forget);
            self.check_alive()?; // a meta device asserts that a member has memory, which a lost one has not
        }
        result.map_err(guard::or_out_of_memory)
    }

    /// Waits until all submitted work is done, without taking the lock of meta devices: work that was started must
    /// finish in any case.
    pub(crate) fn wait_idle(&mut self) -> Result<()> {
        let result = self.raw().and_then(RawSched::synchronize);
        self.poison_if_interrupted(&result);
        result
    }

    /// Ends the use of the allocated graph. If the placement may be reused, the graph stays allocated in C, which reads
    /// it again only to compute.
    pub(crate) fn release(&mut self) {
        // Asynchronous work must not outlive the owner of the memory that it uses. If waiting for it fails, the next
        // call reports that.
        if self.wait_idle().is_ok() && !self.plan.is_recorded() {
            let reset = self.raw().and_then(RawSched::reset);
            self.poison_if_interrupted(&reset);
        }
    }

    /// After a failure inside C neither the scheduler nor the backends are used again. The scheduler is freed if all
    /// backends could be waited for. Otherwise work may still run in the scheduler's memory, so it is leaked.
    pub(crate) fn poison_if_interrupted<R>(&mut self, result: &Result<R>) {
        if guard::interrupted(result) {
            let under_way = self.backends.iter_mut().filter_map(|backend| (!backend.poison()).then_some(())).count();
            self.raw.take().into_iter().filter(|_| under_way > 0).for_each(callback::forget);
        }
    }

    /// Makes the error for a plan whose memory could not be allocated, with ggml's log since `mark`, and repairs C's
    /// allocator.
    ///
    /// After such a failure, C's allocator looks planned but has no memory. If two backends share a buffer, the
    /// allocator still has the pointer to the freed buffer (H21). Planning a tiny graph, which always fits, repairs
    /// both.
    pub(super) fn out_of_memory(&mut self, mark: u64) -> Error {
        let log = log::since(mark);
        self.forget_plan();
        if !self.plan_least().unwrap_or(false)
            && let Some(raw) = self.raw.take()
            && self.shares_memory()
        {
            callback::forget(raw);
        }
        // If an RPC server was lost, the allocation failed for that reason, which is the error to return.
        if let Err(lost) = self.check_alive() {
            return lost;
        }
        match self.buffer_types().first() {
            Some(&buft) => out_of_memory(buft, None, log),
            None => Error::Poisoned { object: "scheduler" },
        }
    }

    /// Whether two backends share a buffer, as backends with the same buffer type do.
    fn shares_memory(&self) -> bool {
        let bufts = self.buffer_types();
        bufts.iter().enumerate().any(|(i, buft)| bufts.iter().skip(i + 1).any(|other| other == buft))
    }

    /// Plans the smallest possible graph. Returns whether its memory could be allocated.
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
