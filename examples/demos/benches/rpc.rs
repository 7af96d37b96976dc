//! What a device on an RPC server costs, beside ggml's own server, with and without the relay and TLS, and beside this
//! process's CPU. Each server is a separate process on the same machine, with one thread for computing.
//!
//! `cargo bench --bench rpc`, and with `--features rpc-tls` for the column of TLS. Rounds alternate between the devices, and change their order;
//! figures are medians of the rounds.

#![allow(clippy::cast_precision_loss, clippy::indexing_slicing, reason = "a benchmark fails by panicking, and prints")]
#![allow(clippy::missing_assert_message, clippy::print_stdout, reason = "a benchmark fails by panicking, and prints")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and prints")]

use std::ffi::CString;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use demos::servers::{self, ServerProcess};
use ggml::prelude::*;
use ggml::rpc::{self, Connection, Options};
use ggml::{GraphAllocator, Result, WeightsBuilder};

const LARGE: i64 = 64 << 20;
/// The number of short computations of a round.
const COMPUTATIONS: u32 = 200;
/// The number of large transfers of a round.
const TRANSFERS: u32 = 3;
/// The number of a decoder's steps of a round.
const STEPS: u32 = 30;
const ROUNDS: usize = 9;
const MIB: f64 = 1024.0 * 1024.0;

/// Tells a server process to run ggml's server.
const GGMLS: &str = "--ggmls";

fn main() {
    if servers::is_one() {
        if std::env::args().any(|argument| argument == GGMLS) {
            serve_ggmls();
        } else {
            servers::serve().unwrap();
        }
        return;
    }
    let rounds: usize = std::env::args().skip(1).find_map(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let ours = || ServerProcess::start(NonZeroUsize::MIN, &[]).unwrap();
    let (with_relay, without) = (Options::new(), Options::new().with_relay(false));
    let mut servers = vec![
        ("ours", ours(), without.clone()),
        ("ggml's", ServerProcess::start(NonZeroUsize::MIN, &[GGMLS]).unwrap(), without),
        ("relay", ours(), with_relay),
    ];
    // It lives as long as the servers.
    #[cfg(feature = "rpc-tls")]
    let folder = tempfile::tempdir().unwrap();
    #[cfg(feature = "rpc-tls")]
    {
        let both = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let tls = servers::write_tls(folder.path(), &both.cert.pem(), &both.signing_key.serialize_pem()).unwrap();
        let server = ServerProcess::start_with_tls(NonZeroUsize::MIN, &[], folder.path()).unwrap();
        servers.push(("TLS", server, Options::new().with_tls(tls)));
    }
    let connect = |(_, server, options): &(_, ServerProcess, _)| rpc::connect_with(server.address(), options).unwrap();
    let connections: Vec<Connection> = servers.iter().map(connect).collect();
    let mut devices: Vec<_> = servers.iter().zip(&connections).map(|((name, ..), c)| (*name, c.devices()[0])).collect();
    devices.push(("this process", Device::cpu().unwrap()));

    let mut all = vec![Vec::new(); devices.len()];
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        let mut turns: Vec<_> = all.iter_mut().zip(&devices).collect();
        // Each follows another one in turn: what was measured before leaves its mark on the system.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (measured, (_, device)) in turns {
            measured.push(Times::measure(*device).unwrap());
        }
    }
    let medians: Vec<Times> = all.iter().map(|times| Times::median(times)).collect();
    print(&devices, &medians);
    traffic(&connections[2]);
}

/// Seconds of each thing that is measured.
#[derive(Debug, Clone, Copy)]
struct Times([f64; 7]);

const NAMES: [&str; 7] = [
    "upload, MiB/s",
    "upload of weights, MiB/s",
    "download, MiB/s",
    "read of 16 bytes, us",
    "computation, us",
    "decoder's first step, us",
    "decoder's step, us",
];

impl Times {
    fn measure(device: Device) -> Result<Self> {
        let [upload, weights, download, small] = transfers(device)?;
        let [first, step] = decode(device)?;
        Ok(Self([upload, weights, download, small, compute(device)?, first, step]))
    }

