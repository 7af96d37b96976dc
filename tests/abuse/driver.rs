//! Runs programs in child processes and tells which one failed.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::child::{Orders, program_seed};
use crate::ops;
use crate::stats::Stats;

/// Programs per process.
const CHUNK: u64 = 4000;

/// How long one program may take. They take less than a millisecond, on an idle machine.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// The run that is the same every time.
const FIXED: u64 = 20_260_000;

#[test]
fn random_programs_match_the_model_or_are_refused() {
    let number = |name: &str| -> Option<u64> {
        let text = env::var(name).ok()?;
        let value = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
        Some(value.unwrap_or_else(|e| panic!("{name}={text}: {e}")))
    };
    if let Some(seed) = number("ABUSE_PROGRAM") {
        let orders = Orders { seed, first: 0, count: 1, trace: 0, folder: folder("alone") };
        let ended = finish(start(&orders, true), &orders);
        assert!(ended.is_ok(), "program {seed:#018x} failed: {}", ended.unwrap_err());
        return;
    }
    let programs = number("ABUSE_PROGRAMS").unwrap_or(if cfg!(debug_assertions) { 5_000 } else { 200_000 });
    let runs = match number("ABUSE_SEED") {
        Some(seed) => vec![(seed, programs)],
        None => vec![(FIXED, programs.div_ceil(2)), (fastrand::u64(..), programs / 2)],
    };
    let started = Instant::now();
    let mut stats = Stats::new(ops::all().len());
    for (seed, count) in runs {
        crate::say(format_args!("{count} programs of ABUSE_SEED={seed:#x}"));
        stats.add(&run(seed, count));
    }
    report(&stats, started.elapsed());
    if env::var_os("ABUSE_ONLY").is_none() {
        check(&stats);
    }
}

