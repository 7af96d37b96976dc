//! Waits: for transfers, for events, and for what is still under way when something is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ggml::Event;
use ggml::prelude::*;
use testkit::fake_gpu::{Call, FakeOptions, Fault, devices};

use crate::assert_no_races;

testkit::trials!(
    transfers_are_waited_for,
    copies_between_devices_come_after_their_source,
    backend_waits_for_an_event,
    compute_async_runs_beside_the_device,
    refused_copies_go_through_the_host,
    dropped_allocation_waits,
);

const N: usize = 64;

fn state(device: Device, names: &[&str]) -> State {
    let mut builder = WeightsBuilder::new();
    for name in names {
        builder.tensor(name, DType::F32, [N]).unwrap();
    }
    builder.place_state(device).unwrap()
}

fn numbers(start: f32) -> Vec<f32> {
    (0..N).map(|i| start + i as f32).collect()
}

fn transfers_are_waited_for() {
    let [(device, control)] = devices(FakeOptions::default());
    control.set_delays(true);
    let mut backend = device.init().unwrap();
    let state = state(device, &["a", "b"]);
    for round in 0..50 {
        let mut read = [vec![0.0; N], vec![0.0; N]];
        let [first, second] = &mut read;
        let data = numbers(round as f32);
        backend
            .transfers(|queue| {
                queue.set(&state, "a", &data[..])?;
                queue.set(&state, "b", numbers(-1.0))?;
                queue.get(state.tensor("a")?, first)?;
                queue.get(state.tensor("b")?, second)
            })
            .unwrap();
        assert_eq!(read, [data, numbers(-1.0)]);
        // The host's own access comes after the wait.
        assert_eq!(state.tensor("b").unwrap().read::<f32>().unwrap(), numbers(-1.0));
    }
    assert_no_races("transfers");
}

fn copies_between_devices_come_after_their_source() {
    let [(a, first), (b, _)] = devices(FakeOptions::default());
    first.set_delays(true);
    let (mut from, mut to) = (a.init().unwrap(), b.init().unwrap());
    let (there, here) = (state(a, &["x"]), state(b, &["x", "y"]));
    for round in 0..50 {
        there.set("x", &numbers(round as f32)).unwrap();
        to.transfers_from(&mut from, |queue| queue.copy(there.tensor("x")?, &here, "x")).unwrap();
        to.transfers(|queue| queue.copy(here.tensor("x")?, &here, "y")).unwrap();
        assert_eq!(here.tensor("y").unwrap().read::<f32>().unwrap(), numbers(round as f32));
    }
    assert_no_races("copies");
}

fn backend_waits_for_an_event() {
    let [(device, control)] = devices(FakeOptions::default());
    control.set_delays(true);
    let (mut first, mut second) = (device.init().unwrap(), device.init().unwrap());
    let mut event = Event::new(device).unwrap();
    event.synchronize().unwrap();
    second.wait(&event).unwrap();
    event.record(&mut first).unwrap();
    second.wait(&event).unwrap();
    event.synchronize().unwrap();
    event.record(&mut first).unwrap();
    drop(first);
    second.wait(&event).unwrap();
    drop(event);
    second.synchronize().unwrap();
    assert_no_races("events");
}

fn sched(device: Device) -> Sched {
    Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
}

fn compute_async_runs_beside_the_device() {
    let [(device, control)] = devices(FakeOptions::default());
    let mut sched = sched(device);
    let state = state(device, &["w"]);
    state.set("w", &numbers(1.0)).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [N]).unwrap();
    let y = ctx.mul(ctx.neg(x).unwrap(), state.tensor("w").unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &numbers(0.0)).unwrap();
    // The device goes on only when it is told, which the closure does: if the call waited before, this would not end.
    let told = AtomicBool::new(false);
    control.hang(true);
    run.compute_async(|| {
        std::thread::sleep(Duration::from_millis(5));
        told.store(true, Ordering::SeqCst);
        control.hang(false);
    })
    .unwrap();
    assert!(told.load(Ordering::SeqCst));
    let expected: Vec<_> = numbers(0.0).iter().zip(numbers(1.0)).map(|(x, w)| -x * w).collect();
    assert_eq!(run.get::<f32>(y).unwrap(), expected);
    drop(run);
    assert_no_races("compute_async");
}

fn refused_copies_go_through_the_host() {
    let [(a, _), (b, second)] = devices(FakeOptions::default());
    let (mut from, mut to) = (a.init().unwrap(), b.init().unwrap());
    let (there, here) = (state(a, &["x"]), state(b, &["x"]));
    for call in [Call::Copy, Call::BufferCopy] {
        there.set("x", &numbers(7.0)).unwrap();
        second.fail(call, 0, Fault::Refuse);
        match call {
            Call::Copy => to.transfers_from(&mut from, |queue| queue.copy(there.tensor("x")?, &here, "x")).unwrap(),
            _ => here.copy("x", there.tensor("x").unwrap()).unwrap(),
        }
        assert!(second.has_failed());
        assert_eq!(here.tensor("x").unwrap().read::<f32>().unwrap(), numbers(7.0));
    }
    assert_no_races("copies");
}

/// What is dropped without being read is waited for too: its memory goes to the next graph.
fn dropped_allocation_waits() {
    let [(device, control)] = devices(FakeOptions::default());
    control.set_delays(true);
    let mut sched = sched(device);
    for i in 1..20 {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [N * i]).unwrap();
        let graph = ctx.graph([ctx.sqr(ctx.neg(x).unwrap()).unwrap()]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &vec![1.0_f32; N * i]).unwrap();
        run.compute_async(|| ()).unwrap();
    }
    drop(sched);
    assert_eq!(control.used(), 0);
    assert_no_races("allocations");
}
