//! What a device in Rust costs per node: graphs of additions of four numbers, on a device that only counts them, on one
//! that is lent their bytes, with and without results that lie over an operand, and on a backend that is written as one in
//! C is. Times are medians of rounds that take turns.
//!
//! `cargo bench --bench driver`; `cargo bench --bench driver -- on_host 50` runs one of them 50 times, for a profiler.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::missing_assert_message,
    missing_docs,
    reason = "a benchmark fails by panicking, and prints"
)]

mod raw;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ggml::driver::{Driver, DriverBuffer, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{Graph, GraphAllocator, Registry};
use testkit::counted::{self, Counted};
use testkit::nothing::Nothing;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const NODES: usize = 1000;
const ROUNDS: usize = 400;

static COUNTED: AtomicUsize = AtomicUsize::new(0);

/// Counts nodes in memory of its own.
struct Counter;

/// Adds numbers in host memory.
struct Adder;

trait Probe: Send + Sync + 'static {
    const NAME: &str;
    const HAS_MEMORY: bool;
    type Buffer: DriverBuffer;

    fn allocate() -> Result<Self::Buffer, Failure>;
    fn compute(nodes: Nodes<'_, Device<Self>>) -> Result<(), Failure>
    where
        Self: Sized;
}

struct Device<P>(P);

impl<P: Probe> Driver for Device<P> {
    type Buffer = P::Buffer;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(P::NAME.into(), DeviceType::Accelerator).with_memory(P::HAS_MEMORY)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        true
    }

    fn allocate(&self, _: usize) -> Result<P::Buffer, Failure> {
        P::allocate()
    }

    fn stream(&self, _: &str) -> Result<Stream, Failure> {
        Ok(Stream)
    }
}

struct Stream;

impl<P: Probe> DriverStream<Device<P>> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, Device<P>>) -> Result<(), Failure> {
        P::compute(nodes)
    }
}

impl Probe for Counter {
    const NAME: &str = "counter";
    const HAS_MEMORY: bool = true;
    type Buffer = Nothing;

    fn allocate() -> Result<Nothing, Failure> {
        Ok(Nothing)
    }

    fn compute(nodes: Nodes<'_, Device<Self>>) -> Result<(), Failure> {
        COUNTED.store(nodes.count(), Ordering::Relaxed);
        Ok(())
    }
}

impl Probe for Adder {
    const NAME: &str = "adder";
    const HAS_MEMORY: bool = false;
    type Buffer = NoBuffer;

    fn allocate() -> Result<NoBuffer, Failure> {
        Err(Failure::new("it works in host memory"))
    }

    fn compute(nodes: Nodes<'_, Device<Self>>) -> Result<(), Failure> {
        for mut node in nodes {
            node.on_host(|to, from| {
                let [a, b] = [from[0], from[1]].map(bytemuck::cast_slice::<u8, f32>);
                let y: &mut [f32] = bytemuck::cast_slice_mut(to);
                y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = a + b);
            })?;
        }
        Ok(())
    }
}

/// A sum of many terms. Where all partial sums are outputs, none lies over another.
fn graph(ctx: &Context, keeps: bool) -> (Graph<'_>, [Tensor<'_>; 3]) {
    let [x, one] = ["x", "one"].map(|name| ctx.input(name, DType::F32, [4]).unwrap());
    let mut sums = vec![ctx.add(x, one).unwrap()];
    while sums.len() < NODES {
        sums.push(ctx.add(*sums.last().unwrap(), one).unwrap());
    }
    let y = *sums.last().unwrap();
    let graph = if keeps { ctx.graph(&sums) } else { ctx.graph([y]) };
    (graph.unwrap(), [x, one, y])
}

type Case<'a> = (&'static str, Box<dyn FnMut() + 'a>);

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let only = words.first().map(String::as_str);
    let rounds = words.get(1).map_or(ROUNDS, |n| n.parse().unwrap());
    let of = |r: ggml::Result<Registry>| r.unwrap().devices().unwrap()[0];
    let counter = of(Registry::register("Counter", [Device(Counter)]));
    let adder = of(Registry::register("Adder", [Device(Adder)]));
    let [c, cpu] = [raw::device(), ggml::Device::cpu().unwrap()];
    let list = [
        ("count", counter, true),
        ("on_host", adder, true),
        ("in_place", adder, false),
        ("c", c, true),
        ("cpu", cpu, true),
    ];
    let list: Vec<_> = list.into_iter().filter(|(name, ..)| only.is_none_or(|only| only == *name)).collect();

    let ctx = Context::new();
    let graphs = [true, false].map(|keeps| graph(&ctx, keeps));
    let mut backends: Vec<_> = list.iter().map(|(_, device, _)| device.init().unwrap()).collect();
    backends.iter_mut().filter(|b| b.device() == cpu).for_each(|b| b.set_threads(1).unwrap());
    let mut allocators: Vec<_> = list.iter().map(|(_, d, _)| GraphAllocator::new(d.buffer_type())).collect();
    let mut cases: Vec<Case<'_>> = Vec::new();
    for (((name, _, keeps), backend), allocator) in list.iter().zip(&mut backends).zip(&mut allocators) {
        let (graph, [x, one, y]) = &graphs[usize::from(!keeps)];
        let mut run = allocator.alloc(graph, backend).unwrap();
        run.set(*x, &[0.0_f32; 4]).unwrap();
        run.set(*one, &[1.0_f32; 4]).unwrap();
        run.compute().unwrap();
        match *name {
            "count" => assert_eq!(COUNTED.load(Ordering::Relaxed), NODES),
            _ => assert_eq!(run.get::<f32>(*y).unwrap(), [NODES as f32; 4]),
        }
        cases.push((name, Box::new(move || run.compute().unwrap())));
    }

    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    let mut allocations = vec![0; cases.len()];
    let n = cases.len();
    for i in 0..rounds {
        for j in (0..n).map(|j| (i + j) % n) {
            let before = counted::allocations();
            let start = Instant::now();
            cases[j].1();
            times[j].push(start.elapsed().as_nanos() as f64 / NODES as f64);
            allocations[j] = counted::allocations() - before;
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let figures = cases.iter().zip(times).map(|((name, _), times)| format!("{name}={:.1}", median(times)));
    let allocations = cases.iter().zip(&allocations).map(|((name, _), n)| format!("{name}:{n}"));
    let [figures, allocations] = [figures.collect::<Vec<_>>(), allocations.collect()];
    println!("driver: {} allocations={}", figures.join(" "), allocations.join(","));
}
