//! What a template may use. Whoever wrote it is not trusted: everything that takes time or memory asks here first.

use super::{Fault, JinjaResult};

/// Steps: operations, and each of 64 bytes that one of them looks at. A real template takes some per message.
const WORK: u64 = 500_000;

/// More of them for each message.
const MESSAGE: u64 = 2000;

/// Bytes of all values and texts that are made, even if they are gone again.
const MEMORY: usize = 32 << 20;

/// Operations and blocks inside each other, with those of macros that are called.
const DEPTH: u32 = 500;

/// Lists in lists.
pub(super) const HEIGHT: u32 = 100;

/// What is left.
#[derive(Debug)]
pub(super) struct Limits {
    work: u64,
    all_work: u64,
    memory: usize,
    all_memory: usize,
    depth: u32,
}

impl Limits {
    /// For so many messages of so many bytes: templates copy them a few times.
    pub(super) fn new(messages: usize, input: usize) -> Self {
        let all_work = WORK.saturating_add(MESSAGE.saturating_mul(messages as u64)).saturating_add(input as u64);
        let all_memory = MEMORY.saturating_add(input.saturating_mul(32));
        Self { work: all_work, all_work, memory: all_memory, all_memory, depth: 0 }
    }

    /// Asks for steps.
    pub(super) fn work(&mut self, steps: usize) -> JinjaResult<()> {
        let left = self.work.checked_sub(steps as u64);
        self.work = left.ok_or_else(|| Fault::new(format!("it takes more than {} steps", self.all_work)))?;
        Ok(())
    }

    /// Asks for the steps of looking at so many bytes.
    pub(super) fn read(&mut self, bytes: usize) -> JinjaResult<()> {
        self.work(1 + bytes / 64)
    }

    /// Asks for memory, and the time to fill it.
    pub(super) fn take(&mut self, bytes: usize) -> JinjaResult<()> {
        self.read(bytes)?;
        let left = self.memory.checked_sub(bytes);
        let most = self.all_memory >> 20;
        self.memory = left.ok_or_else(|| Fault::new(format!("it needs more than {most} MiB of memory")))?;
        Ok(())
    }

    /// Goes one deeper; [`Limits::leave`] comes back.
    pub(super) fn enter(&mut self) -> JinjaResult<()> {
        self.work(1)?;
        if self.depth == DEPTH {
            return Err(Fault::new(format!("it nests operations more than {DEPTH} times")));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }
}
