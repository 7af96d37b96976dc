//! Whether other work takes the processors from the threads of a CPU backend.
//!
//! A computation keeps its calling thread on a processor from begin to end, also while it waits for other threads, which takes
//! microseconds. So if the thread used much less of a processor than the time that passed, something else ran there, or
//! where the thread that it waited for should have run.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How much time is looked at together, at least.
const WINDOW: Duration = Duration::from_millis(2);
/// How long a machine counts as busy after it was seen to be.
const MEMORY: Duration = Duration::from_millis(50);
/// A machine is busy if one part in this many of the time of computations passed without the calling thread.
const PART: u32 = 4;

/// What a backend has seen of other work.
#[derive(Default)]
pub(super) struct Contention {
    /// When the current window began.
    start: Option<Sample>,
    /// How much of the window's time passed in computations.
    computed: Duration,
    busy_until: Option<Instant>,
}

/// A time, and how much of a processor the thread had used by then.
#[derive(Clone, Copy)]
struct Sample {
    thread: ThreadId,
    at: Instant,
    used: Duration,
}

impl Contention {
    /// What a test begins with.
    #[cfg(test)]
    pub(super) fn seen(busy: bool) -> Self {
        Self { busy_until: busy.then(|| Instant::now() + Duration::from_secs(3600)), ..Self::default() }
    }

    /// Whether the machine is busy.
    pub(super) fn is_high(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }

    /// Looks at a computation that ends now.
    pub(super) fn computed_since(&mut self, began: Instant) {
        self.computed_until(began, Instant::now(), thread::current().id(), used);
    }

    fn computed_until(&mut self, began: Instant, now: Instant, thread: ThreadId, used: impl Fn() -> Option<Duration>) {
        self.computed += now.duration_since(began);
        let start = self.start.filter(|start| start.thread == thread);
        if start.is_some_and(|start| now.duration_since(start.at) < WINDOW) {
            return;
        }
        let sample = used().map(|used| Sample { thread, at: now, used });
        if let (Some(start), Some(end)) = (start, sample) {
            let passed = end.at.duration_since(start.at);
            let without = passed.saturating_sub(end.used.saturating_sub(start.used));
            // Between computations the thread may well have slept.
            let between = passed.saturating_sub(self.computed);
            if without.saturating_sub(between) > self.computed / PART {
                self.busy_until = Some(now + MEMORY);
            }
        }
        (self.start, self.computed) = (sample, Duration::ZERO);
    }
}

/// How much of a processor the calling thread has used.
#[cfg(unix)]
fn used() -> Option<Duration> {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: C writes the time into the struct, which lives during the call, and keeps nothing.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
    let (seconds, nanoseconds) = (u64::try_from(used.tv_sec).ok()?, u32::try_from(used.tv_nsec).ok()?);
    (status == 0).then(|| Duration::new(seconds, nanoseconds))
}

#[cfg(not(unix))]
fn used() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten computations of a millisecond, half a millisecond after each other, with so many milliseconds of a processor
    /// for each. Returns whether the machine is busy then, and how long.
    fn seen(used: Duration) -> Option<Duration> {
        let (mut contention, mut now, mut total) = (Contention::default(), Instant::now(), Duration::ZERO);
        for _ in 0..10 {
            let began = now + MS / 2;
            now = began + MS;
            total += used;
            contention.computed_until(began, now, thread::current().id(), || Some(total));
        }
        contention.busy_until.map(|until| until - now)
    }

    #[test]
    fn contention_is_what_computations_wait_for() {
        assert_eq!(seen(MS), None, "nothing else runs");
        assert_eq!(seen(3 * MS / 2), None, "the thread also works between computations");
        assert_eq!(seen(4 * MS / 5), None, "a short disturbance");
        assert!(seen(MS / 2).is_some_and(|rest| rest + 2 * WINDOW > MEMORY), "half the time was lost");
    }

    #[test]
    fn contention_is_of_one_thread_at_a_time() {
        let (mut contention, now) = (Contention::default(), Instant::now());
        let other = thread::spawn(|| thread::current().id()).join().unwrap();
        for (i, thread) in [thread::current().id(), other, thread::current().id()].into_iter().enumerate() {
            let began = now + WINDOW * 2 * u32::try_from(i).unwrap();
            contention.computed_until(began, began + WINDOW, thread, || Some(Duration::ZERO));
        }
        assert!(contention.busy_until.is_none(), "times of different threads were compared");
    }

    #[cfg(unix)]
    #[test]
    fn a_thread_that_sleeps_uses_no_processor() {
        let before = used().unwrap();
        thread::sleep(50 * MS);
        assert!(used().unwrap() < before + 25 * MS);
    }
}
