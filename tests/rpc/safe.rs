//! The safe API on an RPC device.

use ggml::rpc::{self, Server};
use ggml::{
    Backend, Context, DType, Error, GraphAllocator, WeightsBuilder,
    ops::{CustomOptions, SortOrder},
};
use testkit::rpc::{sched, weights};

#[test]
fn sched_computes_on_a_server() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let weights = weights(&connection, 3.0).unwrap();
    let other = self::weights(&connection, 0.0).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let y = context.mul(x, weights.tensor("w").unwrap()).unwrap();
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

/// Outside of an allocation a view has no buffer of its own through which to ask the server.
#[test]
fn views_of_remote_tensors_are_read() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [2, 3]).unwrap();
    let state = builder.place_state(connection.devices()[0].buffer_type()).unwrap();
    state.set("s", &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let context = Context::new();
    let s = state.tensor("s").unwrap();
    let row = context.view(s, [2], [8, 8, 8], 8).unwrap();
    assert_eq!(row.read::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(context.transpose(s).unwrap().read::<f32>().unwrap(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    connection.check().unwrap();
}

/// A server would receive the closure's address; in the same process it would even call it.
#[test]
fn custom_operations_run_on_the_local_cpu() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    // The scheduler assigns operations to the device of their weights.
    let (three, five) = (weights(&connection, 3.0).unwrap(), weights(&connection, 5.0).unwrap());
    let before = context.mul(x, three.tensor("w").unwrap()).unwrap();
    let doubled = context
        .map_custom1::<f32>(before, CustomOptions::new(), |out, x| {
            out.for_each(|(i, row)| row.iter_mut().zip(x.row(i)).for_each(|(y, x)| *y = 2.0 * x));
        })
        .unwrap();
    let y = context.mul(doubled, five.tensor("w").unwrap()).unwrap();
    let graph = context.graph([y]).unwrap();
    let mut sched = sched(&connection).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    let places = [before, doubled, y].map(|t| run.backend_of(t).unwrap().device() == remote);
    assert_eq!(places, [true, false, true]);
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [30.0, 60.0, 90.0, 120.0]);
    drop(run);
    let mut allocator = GraphAllocator::new(remote.buffer_type());
    let own = context.map_custom1::<f32>(x, CustomOptions::new(), |_, _| {}).unwrap();
    let own = context.graph([own]).unwrap();
    let mut backend = remote.init().unwrap();
    assert!(matches!(allocator.alloc(&own, &mut backend), Err(Error::Unsupported { .. })));
    let mut allocator = GraphAllocator::new(Backend::cpu().unwrap().device().buffer_type());
    allocator.reserve(&own).unwrap();
    assert!(matches!(allocator.alloc(&own, &mut backend), Err(Error::Unsupported { .. })));
}

/// A hostile server can return any index, and the stand-in of a lost server returns zeros.
#[test]
fn indices_computed_on_a_server_are_refused_elsewhere() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    let rows = context.input("rows", DType::F32, [2, 4]).unwrap();
    let given = context.input("given", DType::I32, [4]).unwrap();
    let order = context.argsort(x, SortOrder::Desc).unwrap();
    let first = context.view(order, [2], [4, 4, 4], 0).unwrap();
    let (there, here) = (0, 1);
    for (indices, root) in [(order, order), (first, order), (given, given)] {
        let y = context.get_rows(rows, indices).unwrap();
        let graph = context.graph([y]).unwrap();
        let refusal = sched.alloc_pinned(&graph, &[(root, there), (y, here)]).map(drop);
        assert!(matches!(&refusal, Err(Error::Unsupported { reason, .. }) if reason.contains("server")), "{refusal:?}");
        for (makes, picks) in [(here, here), (here, there), (there, there)] {
            let mut run = sched.alloc_pinned(&graph, &[(root, makes), (y, picks)]).unwrap();
            if root == order {
                run.set(x, &[1.0_f32, 4.0, 3.0, 2.0]).unwrap();
            } else {
                run.set(given, &[1, 2, 3, 0]).unwrap();
            }
            run.set(rows, &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(y).unwrap()[..4], [2.0, 3.0, 4.0, 5.0]);
        }
    }
}

#[test]
fn custom_inplace_is_refused_on_remote_tensors() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut sched = sched(&connection).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [4]).unwrap();
    let state = builder.place_state(connection.devices()[0].buffer_type()).unwrap();
    let context = Context::new();
    let x = context.input("x", DType::F32, [4]).unwrap();
    // The value that is written there anyway, and the tensor that is allocated there.
    let there = context.cpy(x, state.tensor("s").unwrap()).unwrap();
    let three = weights(&connection, 3.0).unwrap();
    let made = context.mul(x, three.tensor("w").unwrap()).unwrap();
    for target in [state.tensor("s").unwrap(), there, made] {
        let y = context
            .map_custom1_inplace::<f32>(target, CustomOptions::new(), |out| out.for_each(|(_, row)| row.fill(1.0)))
            .unwrap();
        let graph = context.graph([y]).unwrap();
        let refusal = sched.alloc(&graph).map(drop);
        assert!(matches!(refusal, Err(Error::Unsupported { .. })), "{target:?} {refusal:?}");
    }
}

/// The protocol has 32 bits for each dimension and stride.
#[test]
fn h126_rpc_refuses_shapes_beyond_32_bits() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let remote = connection.devices()[0];
    let context = Context::new();
    let long = context.input("long", DType::I8, [1_i64 << 32]).unwrap();
    let wide = context.input("wide", DType::F32, [1 << 20, 1 << 12]).unwrap();
    let apart = context.view(wide, [4, 2], [1 << 32, 1 << 33, 1 << 33], 0).unwrap();
    assert!(!remote.supports_op(context.cont(long).unwrap()).unwrap());
    let mut backend = remote.init().unwrap();
    for y in [context.cont(long).unwrap(), context.cont(apart).unwrap()] {
        let graph = context.graph([y]).unwrap();
        let message = GraphAllocator::new(remote.buffer_type()).alloc(&graph, &mut backend).unwrap_err().to_string();
        assert!(message.contains("RPC can't carry"), "{message}");
    }
    let near = context.input("near", DType::F32, [1 << 10, 1 << 10]).unwrap();
    let near = context.view(near, [4, 2], [1 << 20, 1 << 21, 1 << 21], 0).unwrap();
    let graph = context.graph([context.cont(near).unwrap()]).unwrap();
    drop(GraphAllocator::new(remote.buffer_type()).alloc(&graph, &mut backend).unwrap());
    connection.check().unwrap();
}

#[test]
fn add_id_of_operands_of_one_shape_is_computed() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("b", DType::F32, [2, 3]).unwrap();
    let mut weights = builder.place(connection.devices()[0].buffer_type()).unwrap();
    weights.set("b", &[10.0_f32, 20.0, 30.0, 40.0, 50.0, 60.0]).unwrap();
    let context = Context::new();
    let a = context.input("a", DType::F32, [2, 3]).unwrap();
    let ids = context.input("ids", DType::I32, [3, 1]).unwrap();
    let b = weights.tensor("b").unwrap();
    // The builder views the second operand with other strides, because both have one shape. So does the server's.
    let sum = context.add_id(context.mul(a, b).unwrap(), b, ids).unwrap();
    let graph = context.graph([sum]).unwrap();
    let mut sched = sched(&connection).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    assert_eq!(run.backend_of(sum).unwrap().device(), connection.devices()[0]);
    run.set(a, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    run.set(ids, &[2, 0, 2]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(sum).unwrap(), [60.0, 100.0, 100.0, 180.0, 300.0, 420.0]);
}
