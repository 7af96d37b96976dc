//! Events: one queue of work waits for another.

use ggml::prelude::*;
use ggml::{Event, GraphAllocator};

use crate::device;

#[test]
fn events_synchronise_after_work() {
    let device = device();
    if !device.capabilities().unwrap().events {
        assert!(matches!(Event::new(device), Err(Error::Unsupported { .. })), "it says that it has none");
        eprintln!("unsupported: events");
        return;
    }
    let (mut one, mut two) = (device.init().unwrap(), device.init().unwrap());
    let mut event = Event::new(device).unwrap();
    event.synchronize().unwrap();
    two.wait(&event).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1 << 16]).unwrap();
    let y = (0..20).fold(x, |y, _| ctx.add(y, x).unwrap());
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    for _ in 0..10 {
        let mut run = allocator.alloc(&graph, &mut one).unwrap();
        run.set(x, &vec![1.0_f32; 1 << 16]).unwrap();
        run.compute_async(|| ()).unwrap();
        assert!(run.get::<f32>(y).unwrap().iter().all(|&v| v == 21.0));
        drop(run);
        event.record(&mut one).unwrap();
        two.wait(&event).unwrap();
        event.synchronize().unwrap();
        two.synchronize().unwrap();
    }
    // Any drop order is allowed.
    drop(event);
    drop(one);
    drop(two);
}

#[test]
fn h33_events_of_another_device_are_refused() {
    let device = device();
    let Some(other) = Device::all().unwrap().into_iter().find(|d| *d != device) else {
        eprintln!("unsupported: there is one device only");
        return;
    };
    if device.capabilities().unwrap().events {
        let mut event = Event::new(device).unwrap();
        let mut backend = other.init().unwrap();
        assert!(matches!(event.record(&mut backend), Err(Error::Unsupported { .. })));
        assert!(matches!(backend.wait(&event), Err(Error::Unsupported { .. })));
    }
}
