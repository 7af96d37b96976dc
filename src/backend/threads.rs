//! Threads of a CPU backend.

use std::ffi::c_int;

use ggml_sys as sys;

use super::Backend;
use crate::error::{Error, Result};
use crate::options::options;

options! {
    /// The threads of a CPU backend, or their number for a BLAS backend (`ggml_threadpool_params`).
    ///
    /// ```
    /// use ggml::{Threads, prelude::*};
    /// let mut backend = Backend::cpu()?;
    /// backend.set_threads(Threads::new(2).with_poll(0))?; // sleep between operations rather than spin
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_threadpool_params")]
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Threads {
        /// `count` threads with ggml's defaults (`ggml_threadpool_params_default`), including the one that calls
        /// `compute`: 1 to [`Backend::MAX_THREADS`].
        new(count: usize);
        /// Sets the priority of the threads. The thread that creates the pool gets it, too.
        with_priority(priority: Priority = Priority::Normal);
        /// Sets how long the threads spin while they wait for work: 0 sleeps, 100 is the maximum.
        with_poll(poll: u32 = 50);
        /// Sets the indices of the CPU cores on which the threads may run; empty for all. The thread that creates the
        /// pool is bound, too.
        with_cpus(cpus: Vec<usize> = Vec::new(), into);
        /// Sets whether each thread is pinned to one of the cores of [`with_cpus`](Self::with_cpus), in order.
        with_strict(strict: bool = false);
        /// Sets whether all threads compute every graph. Otherwise the calling thread computes a graph alone if its
        /// operations are so short that others would mostly wait, or on a busy machine.
        with_all(all: bool = false);
        /// Sets whether the threads are suspended until the first computation, as after [`Backend::pause_threads`].
        with_paused(paused: bool = false);
    }
}

/// The priority of threads (`ggml_sched_priority`). Raising it may need privileges; without them ggml logs a warning
/// and continues.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::{Priority, Threads};
/// let background = Threads::new(2).with_priority(Priority::Low);
/// Backend::cpu()?.set_threads(background)?;
/// assert_eq!(Threads::new(2).priority, Priority::Normal);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_sched_priority")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Below normal priority.
    Low,
    /// Normal priority, the default.
    #[default]
    Normal,
    /// Above normal priority.
    Medium,
    /// High priority.
    High,
    /// Real-time priority.
    Realtime,
}

impl Priority {
    fn raw(self) -> sys::ggml_sched_priority {
        match self {
            Self::Low => sys::GGML_SCHED_PRIO_LOW,
            Self::Normal => sys::GGML_SCHED_PRIO_NORMAL,
            Self::Medium => sys::GGML_SCHED_PRIO_MEDIUM,
            Self::High => sys::GGML_SCHED_PRIO_HIGH,
            Self::Realtime => sys::GGML_SCHED_PRIO_REALTIME,
        }
    }
}

impl Threads {
    /// The maximum of `poll`.
    const MAX_POLL: u32 = 100;

    /// Checks the number of threads.
    pub(super) fn check_count(&self) -> Result<()> {
        let max = Backend::MAX_THREADS;
        if (1..=max).contains(&self.count) {
            return Ok(());
        }
        refuse("count", self.count.to_string(), format!("it must lie in 1 to {max}"))
    }

    /// The thread settings as C's struct `ggml_threadpool_params`.
    #[doc(alias = "ggml_threadpool_params_default")]
    pub(super) fn raw(&self) -> Result<sys::ggml_threadpool_params> {
        self.check_count()?;
        if self.poll > Self::MAX_POLL {
            return refuse("poll", self.poll.to_string(), format!("it must lie in 0 to {}", Self::MAX_POLL));
        }
        // SAFETY: the C function is a pure function of its argument.
        let mut raw = unsafe { sys::ggml_threadpool_params_default(c_int::try_from(self.count).unwrap_or(1)) };
        for &cpu in &self.cpus {
            let Some(bit) = raw.cpumask.get_mut(cpu) else {
                return refuse("cpus", cpu.to_string(), format!("it must be below {}", Backend::MAX_THREADS));
            };
            *bit = true;
        }
        raw.prio = self.priority.raw();
        raw.poll = self.poll;
        raw.strict_cpu = self.strict;
        raw.paused = self.paused;
        Ok(raw)
    }
}

fn refuse<T>(name: &'static str, value: String, expected: String) -> Result<T> {
    Err(Error::Param { call: "Backend::set_threads", name, value: value.into(), expected: expected.into() })
}

impl From<usize> for Threads {
    fn from(count: usize) -> Self {
        Self::new(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares our defaults with C's, by C's own function.
    #[test]
    fn threads_defaults_equal_ggml() {
        // SAFETY: the C function is a pure function of its argument.
        let theirs = unsafe { sys::ggml_threadpool_params_default(3) };
        let ours = Threads::new(3).raw().unwrap();
        // SAFETY: both structs live during the call, which only reads them.
        assert!(unsafe { sys::ggml_threadpool_params_match(&raw const theirs, &raw const ours) }, "{ours:?}");
    }

    #[test]
    fn threads_refuse_values_that_c_cannot_hold() {
        let two = Threads::new(2);
        for threads in [
            Threads::new(0),
            Threads::new(Backend::MAX_THREADS + 1),
            two.clone().with_poll(101),
            two.with_cpus([0, Backend::MAX_THREADS]),
        ] {
            assert!(matches!(threads.raw(), Err(Error::Param { .. })), "{threads:?}");
        }
    }
}
