//! The safe API after the loss of a server.

use ggml::rpc;
use ggml::{Context, DType, Error, GraphAllocator, Result, WeightsBuilder};
use testkit::rpc::{sched, weights};
use testkit::server::ServerProcess;

#[test]
fn safe_calls_report_the_lost_server() {
    let mut server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let weights = weights(&connection, 3.0).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let y = context.mul(x, weights.tensor("w").unwrap()).unwrap();
    let graph = context.graph([y]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    run.compute().unwrap();

    server.kill();
    assert_lost(run.get::<f32>(y));
    assert_lost(run.compute());
    drop(run);
    assert_lost(sched.alloc(&graph).map(drop));
    assert_lost(weights.read_bytes("w"));
    assert_lost(self::weights(&connection, 1.0));
    assert_lost(self::sched(&connection));
    assert_lost(connection.devices()[0].memory());
}

/// If the server is lost during asynchronous work, waiting gives an error, and nothing uses the lent data any more.
#[test]
fn asynchronous_work_reports_the_lost_server() {
    let mut server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let device = connection.devices()[0];
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [1 << 20]).unwrap();
    let state = builder.place_state(device.buffer_type()).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let graph = context.graph([context.neg(x).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init().unwrap();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    run.compute_async(|| ()).unwrap();
    drop(run);
    let mut out = vec![0.0_f32; 1 << 20];
    assert_lost(backend.transfers(|queue| {
        queue.set(&state, "s", vec![1.0_f32; 1 << 20])?;
        server.kill();
        queue.get(state.tensor("s")?, &mut out)
    }));
    assert_lost(backend.transfers(|_| Ok(())));
    assert_lost(allocator.alloc(&graph, &mut backend).map(drop));
}

fn assert_lost<T>(result: Result<T>) {
    let error = result.err().expect("a call on a lost server succeeded");
    assert!(matches!(error, Error::RpcLost { .. }), "{error:?}");
}
