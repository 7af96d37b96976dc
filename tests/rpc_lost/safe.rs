//! The safe API after a server was lost.

use ggml::rpc;
use ggml::{Context, DType, Error, Result};

use crate::child::ServerProcess;
use crate::support::{sched, weights};

#[test]
fn every_call_says_that_the_server_was_lost() {
    let mut server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let weights = weights(&connection, 3.0).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let y = context.mul(x, weights.get("w").unwrap()).unwrap();
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

fn assert_lost<T>(result: Result<T>) {
    let error = result.err().expect("a call on a lost server succeeded");
    assert!(matches!(error, Error::RpcLost { .. }), "{error:?}");
}
