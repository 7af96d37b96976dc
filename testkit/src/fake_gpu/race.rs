//! Who touches which bytes of which buffer, and whether that comes after all that it must come after.
//!
//! Each stream numbers its work. A clock says how much of each stream's work is known to be done: the host's by waiting, a
//! stream's by events. Two accesses to the same bytes, one of which writes, must be in an order that clocks show, whatever
//! their timing was. There is one clock for all threads of the host, so what two of its threads do is not judged.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, Once};
use std::thread;

/// How much of each stream's work is done.
pub(super) type Clock = HashMap<usize, u64>;

/// Two accesses whose order nothing shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Race {
    pub first: String,
    pub second: String,
    /// The name of the thread that it was found on.
    pub thread: String,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} while {} is under way", self.second, self.first)
    }
}

impl Race {
    fn new(first: &str, second: &str) -> Self {
        let thread = thread::current().name().unwrap_or_default().to_owned();
        Self { first: first.into(), second: second.into(), thread }
    }
}

/// Bytes of a buffer that work reads or writes.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) buffer: usize,
    pub(super) range: Range<usize>,
    pub(super) writes: bool,
}

struct Done {
    access: Access,
    stream: usize,
    number: u64,
    what: String,
}

#[derive(Default)]
struct Detector {
    host: Clock,
    streams: HashMap<usize, (u64, Clock)>,
    /// Work that the host doesn't know to be done.
    under_way: HashMap<usize, Vec<Done>>,
    races: Vec<Race>,
    /// How much work was submitted.
    submitted: usize,
}

static DETECTOR: Mutex<Option<Detector>> = Mutex::new(None);

fn detector<R>(f: impl FnOnce(&mut Detector) -> R) -> R {
    f(DETECTOR.lock().unwrap().get_or_insert_default())
}

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &n) in other {
        let known = clock.entry(stream).or_default();
        *known = n.max(*known);
    }
}

/// The races so far, which are then forgotten.
pub fn take_races() -> Vec<Race> {
    detector(|d| std::mem::take(&mut d.races))
}

/// Makes the process fail when it ends, if there were races.
pub fn fail_on_races() {
    extern "C" fn judge() {
        let (submitted, races) = detector(|d| (d.submitted, std::mem::take(&mut d.races)));
        // Nobody may read it any more.
        let _lost = writeln!(io::stderr(), "fake_gpu: submitted={submitted} races={}", races.len());
        for race in races.iter().take(20) {
            let _lost = writeln!(io::stderr(), "race in {}: {race}", race.thread);
        }
        if !races.is_empty() {
            // SAFETY: ends the process, and runs nothing else.
            unsafe { libc::_exit(1) };
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function is live until the process ends, and unwinds only by a panic, which `extern "C"` stops.
        assert_eq!(unsafe { libc::atexit(judge) }, 0);
    });
}

impl Detector {
    /// Records a race with all conflicting work that `known` doesn't have.
    fn judge(&mut self, access: &Access, known: &Clock, what: &str) {
        let overlaps = |d: &&Done| {
            let (a, b) = (&d.access.range, &access.range);
            (d.access.writes || access.writes) && a.start < b.end && b.start < a.end
        };
        let all = self.under_way.get(&access.buffer).into_iter().flatten();
        for done in all.filter(overlaps).filter(|d| known.get(&d.stream).is_none_or(|&n| n < d.number)) {
            self.races.push(Race::new(&done.what, what));
        }
    }

    /// Forgets what the host knows to be done.
    fn prune(&mut self) {
        let host = &self.host;
        self.under_way.retain(|_, all| {
            all.retain(|d| host.get(&d.stream).is_none_or(|&n| n < d.number));
            !all.is_empty()
        });
    }
}

/// Work is submitted to a stream. Returns its number.
pub(super) fn submit(stream: usize, accesses: &[Access], what: &str) -> u64 {
    detector(|d| {
        d.submitted += 1;
        let (number, clock) = d.streams.entry(stream).or_default();
        *number += 1;
        let number = *number;
        let mut known = clock.clone();
        known.insert(stream, number - 1);
        join(&mut known, &d.host);
        for access in accesses {
            d.judge(access, &known, what);
        }
        for access in accesses {
            let done = Done { access: access.clone(), stream, number, what: what.to_owned() };
            d.under_way.entry(access.buffer).or_default().push(done);
        }
        number
    })
}

/// The host touches memory, or frees it (all of it, writing).
pub(super) fn host(access: &Access, what: &str) {
    detector(|d| {
        let known = d.host.clone();
        d.judge(access, &known, what);
    });
}

/// All that is done when the stream's work so far is done.
pub(super) fn clock(stream: usize) -> Clock {
    detector(|d| {
        let (number, clock) = d.streams.entry(stream).or_default();
        let mut clock = clock.clone();
        clock.insert(stream, *number);
        clock
    })
}

/// The stream's later work comes after what `clock` says.
pub(super) fn wait(stream: usize, clock: &Clock) {
    detector(|d| join(&mut d.streams.entry(stream).or_default().1, clock));
}

/// The host has waited for what `clock` says.
pub(super) fn known(clock: &Clock) {
    detector(|d| {
        join(&mut d.host, clock);
        d.prune();
    });
}

/// A stream is freed, with all its work done or not.
pub(super) fn freed(stream: usize) {
    detector(|d| {
        let number = d.streams.remove(&stream).map_or(0, |(number, _)| number);
        if d.host.get(&stream).is_none_or(|&n| n < number) && number > 0 {
            d.races.push(Race::new("work of a stream", "the stream is freed"));
        }
    });
}
