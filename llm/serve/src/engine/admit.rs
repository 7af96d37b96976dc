//! Who is computed next, in which sequence, and which cells it shares.

use anyhow::Result;
use ggml_llm::Error;

use crate::failure::Failure;
use crate::job::{Job, Work};

use super::slot::{Next, Slot};
use super::{Engine, is_loss};

/// A common beginning of fewer tokens isn't waited for.
const WORTH_WAITING: usize = 16;

/// Where a job goes.
enum Admission {
    /// Into a sequence, which has so many of its tokens already.
    To { slot: usize, shared: usize },
    /// When another prompt, which begins in the same way, is computed.
    Later,
    /// When a sequence ends.
    NoRoom,
}

impl Engine<'_> {
    /// Begins as many waiting jobs as there is room for, in their order.
    pub(super) fn admit(&mut self) -> Result<()> {
        let mut i = 0;
        while let Some(job) = self.waiting.remove(i) {
            match self.room_for(&job) {
                Ok(Admission::Later) => {
                    self.waiting.insert(i, job);
                    i += 1;
                }
                Ok(Admission::NoRoom) => {
                    self.waiting.insert(i, job);
                    break;
                }
                // Its turn comes again, with what is left.
                Err(error) if is_loss(&error) => {
                    self.waiting.insert(i, job);
                    return self.recover(&error, &[]);
                }
                Err(error) => {
                    job.fail(Failure::server(error.to_string()));
                    return self.recover(&error, &[]);
                }
                Ok(Admission::To { slot, shared }) => {
                    self.clock += 1;
                    self.metrics.prompt.inc_by(job.tokens.len() as u64);
                    self.metrics.cached.inc_by(shared as u64);
                    if let Some(slot) = self.slots.get_mut(slot) {
                        slot.begin(job, shared, self.clock, self.tokenizer);
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds a place, and makes room for a job's text as long as it can be at its end.
    fn room_for(&mut self, job: &Job) -> Result<Admission, Error> {
        let (tokens, size) = (&*job.tokens, size(job));
        // The last token is computed in any case, as its output is wanted.
        let before_last = tokens.get(..tokens.len().saturating_sub(1)).unwrap_or_default();
        let (mut donor, mut shared) = (None, 0);
        for (i, slot) in self.slots.iter().enumerate() {
            let common = slot.tokens.iter().zip(before_last).take_while(|(a, b)| a == b).count();
            let computed = self.computed(i);
            if slot.next(computed) == Next::Prompt && common > computed.max(shared) + WORTH_WAITING {
                return Ok(Admission::Later);
            }
            let there = common.min(computed);
            // A recurrent state is that after all its tokens.
            let usable = self.session.room().is_some() || there == computed;
            if usable && there > shared {
                (donor, shared) = (Some(i), there);
            }
        }
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_idle());
        let oldest = idle.min_by_key(|(i, slot)| (self.computed(*i) > 0, Some(*i) == donor, slot.admitted));
        let Some((mut slot, _)) = oldest else { return Ok(Admission::NoRoom) };
        // A text that goes on as before needs no second sequence; one that only begins alike may be of use to others again.
        if let Some(i) =
            donor.filter(|&i| self.slots.get(i).is_some_and(Slot::is_idle) && 2 * shared > self.computed(i))
        {
            slot = i;
        }
        let donor = donor.unwrap_or(slot);
        self.forget(slot, if slot == donor { shared } else { 0 })?;
        loop {
            let growth: usize = (self.slots.iter().enumerate())
                .filter(|(_, slot)| !slot.is_idle())
                .map(|(i, slot)| slot.size().saturating_sub(self.computed(i)))
                .sum();
            if self.session.room().is_none_or(|room| growth + size - shared <= room) {
                if slot != donor {
                    self.session.share(donor, slot, shared)?;
                }
                return Ok(Admission::To { slot, shared });
            }
            // What is left of earlier texts goes, the oldest first, and what this one would share at last.
            let left = self.slots.iter().enumerate().filter(|(i, slot)| slot.is_idle() && self.computed(*i) > 0);
            let oldest = left.min_by_key(|(i, slot)| (*i == donor, slot.admitted)).map(|(i, _)| i);
            let Some(oldest) = oldest else { return Ok(Admission::NoRoom) };
            if oldest == donor {
                shared = 0;
            }
            self.forget(oldest, 0)?;
        }
    }

    /// Forgets what is left of an earlier text from a token on.
    fn forget(&mut self, slot: usize, from: usize) -> Result<(), Error> {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.tokens.truncate(from);
        }
        self.session.truncate(slot, from)
    }
}

/// How many tokens a job can have at its end.
fn size(job: &Job) -> usize {
    job.tokens.len()
        + match job.work {
            Work::Generate { max, .. } => max,
            Work::Embed => 0,
        }
}