/// A folder for what a child writes.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abuse-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs all programs of a run, two processes at a time.
fn run(seed: u64, count: u64) -> Stats {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let mut stats = Stats::new(ops::all().len());
    let mut running: Vec<(Running, Orders)> = Vec::new();
    let (mut next, mut said) = (0, Instant::now());
    let started = Instant::now();
    while next < count || !running.is_empty() {
        if next < count && running.len() < workers {
            let orders = Orders {
                seed,
                first: next,
                count: CHUNK.min(count.div_ceil(workers as u64)).min(count - next),
                trace: u64::MAX,
                folder: folder(&format!("{seed:x}-{next}")),
            };
            next += orders.count;
            running.push((start(&orders, false), orders));
            continue;
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut i = 0;
        while i < running.len() {
            let (child, orders) = &mut running[i];
            match child.poll(orders) {
                None => i += 1,
                Some(Ok(())) => {
                    let text = fs::read_to_string(orders.stats()).unwrap();
                    stats.add(&Stats::read(&text, ops::all().len()).unwrap());
                    fs::remove_dir_all(&orders.folder).unwrap();
                    running.swap_remove(i);
                }
                Some(Err(why)) => {
                    let (child, orders) = running.swap_remove(i);
                    for (other, _) in &mut running {
                        other.child.kill().unwrap();
                        other.child.wait().unwrap();
                    }
                    failed(&child, &orders, &why);
                }
            }
        }
        if said.elapsed() > Duration::from_secs(15) {
            said = Instant::now();
            let rate = stats.programs as f64 / started.elapsed().as_secs_f64();
            crate::say(format_args!("{} of {count} programs, {rate:.0} per second", stats.programs));
        }
    }
    stats
}

/// A child, and when it was last seen to go on.
struct Running {
    child: Child,
    program: Option<u64>,
    since: Instant,
}

fn start(orders: &Orders, show: bool) -> Running {
    let (name, value) = orders.environment();
    let stderr = if show { Stdio::inherit() } else { File::create(orders.folder.join("stderr")).unwrap().into() };
    let child = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child::child_runs_programs", "--nocapture"])
        .env(name, value)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    Running { child, program: None, since: Instant::now() }
}

impl Running {
    /// How the child ended, if it did; a child that hangs is ended.
    fn poll(&mut self, orders: &Orders) -> Option<Result<(), String>> {
        if let Some(status) = self.child.try_wait().unwrap() {
            self.program = current(orders);
            let done = status.success() && orders.stats().exists();
            return Some(if done { Ok(()) } else { Err(describe(status)) });
        }
        let now = current(orders);
        if now != self.program {
            (self.program, self.since) = (now, Instant::now());
        } else if self.since.elapsed() > HANGS_AFTER {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            return Some(Err(format!("it hung for {HANGS_AFTER:?}")));
        }
        None
    }
}

fn finish(mut child: Running, orders: &Orders) -> Result<(), String> {
    loop {
        if let Some(end) = child.poll(orders) {
            return end;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal {signal} ended it");
    }
    status.to_string()
}

/// The number of the program that a child is or was at.
fn current(orders: &Orders) -> Option<u64> {
    fs::read(orders.progress()).ok()?.try_into().ok().map(u64::from_le_bytes)
}

/// Tells all about a failure, and fails.
fn failed(child: &Running, orders: &Orders, why: &str) {
    let said = |folder: &Path| fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    let Some(number) = child.program else {
        panic!("a process ended before its first program: {why}\n{}", said(&orders.folder));
    };
    let seed = program_seed(orders.seed, number);
    crate::say(format_args!("program {number} of seed {:#x} failed: {why}\n{}", orders.seed, said(&orders.folder)));
    // The same alone, with its steps; where that goes well, what came before it matters.
    let alone = Orders { seed, first: 0, count: 1, trace: 0, folder: folder("alone") };
    if finish(start(&alone, false), &alone).is_err() {
        crate::say(format_args!("its steps:\n{}", said(&alone.folder)));
        panic!("program {seed:#018x} failed: {why}; run it by ABUSE_PROGRAM={seed:#018x}");
    }
    let after = Orders { count: number + 1 - orders.first, trace: number, folder: folder("after"), ..orders.clone() };
    let again = finish(start(&after, false), &after);
    crate::say(format_args!("its steps, after those before it:\n{}", said(&after.folder)));
    panic!(
        "program {number} of seed {:#x} failed: {why}; not alone, and after {} others of its process: {again:?}",
        orders.seed,
        number - orders.first
    );
}

fn report(stats: &Stats, took: Duration) {
    let sum = stats.sum();
    let share = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
    for (op, c) in ops::all().iter().zip(&stats.ops) {
        let all = share(c.accepted, c.calls);
        crate::say(format_args!(
            "{:24} {:8} calls, {:3.0} % accepted, {:8} without a kernel, {:8} computed, {:8} compared",
            op.name, c.calls, all, c.no_kernel, c.computed, c.compared
        ));
    }
    crate::say(format_args!("refused: {:?}", stats.refused));
    crate::say(format_args!(
        "{} programs in {:.0} s: {} builder calls, {:.0} % accepted, {} without a kernel, {} results computed, {} compared, {} values; {} steps of training, {} trainings refused",
        stats.programs,
        took.as_secs_f64(),
        sum.calls,
        share(sum.accepted, sum.calls),
        sum.no_kernel,
        sum.computed,
        sum.compared,
        stats.values,
        stats.trainings[0],
        stats.trainings[1]
    ));
    crate::say(format_args!("abuse: programs={} {}", stats.programs, stats.hostile));
}

/// The table must not rot: each operation has to be drawn so that it is accepted, computed and compared often enough.
fn check(stats: &Stats) {
    let sum = stats.sum();
    assert!(3 * sum.accepted > sum.calls, "too little is accepted: {sum:?}");
    if stats.programs < 5_000 {
        return;
    }
    let mut hostile = stats.hostile;
    if env::var_os("ABUSE_NO_LEAKS").is_some() {
        hostile.forgot = u64::MAX; // nothing is to be forgotten
    }
    let hostile = hostile.all();
    assert!(hostile.iter().all(|&n| n > stats.programs / 5_000), "too few are hostile: {}", stats.hostile);
    let least = stats.programs / 2_500;
    for (op, c) in ops::all().iter().zip(&stats.ops) {
        assert!(c.accepted >= least && c.computed >= least, "{}: too little of it is computed: {c:?}", op.name);
        let compared = !op.has_reference() || c.compared >= least / 8;
        assert!(compared, "{}: too little of it is compared: {c:?}", op.name);
    }
}
