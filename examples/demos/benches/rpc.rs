//! The overhead of a device on an RPC server: transfers and a small graph, through the relay, without it, and on this
//! process's CPU for comparison. The server is a separate process on the same machine.
//!
//! `cargo bench --bench rpc`; times are the best of many runs, since machines are seldom idle.

#![allow(clippy::cast_precision_loss, clippy::indexing_slicing, reason = "a benchmark fails by panicking, and prints")]
#![allow(clippy::missing_assert_message, clippy::print_stdout, reason = "a benchmark fails by panicking, and prints")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and prints")]

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use demos::servers::{self, ServerProcess};
use ggml::rpc::{self, Connection, Options};
use ggml::{Context, DType, Device, GraphAllocator, WeightsBuilder};

const LARGE: i64 = 64 << 20;
/// The number of runs of short computations.
const COMPUTATIONS: usize = 2000;
const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    if servers::is_one() {
        servers::serve().unwrap();
        return;
    }
    println!("{:28} {:>12} {:>12} {:>12}", "", "relay", "no relay", "this process");
    let servers = [true, false].map(|relay| (ServerProcess::start(NonZeroUsize::MIN, &[]).unwrap(), relay));
    let connections = servers
        .each_ref()
        .map(|(server, relay)| rpc::connect_with(server.address(), &Options::new().with_relay(*relay)).unwrap());
    let devices = [connections[0].devices()[0], connections[1].devices()[0], Device::cpu().unwrap()];

    let mib = |time: Duration| LARGE as f64 / MIB / time.as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let moves = devices.map(moves);
    row("upload, MiB/s", moves.map(|m| mib(m.upload)));
    row("upload of weights, MiB/s", moves.map(|m| mib(m.weights)));
    row("download, MiB/s", moves.map(|m| mib(m.download)));
    row("read of 16 bytes, us", moves.map(|m| micros(m.small)));
    row("computation, us", devices.map(|device| micros(compute(device))));
    traffic(&connections[0]);
}

fn row(name: &str, values: [f64; 3]) {
    println!("{name:28} {:12.1} {:12.1} {:12.1}", values[0], values[1], values[2]);
}

/// The shortest time of `runs` runs.
fn best(runs: usize, mut f: impl FnMut()) -> Duration {
    let times = (0..runs).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed()
    });
    times.min().unwrap()
}

#[derive(Debug, Clone, Copy)]
struct Moves {
    upload: Duration,
    weights: Duration,
    download: Duration,
    small: Duration,
}

fn moves(device: Device) -> Moves {
    let builder = |name: &str, n| {
        let mut builder = WeightsBuilder::new();
        builder.tensor(name, DType::I8, [n]).unwrap();
        builder
    };
    let data = vec![1_i8; usize::try_from(LARGE).unwrap()];
    let mut weights = builder("w", LARGE).place(device.buffer_type()).unwrap();
    let state = builder("s", LARGE).place_state(device.buffer_type()).unwrap();
    let few = builder("f", 16).place_state(device.buffer_type()).unwrap();
    // An upload is complete once something has been read after it.
    let read = || assert_eq!(few.read_bytes("f").unwrap().len(), 16);
    Moves {
        upload: best(20, || {
            state.set("s", &data).unwrap();
            read();
        }),
        weights: best(20, || {
            weights.set("w", &data).unwrap();
            read();
        }),
        download: best(20, || assert_eq!(state.read_bytes("s").unwrap().len(), data.len())),
        small: best(COMPUTATIONS, read),
    }
}

/// Setting 16 numbers, computing with them, and reading the result.
fn compute(device: Device) -> Duration {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16]).unwrap();
    let y = ctx.sqr(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut backend = device.init().unwrap();
    if device == Device::cpu().unwrap() {
        backend.set_threads(1).unwrap();
    }
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    best(COMPUTATIONS, || {
        memory.set(x, &[2.0_f32; 16]).unwrap();
        memory.compute().unwrap();
        assert_eq!(memory.get::<f32>(y).unwrap()[0].to_bits(), 4.0_f32.to_bits());
    })
}

/// The traffic of one such computation.
fn traffic(connection: &Connection) {
    let before = connection.traffic().unwrap();
    compute(connection.devices()[0]);
    let after = connection.traffic().unwrap();
    let each = |before: u64, after: u64| (after - before) as f64 / COMPUTATIONS as f64;
    println!(
        "a computation on the server: {:.0} bytes sent, {:.0} received, {:.1} requests",
        each(before.sent, after.sent),
        each(before.received, after.received),
        each(before.requests, after.requests)
    );
}
