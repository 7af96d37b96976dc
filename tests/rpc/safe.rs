//! The safe API on a server's devices.

use ggml::rpc::{self, Server};
use ggml::{Context, DType};

use crate::support::{sched, weights};

#[test]
fn a_scheduler_computes_on_a_server() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let weights = weights(&connection, 3.0).unwrap();
    let other = self::weights(&connection, 0.0).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let y = context.mul(x, weights.get("w").unwrap()).unwrap();
    let graph = context.graph([y]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    assert_eq!(run.backend_of(y).unwrap().device(), connection.devices()[0]);
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [3.0, 6.0, 9.0, 12.0]);
    drop(other);
    run.set(x, &[5.0_f32; 4]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [15.0; 4]);
}
