//! What two threads cost beside other work: ggml's pool at several levels of polling and priority, on an idle machine and
//! beside 2 and 8 processes that use a processor each (`cargo bench --bench busy`). With the feature `openmp`, that pool;
//! `OMP_WAIT_POLICY` and `GOMP_SPINCOUNT` choose how it waits.
//!
//! A figure is the time of a graph of a hundred operations with two threads, divided by that with one: the median of rounds
//! that take turns. The last line is that of the default.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark that fails panics, and its numbers are small"
)]

use std::hint::black_box;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, thread};

use ggml::prelude::*;
use ggml::{Priority, Threads};

/// How many processes run beside each measurement.
const BESIDE: [(&str, usize); 3] = [("idle", 0), ("busy2", 2), ("busy8", 8)];

/// Rounds with each number of threads, and how long one takes at least.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);

/// Rows of the square matrices: products of a microsecond or so, and of some ten.
const SMALL: usize = 64;
const LARGE: usize = 256;

/// The argument by which this program keeps a processor busy.
const SPIN: &str = "--spin";

/// Processes that do nothing but use processors. They end by themselves if this one is killed.
struct Busy(Vec<Child>);

impl Busy {
    fn start(n: usize) -> Self {
        let spin = |_| Command::new(env::current_exe().unwrap()).arg(SPIN).spawn().unwrap();
        let all = Self((0..n).map(spin).collect());
        thread::sleep(Duration::from_millis(300));
        all
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Seconds for a graph of fifty products and fifty sums, on average over a round.
fn round(sched: &mut Sched, width: usize) -> f64 {
    let ctx = Context::new();
    let w = ctx.input("w", DType::F32, [width, width]).unwrap();
    let x = ctx.input("x", DType::F32, [width, 8]).unwrap();
    let y = (0..50).fold(x, |y, _| ctx.add(ctx.mul_mat(w, y).unwrap(), x).unwrap());
    let graph = ctx.graph([y]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(w, &vec![0.0_f32; width * width]).unwrap();
    run.set(x, &vec![1.0_f32; width * 8]).unwrap();
    run.compute().unwrap();
    let (start, mut n) = (Instant::now(), 0_u32);
    while start.elapsed() < ROUND {
        run.compute().unwrap();
        n += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(n)
}

fn sched(threads: Threads) -> Sched {
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(threads).unwrap();
    Sched::builder().backend(cpu).build().unwrap()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The time with `threads`, divided by that with one thread, for each number of processes beside.
fn ratios(threads: &Threads, width: usize) -> Vec<String> {
    let ratio = |(name, n): (&str, usize)| {
        let _busy = Busy::start(n);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            // One pool at a time: idle threads of ggml spin, too.
            one.push(round(&mut sched(Threads::new(1)), width));
            two.push(round(&mut sched(threads.clone()), width));
        }
        format!("{name}={:.2}", median(two) / median(one))
    };
    BESIDE.into_iter().map(ratio).collect()
}

fn main() {
    if env::args().any(|argument| argument == SPIN) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(120) {
            black_box(());
        }
        return;
    }
    let two = || Threads::new(2);
    let pool = if cfg!(feature = "openmp") { "openmp" } else { "ggml" };
    // By default one thread computes graphs of such short operations.
    let all = || two().with_all(true);
    let kinds = [
        ("all", all()),
        ("all, poll=0", all().with_poll(0)),
        ("all, poll=100", all().with_poll(100)),
        ("all, priority=low", all().with_priority(Priority::Low)),
    ];
    // OpenMP's threads have no polling and no priority of ggml's.
    for (name, threads) in kinds.iter().take(if cfg!(feature = "openmp") { 1 } else { kinds.len() }) {
        // A low priority stays with the thread that computes, so that is one of its own.
        let found = thread::scope(|scope| scope.spawn(|| ratios(threads, SMALL)).join().unwrap());
        println!("{pool} {name}: {}", found.join(" "));
    }
    println!("{pool} default, products of {LARGE} rows: {}", ratios(&two(), LARGE).join(" "));
    println!("{pool} default: threads=2");
    println!("busy: {}", ratios(&two(), SMALL).join(" "));
}
