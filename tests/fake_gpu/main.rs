//! A GPU in Rust (`testkit::fake_gpu`) that computes later, watches its memory for races, and fails on demand: random graphs
//! on one, on two, and on two beside the CPU; and a fault at each call. Has its own harness, which prints the counts.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
#![allow(clippy::cast_possible_wrap, clippy::print_stdout, reason = "small numbers, counts for people")]
#![allow(clippy::cast_sign_loss, clippy::float_cmp, reason = "small whole numbers, which are exact")]

mod basics;
mod events;
mod faults;
mod liars;
mod meta;
mod order;
mod random;
mod waiting;
mod written;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::Arguments;
use testkit::fake_gpu::take_races;

/// What the tests counted.
static GRAPHS: AtomicUsize = AtomicUsize::new(0);
static RACES: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicUsize = AtomicUsize::new(0);
static OOM: AtomicUsize = AtomicUsize::new(0);

fn count(counter: &AtomicUsize, n: usize) {
    counter.fetch_add(n, Ordering::SeqCst);
}

/// Fails if there were races.
#[track_caller]
fn assert_no_races(what: &str) {
    let races = take_races();
    count(&RACES, races.len());
    let texts: Vec<_> = races.iter().take(5).map(ToString::to_string).collect();
    assert!(races.is_empty(), "{} races in {what}:\n{}", races.len(), texts.join("\n"));
}

fn main() -> ExitCode {
    // The race detector has one clock for the host.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let lists = [
        basics::trials(),
        events::trials(),
        waiting::trials(),
        liars::trials(),
        meta::trials(),
        order::trials(),
        written::trials(),
        faults::trials(),
        random::trials(),
    ];
    let done = libtest_mimic::run(&arguments, lists.into_iter().flatten().collect());
    let [graphs, races, faults, lost, oom] = [&GRAPHS, &RACES, &FAULTS, &LOST, &OOM].map(|c| c.load(Ordering::SeqCst));
    println!("fake_gpu: devices=3 graphs={graphs} races={races} faults={faults} lost={lost} oom={oom}");
    done.exit_code()
}
