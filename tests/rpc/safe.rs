//! The safe API on a server's devices.

use ggml::rpc::{self, Server};
use ggml::{Backend, Context, Custom, DType, Error, GraphAllocator, WeightsBuilder};

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

/// A server would be sent the closure's address, and in this process even call it.
#[test]
fn closures_stay_here() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let doubled = context
        .map_custom1::<f32>(context.sqr(x).unwrap(), Custom::default(), |out, x| {
            out.for_each(|(i, row)| row.iter_mut().zip(x.row(i)).for_each(|(y, x)| *y = 2.0 * x));
        })
        .unwrap();
    let y = context.neg(doubled).unwrap();
    let graph = context.graph([y]).unwrap();
    let mut sched = sched(&connection).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    assert_ne!(run.backend_of(doubled).unwrap().device(), remote);
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [-2.0, -8.0, -18.0, -32.0]);
    drop(run);
    let mut allocator = GraphAllocator::new(remote.buffer_type());
    assert!(matches!(allocator.alloc(&graph), Err(Error::Unsupported { .. })));
    let mut allocator = GraphAllocator::new(Backend::cpu().unwrap().device().buffer_type());
    let mut memory = allocator.alloc(&graph).unwrap();
    memory.set(x, &[1.0_f32; 4]).unwrap();
    assert!(matches!(memory.compute(&mut remote.init().unwrap()), Err(Error::Unsupported { .. })));
}

#[test]
fn closures_change_nothing_on_a_server() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [4]).unwrap();
    let state = builder.place_state(connection.devices()[0].buffer_type()).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    // What is written there anyway, and what comes to lie there.
    let there = context.cpy(x, state.get("s").unwrap()).unwrap();
    let made = context.mul(state.get("s").unwrap(), x).unwrap();
    for target in [state.get("s").unwrap(), there, made] {
        let y = context
            .map_custom1_inplace::<f32>(target, Custom::default(), |out| out.for_each(|(_, row)| row.fill(1.0)))
            .unwrap();
        let graph = context.graph([y]).unwrap();
        match sched.alloc(&graph) {
            Err(Error::Unsupported { .. }) => {}
            Ok(mut run) => {
                // The scheduler made room for it here.
                assert_eq!(target, made);
                run.set(x, &[1.0_f32; 4]).unwrap();
                run.compute().unwrap();
                assert_eq!(run.get::<f32>(y).unwrap(), [1.0; 4]);
            }
            Err(e) => panic!("{e}"),
        }
    }
}
