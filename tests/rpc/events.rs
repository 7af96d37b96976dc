//! Events, which RPC devices support.

use ggml::prelude::*;
use ggml::rpc::{self, Server};
use ggml::{Event, GraphAllocator};

#[test]
fn event_orders_two_backends_of_a_server() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let device = connection.devices()[0];
    let (mut first, mut second) = (device.init().unwrap(), device.init().unwrap());
    let mut event = Event::new(device).unwrap();
    assert_eq!(event.device(), device);
    event.synchronize().unwrap();
    second.wait(&event).unwrap();

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let y = ctx.scale(x, 2.0).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut memory = allocator.alloc(&graph, &mut first).unwrap();
    memory.set(x, &[3.0_f32; 8]).unwrap();
    memory.compute().unwrap();
    assert_eq!(memory.get::<f32>(y).unwrap(), [6.0; 8]);
    drop(memory);
    event.record(&mut first).unwrap();
    second.wait(&event).unwrap();
    event.synchronize().unwrap();
    // The event is dropped while the queues may still refer to it: they keep it alive.
    event.record(&mut second).unwrap();
    first.wait(&event).unwrap();
    drop(event);
    first.synchronize().unwrap();
    drop(second);
}

/// H33: ggml casts any event it is given to the backend's own type.
#[test]
fn h33_events_of_another_device_are_refused() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let device = connection.devices()[0];
    let mut event = Event::new(device).unwrap();
    let mut cpu = Backend::cpu().unwrap();
    for result in [event.record(&mut cpu), cpu.wait(&event)] {
        assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
    }
}

/// An event belongs to no thread: one records it, the next waits for it, a third drops it.
#[test]
fn event_moves_between_threads() {
    let server = crate::start(Server::builder()).unwrap();
    let connection = rpc::connect(&server.address().to_string()).unwrap();
    let device = connection.devices()[0];
    let (mut first, mut second) = (device.init().unwrap(), device.init().unwrap());
    let mut event = Event::new(device).unwrap();
    let (event, first) = std::thread::spawn(move || {
        event.record(&mut first).unwrap();
        (event, first)
    })
    .join()
    .unwrap();
    let event = std::thread::spawn(move || {
        second.wait(&event).unwrap();
        event.synchronize().unwrap();
        event
    });
    drop((event.join().unwrap(), first));
    connection.check().unwrap();
}
