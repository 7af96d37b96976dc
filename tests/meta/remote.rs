//! A meta device over two RPC servers.

use std::sync::OnceLock;

use ggml::GraphAllocator;
use ggml::meta::MetaDevice;
use ggml::prelude::*;
use ggml::rpc::{self, Connection, Server};
use testkit::server::ServerProcess;

use crate::support::{Matrix, assert_close, by_name, noise, place, run, wide};

/// Two servers that live as long as the tests.
fn servers() -> [Device; 2] {
    static SERVERS: OnceLock<[(ServerProcess, Connection); 2]> = OnceLock::new();
    let start = |()| {
        let process = ServerProcess::start();
        let connection = rpc::connect(&process.address.to_string()).unwrap();
        (process, connection)
    };
    SERVERS.get_or_init(|| [(); 2].map(start)).each_ref().map(|(_, connection)| connection.devices()[0])
}

const WIDTH: i64 = 64;

fn matrices() -> [Matrix; 2] {
    [Matrix::new("up.1", DType::Q8_0, [WIDTH, 192]), Matrix::new("down.0", DType::Q8_0, [192, WIDTH])]
}

fn want(x: &[f32]) -> Vec<f64> {
    let [up, down] = matrices();
    let hidden: Vec<_> = up.times(&wide(x)).into_iter().map(|h| h.max(0.0)).collect();
    down.times(&hidden).into_iter().zip(x).map(|(y, &x)| y + f64::from(x)).collect()
}

fn feed_forward<'c>(ctx: &'c Context, weights: &'c Weights, x: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
    let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up.1")?, x)?)?;
    ctx.add(ctx.mul_mat(weights.tensor("down.0")?, hidden)?, x)
}

#[test]
fn meta_feed_forward_on_servers_equals_one_device() {
    let [one, two] = servers();
    let x = noise(WIDTH as usize, 2);
    for devices in [&[one, two][..], &[one, two, one], &[Device::cpu().unwrap(), two]] {
        let device = MetaDevice::new(devices, by_name).unwrap().device();
        let weights = place(device, &matrices());
        for (m, name) in matrices().iter().zip(["up.1", "down.0"]) {
            assert_eq!(weights.read_bytes(name).unwrap(), m.bytes(), "{name} on {device}");
        }
        let ctx = Context::new();
        let got = run(device, &ctx, (&x, &[WIDTH]), |x| feed_forward(&ctx, &weights, x)).unwrap();
        assert_close(&got, &want(&x), 0.02, &device.name());
    }
}

#[test]
fn rpc_server_refuses_a_meta_device() {
    let refused = Server::builder().devices([crate::support::meta(2)]).start();
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "their memory has no addresses: {refused:?}");
}

/// In a scheduler, the CPU can use mirrored results of the servers, but not split ones.
#[test]
fn sched_cpu_reads_mirrored_results_of_servers() {
    let device = MetaDevice::new(&servers(), by_name).unwrap().device();
    let weights = place(device, &matrices());
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [WIDTH]).unwrap();
    let whole = feed_forward(&ctx, &weights, x).unwrap();
    let rolled = ctx.roll(whole, [1, 0, 0, 0]).unwrap();
    let graph = ctx.graph([rolled]).unwrap();
    let values = noise(WIDTH as usize, 3);
    for _ in 0..2 {
        let mut run = sched.alloc_pinned(&graph, &[(rolled, 1)]).unwrap();
        run.set(x, &values).unwrap();
        run.compute().unwrap();
        let mut want = want(&values);
        want.rotate_right(1);
        assert_close(&run.get::<f32>(rolled).unwrap(), &want, 0.02, "rolled by the CPU");
    }
    let part = ctx.mul_mat(weights.tensor("up.1").unwrap(), x).unwrap();
    let rolled = ctx.roll(part, [1, 0, 0, 0]).unwrap();
    let graph = ctx.graph([rolled]).unwrap();
    let error = sched.alloc_pinned(&graph, &[(rolled, 1)]).unwrap_err().to_string();
    assert!(error.contains("can't be used on another device"), "{error}");
}

/// The loss of either server at any time is an error, and the rest remains usable.
#[test]
fn meta_reports_a_lost_server() {
    for lost in [0, 1] {
        let mut processes = [(); 2].map(|()| ServerProcess::start());
        let connections = processes.each_ref().map(|p| rpc::connect(&p.address.to_string()).unwrap());
        let devices = connections.each_ref().map(|c| c.devices()[0]);
        let device = MetaDevice::new(&devices, by_name).unwrap().device();
        let weights = place(device, &matrices());
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [WIDTH]).unwrap();
        let y = feed_forward(&ctx, &weights, x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut allocator = GraphAllocator::new(device.buffer_type());
        let mut backend = device.init().unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        let values = noise(WIDTH as usize, 5);
        memory.set(x, &values).unwrap();
        memory.compute().unwrap();
        assert_close(&memory.get::<f32>(y).unwrap(), &want(&values), 0.02, "before");

        processes[lost].kill();
        let result = memory.set(x, &values).and_then(|()| memory.compute()).and_then(|()| memory.get::<f32>(y));
        let endpoint = processes[lost].address.to_string();
        assert!(matches!(&result, Err(Error::RpcLost { endpoint: e, .. }) if **e == endpoint), "{lost}: {result:?}");
        drop(memory);
        for (what, error) in [
            ("allocate", allocator.alloc(&graph, &mut backend).err()),
            ("begin", device.init().err()),
            ("ask", device.memory().err()),
            ("read", weights.read_bytes("up.1").err()),
            ("make", MetaDevice::new(&devices, by_name).err()),
        ] {
            assert!(matches!(error, Some(Error::RpcLost { .. })), "{what} without {lost}: {error:?}");
        }
        let left = devices[1 - lost];
        let ctx = Context::new();
        let one = place(left, &matrices());
        let got = run(left, &ctx, (&values, &[WIDTH]), |x| feed_forward(&ctx, &one, x)).unwrap();
        assert_close(&got, &want(&values), 0.02, "on the one that is left");
    }
}
