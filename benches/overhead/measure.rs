//! Comparing two implementations.

use std::time::{Duration, Instant};

/// The time that `f` takes.
pub(crate) fn time(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

/// The medians of both sides.
pub(crate) struct Times {
    raw: f64,
    safe: f64,
}

/// Runs both sides alternately; the first one changes each round.
pub(crate) fn compare(
    rounds: usize,
    mut raw: impl FnMut(usize) -> Duration,
    mut safe: impl FnMut(usize) -> Duration,
) -> Times {
    let rounds = rounds.max(30);
    let [mut raws, mut safes] = [(); 2].map(|()| Vec::with_capacity(rounds));
    for i in 0..rounds + rounds / 10 {
        let pair = if i % 2 == 0 {
            let raw = raw(i);
            (raw, safe(i))
        } else {
            let safe = safe(i);
            (raw(i), safe)
        };
        // The first rounds warm up.
        if i >= rounds / 10 {
            raws.push(pair.0);
            safes.push(pair.1);
        }
    }
    Times { raw: median(raws), safe: median(safes) }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

impl Times {
    /// Prints a line and returns the ratio. Times in nanoseconds are divided by `per`.
    pub(crate) fn print(&self, what: &str, nodes: usize, per: usize, unit: &str) -> f64 {
        let ratio = self.safe / self.raw;
        let per = per as f64;
        println!("{what:8} {nodes:6} {:12.1} {:12.1} {ratio:7.3} {unit}", self.raw / per, self.safe / per);
        ratio
    }
}
