//! The overhead of the safe layer: the same work on `ggml-sys`, as in C, and on the safe layer, alternating in one
//! process. Times are medians of many rounds; ratios are safe over raw.
//!
//! `cargo bench --bench overhead`; a number as argument measures only models of at most so many layers.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::missing_assert_message,
    missing_docs,
    reason = "a benchmark fails by panicking, and prints"
)]

mod measure;
mod net;
mod raw;
mod safe;

use testkit::counted::{self, Counted};

use measure::compare;
use net::{Net, Size};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The number of layers of models that are only built: some 100 to 10,000 nodes.
const BUILT: [usize; 3] = [3, 32, 320];
/// The number of layers of models that are run: some 60 to 1,000 nodes.
const RUN: [usize; 3] = [2, 10, 32];

fn main() {
    let most = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(usize::MAX);
    let [mut nodes, mut build, mut alloc, mut turns, mut grow, mut step, mut compute] = [(); 7].map(|()| Vec::new());

    println!("{:8} {:>6} {:>12} {:>12} {:>7}", "", "nodes", "raw", "safe", "ratio");
    for layers in BUILT.into_iter().filter(|&n| n <= most) {
        let net = Net::new(layers);
        let (raw_model, safe_model) = (raw::Model::new(&net), safe::Model::new(&net));
        let (mut raw, mut safe) = (raw::Program::new(&raw_model, &net), safe::Program::new(&safe_model, &net));
        let n = raw.build(0);
        assert_eq!(n, safe.build(0), "both build the same graph");
        let rounds = 4_000_000 / n;
        let times = compare(rounds, |i| raw.nodes(i), |i| safe.nodes(i));
        nodes.push(times.print("nodes", n, n, "ns/node"));
        let times = compare(rounds, |i| raw.time_build(i), |i| safe.time_build(i));
        build.push(times.print("build", n, n, "ns/node"));
    }

    let mut allocations = 0;
    for layers in RUN.into_iter().filter(|&n| n <= most) {
        let net = Net::new(layers);
        let (raw_model, safe_model) = (raw::Model::new(&net), safe::Model::new(&net));
        let (mut raw, mut safe) = (raw::Program::new(&raw_model, &net), safe::Program::new(&safe_model, &net));
        let n = raw.build(0);
        let rounds = 2_000_000 / n;
        for i in 0..3 {
            assert_eq!(raw.step(i), safe.step(i), "both compute the same");
        }
        let before = counted::allocations();
        for i in 0..20 {
            safe.step(i);
        }
        allocations = allocations.max((counted::allocations() - before).div_ceil(20));
        let times = compare(rounds, |i| raw.time_alloc(i, Size::WHOLE), |i| safe.time_alloc(i, Size::WHOLE));
        alloc.push(times.print("alloc", n, 1000, "us"));
        let size = Size::in_turns;
        let times = compare(rounds / 4, |i| raw.time_alloc(i, size(i)), |i| safe.time_alloc(i, size(i)));
        turns.push(times.print("turns", n, 1000, "us"));
        let size = Size::growing;
        let times = compare(
            rounds / 4,
            |i| {
                if i.is_multiple_of(Size::STEPS) {
                    raw.renew();
                }
                raw.time_alloc(i, size(i))
            },
            |i| {
                if i.is_multiple_of(Size::STEPS) {
                    safe.renew();
                }
                safe.time_alloc(i, size(i))
            },
        );
        grow.push(times.print("grow", n, 1000, "us"));
        step.push(compare(rounds, |i| raw.time_step(i), |i| safe.time_step(i)).print("step", n, 1000, "us"));
        let times = raw.computing(|raw| safe.computing(|safe| compare(rounds, |_| raw(), |_| safe())));
        compute.push(times.print("compute", n, 1000, "us"));
    }

    let mean = |ratios: &[f64]| (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
    println!("nodes={:.3} turns={:.3} grow={:.3}", mean(&nodes), mean(&turns), mean(&grow));
    println!(
        "overhead: build={:.3} alloc={:.3} plan={:.3} step={:.3} compute={:.3} allocs_per_step={allocations}",
        mean(&build),
        mean(&alloc),
        mean(&turns).max(mean(&grow)),
        mean(&step),
        mean(&compute),
    );
}