    fn median(all: &[Self]) -> Self {
        Self(std::array::from_fn(|i| {
            let mut times: Vec<f64> = all.iter().map(|times| times.0[i]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }))
    }
}

fn print(devices: &[(&str, Device)], medians: &[Times]) {
    let cells = |cells: Vec<String>| cells.iter().map(|cell| format!("{cell:>12}")).collect::<Vec<_>>().join(" ");
    println!("{:26} {}", "", cells(devices.iter().map(|(name, _)| (*name).to_owned()).collect()));
    for (i, name) in NAMES.iter().enumerate() {
        let shown = |t: &Times| if i < 3 { LARGE as f64 / MIB / t.0[i] } else { 1e6 * t.0[i] };
        println!("{name:26} {}", cells(medians.iter().map(|t| format!("{:.1}", shown(t))).collect()));
    }
    let of = |i: usize| medians[0].0[i] / medians[1].0[i];
    println!(
        "rpc: upload={:.2} weights={:.2} download={:.2} computation={:.2} first_step={:.2} step={:.2} (beside ggml's server: speed of \
         transfers, time of computations)",
        1.0 / of(0),
        1.0 / of(1),
        1.0 / of(2),
        of(4),
        of(5),
        of(6)
    );
}

/// The mean time of a few calls.
fn mean(runs: u32, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs {
        f()?;
    }
    Ok((start.elapsed() / runs).as_secs_f64())
}

fn transfers(device: Device) -> Result<[f64; 4]> {
    let builder = |name: &str, n| {
        let mut builder = WeightsBuilder::new();
        builder.tensor(name, DType::I8, [n]).map(|_| builder)
    };
    let data = vec![1_i8; usize::try_from(LARGE).unwrap()];
    let mut weights = builder("w", LARGE)?.place(device.buffer_type())?;
    let state = builder("s", LARGE)?.place_state(device.buffer_type())?;
    let few = builder("f", 16)?.place_state(device.buffer_type())?;
    // An upload is complete once something has been read after it.
    let read = || few.read_bytes("f").map(|bytes| assert_eq!(bytes.len(), 16));
    let upload = mean(TRANSFERS, || state.set("s", &data).and_then(|()| read()))?;
    let uploaded = mean(TRANSFERS, || weights.set("w", &data).and_then(|()| read()))?;
    let download = mean(TRANSFERS, || state.read_bytes("s").map(|bytes| assert_eq!(bytes.len(), data.len())))?;
    Ok([upload, uploaded, download, mean(COMPUTATIONS, read)?])
}

fn init(device: Device) -> Result<Backend> {
    let mut backend = device.init()?;
    if device == Device::cpu()? {
        backend.set_threads(1)?;
    }
    Ok(backend)
}

/// Setting 16 numbers, computing with them, and reading the result.
fn compute(device: Device) -> Result<f64> {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16])?;
    let y = ctx.sqr(x)?;
    let graph = ctx.graph([y])?;
    let mut backend = init(device)?;
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend)?;
    mean(COMPUTATIONS, || {
        memory.set(x, &[2.0_f32; 16])?;
        memory.compute()?;
        assert_eq!(memory.get::<f32>(y)?[0].to_bits(), 4.0_f32.to_bits());
        Ok(())
    })
}

/// The first step of a decoder for one token, with which its graph is sent, and the mean of the later ones: 6 layers of attention over 64 earlier tokens and a feed-forward network, 256 wide.
fn decode(device: Device) -> Result<[f64; 2]> {
    const WIDTH: u16 = 256;
    let width = i64::from(WIDTH);
    let mut builder = WeightsBuilder::new();
    for layer in 0..6 {
        for (name, shape) in [
            ("q", [width, width]),
            ("keys", [width, 64]),
            ("values", [64, width]),
            ("gate", [width, 4 * width]),
            ("up", [width, 4 * width]),
            ("down", [4 * width, width]),
        ] {
            builder.tensor(&format!("{layer}.{name}"), DType::F16, shape)?;
        }
    }
    let weights = builder.place(device.buffer_type())?;
    let ctx = Context::new();
    let token = ctx.input("token", DType::F32, [width])?;
    let mut x = token;
    for layer in 0..6 {
        let times = |name: &str, x| ctx.mul_mat(weights.tensor(&format!("{layer}.{name}"))?, x);
        let y = times("q", ctx.rms_norm(x, 1e-5)?)?;
        x = ctx.add(x, times("values", ctx.soft_max(times("keys", y)?)?)?)?;
        let y = ctx.rms_norm(x, 1e-5)?;
        let y = ctx.mul(ctx.silu(times("gate", y)?)?, times("up", y)?)?;
        x = ctx.add(x, times("down", y)?)?;
    }
    let graph = ctx.graph([x])?;
    let mut backend = init(device)?;
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend)?;
    let mut step = || {
        memory.set(token, &[0.5_f32; WIDTH as usize])?;
        memory.compute()?;
        assert_eq!(memory.get::<f32>(x)?.len(), WIDTH as usize);
        Ok(())
    };
    Ok([mean(1, &mut step)?, mean(STEPS, step)?])
}

/// The traffic of a short computation.
fn traffic(connection: &Connection) {
    let before = connection.traffic().unwrap();
    compute(connection.devices()[0]).unwrap();
    let after = connection.traffic().unwrap();
    let each = |before: u64, after: u64| (after - before) as f64 / f64::from(COMPUTATIONS);
    println!(
        "a computation on the server: {:.0} bytes sent, {:.0} received, {:.1} requests",
        each(before.sent, after.sent),
        each(before.received, after.received),
        each(before.requests, after.requests)
    );
}

/// Runs ggml's server on the CPU until the process ends, and tells its address as ours does.
fn serve_ggmls() {
    // It can't say which port it chose.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = CString::new(address.to_string()).unwrap();
    thread::spawn(move || {
        while TcpStream::connect(address).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        servers::announce(address).unwrap();
        servers::wait_for_end().unwrap();
        // ggml's server never returns.
        #[expect(clippy::exit, reason = "the end of the process")]
        std::process::exit(0);
    });
    // SAFETY: the number of ggml's type of device is one of its own.
    let mut cpu = unsafe { ggml_sys::ggml_backend_dev_by_type(ggml_sys::GGML_BACKEND_DEVICE_TYPE_CPU) };
    // SAFETY: a C string and one live device, which outlive the call; no folder for a cache.
    unsafe { ggml_sys::ggml_backend_rpc_start_server(endpoint.as_ptr(), std::ptr::null(), 1, 1, &raw mut cpu) };
}
