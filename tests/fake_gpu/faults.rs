//! A fault at each call: the call that ran it returns an error, nothing else is hurt, and all memory is freed.

use std::cell::RefCell;
use std::sync::mpsc;

use ggml::prelude::*;
use ggml::{Event, Result};
use testkit::fake_gpu::{Call, FakeOptions, Fault, devices, take_races};

use crate::{FAULTS, GRAPHS, LOST, OOM, assert_no_races, count};

testkit::trials!(
    fault_at_every_call_is_an_error,
    too_little_memory_is_an_error,
    cpu_goes_on_beside_a_lost_device,
    failures_in_thread_local_destructors_are_errors,
    errors_name_the_device_and_the_reason,
);

const N: usize = 8;

fn state(device: Device) -> Result<State> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::F32, [N, N])?;
    builder.tensor("b", DType::F32, [N, N])?;
    builder.place_state(device)
}

/// Uses all functions of two devices. Returns what it computed.
fn work([a, b]: [Device; 2]) -> Result<Vec<f32>> {
    let (here, there) = (state(a)?, state(b)?);
    let data: Vec<_> = (0..N * N).map(|i| (i % 5) as f32).collect();
    here.set("a", &data)?;
    here.fill_bytes("b", 0)?;
    there.copy("a", here.tensor("a")?)?;
    let read = there.tensor("a")?.read::<f32>()?;
    assert_eq!(read, data);
    let (mut first, mut second) = (a.init()?, b.init()?);
    let mut read = vec![0.0; N * N];
    second.transfers_from(&mut first, |queue| {
        queue.copy(here.tensor("a")?, &there, "b")?;
        queue.set(&there, "a", &data[..])?;
        queue.get(there.tensor("b")?, &mut read)
    })?;
    assert_eq!(read, data);
    let mut event = Event::new(a)?;
    event.record(&mut first)?;
    event.synchronize()?;
    first.wait(&event)?;
    first.synchronize()?;
    let mut sched = Sched::builder().backend(first).backend(second).backend(Backend::cpu()?).parallel(true).build()?;
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [N, N])?;
    let y = ctx.mul_mat(here.tensor("a")?, x)?;
    let z = ctx.relu(ctx.add(y, there.tensor("b")?)?)?;
    let graph = ctx.graph([z])?;
    let mut last = Vec::new();
    for _ in 0..2 {
        let mut run = sched.alloc_pinned(&graph, &[(y, 0), (z, 1)])?;
        run.set(x, &data)?;
        run.compute()?;
        run.compute_async(|| ())?;
        last = run.get::<f32>(z)?;
    }
    count(&GRAPHS, 1);
    Ok(last)
}

/// What a failure that doesn't lose the device may lead to.
fn expected(call: Call, error: &Error) -> bool {
    match call {
        Call::Supports => matches!(error, Error::Unsupported { .. }),
        Call::Allocate => matches!(error, Error::OutOfMemory { .. }),
        // A size that changes: too large for the device, or for where the tensor is to lie.
        Call::AllocSize => matches!(error, Error::OutOfMemory { .. } | Error::Shape { .. } | Error::Ggml { .. }),
        Call::Event => matches!(error, Error::Null { .. }),
        // Nobody knows then what runs, or what is free.
        Call::Synchronize | Call::WaitFor | Call::Work | Call::DropBuffer | Call::DropStream => {
            matches!(error, Error::DeviceLost { .. })
        }
        _ => matches!(error, Error::DeviceFailed { .. }),
    }
}

/// Runs the work with a fault. Returns `false` if there are fewer such calls.
fn fault(call: Call, n: usize, fault: Fault, on: usize) -> bool {
    let what = format!("{fault:?} at call {n} of {call:?} of device {on}");
    let [(a, first), (b, second)] = devices(FakeOptions::default());
    let control = if on == 0 { &first } else { &second };
    let device = if on == 0 { a } else { b };
    control.fail(call, n, fault);
    let result = work([a, b]);
    if !control.has_failed() {
        assert!(result.is_ok(), "{what}: {result:?}");
        return false;
    }
    count(&FAULTS, 1);
    let lost = device.init().err().filter(|e| matches!(e, Error::DeviceLost { .. }));
    count(&LOST, usize::from(lost.is_some()));
    let loses = matches!(fault, Fault::Lose | Fault::Panic)
        && !matches!((call, fault), (Call::Supports | Call::AllocSize, Fault::Lose));
    match result {
        Err(error) => {
            count(&OOM, usize::from(matches!(error, Error::OutOfMemory { .. })));
            let fits = if loses { matches!(error, Error::DeviceLost { .. }) } else { expected(call, &error) };
            assert!(fits, "{what}: {error}");
        }
        // What drops does is told afterwards; an operation that one device refuses is another one's; copies without events
        // wait for streams.
        Ok(_) => assert!(
            matches!(call, Call::DropBuffer | Call::DropStream | Call::Supports | Call::Event | Call::AllocSize),
            "{what}: no error"
        ),
    }
    assert!(!loses || lost.is_some(), "{what}: the device is not lost");
    assert_eq!((first.used(), second.used()), (0, 0), "{what}: memory is leaked");
    // After a failure, streams may be freed with work under way.
    drop(take_races());
    true
}

fn fault_at_every_call_is_an_error() {
    for call in Call::ALL {
        for kind in [Fault::Fail, Fault::Lose, Fault::Panic] {
            let mut happened = 0;
            for on in 0..2 {
                for n in [0, 1, 2, 5, 9] {
                    happened += usize::from(fault(call, n, kind, on));
                }
            }
            assert!(happened > 0, "no call of {call:?} to fail at");
        }
    }
}

fn too_little_memory_is_an_error() {
    let plenty = {
        let [(a, _), (b, _)] = devices(FakeOptions::default());
        work([a, b]).unwrap()
    };
    let mut refused = 0;
    for limit in (0..12_000).step_by(256) {
        let [(a, first), (b, second)] = devices(FakeOptions { limit, ..FakeOptions::default() });
        match work([a, b]) {
            Ok(values) => assert_eq!(values, plenty),
            Err(error) => {
                assert!(matches!(error, Error::OutOfMemory { .. }), "{limit} bytes: {error}");
                refused += 1;
            }
        }
        assert_eq!((first.used(), second.used()), (0, 0), "{limit} bytes: memory is leaked");
    }
    count(&OOM, refused);
    assert!(refused > 5, "only {refused} limits were too low");
    assert_no_races("too little memory");
}

fn cpu_goes_on_beside_a_lost_device() {
    let [(device, control)] = devices(FakeOptions::default());
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [N]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut both = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut alone = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = both.alloc_pinned(&graph, &[(y, 0)]).unwrap();
    run.set(x, &[1.0_f32; N]).unwrap();
    control.fail(Call::Compute, 0, Fault::Fail);
    let failed = run.compute().unwrap_err();
    assert!(matches!(failed, Error::DeviceFailed { .. }), "{failed}");
    assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [-1.0; N], "a failure doesn't lose the device");
    control.fail(Call::Compute, 0, Fault::Panic);
    let lost = run.compute().unwrap_err();
    assert!(lost.to_string().contains("DriverStream::compute panicked: told to panic"), "{lost}");
    assert!(matches!(run.compute(), Err(Error::DeviceLost { .. })));
    drop(run);
    assert!(matches!(both.alloc(&graph), Err(Error::DeviceLost { .. })));
    assert!(matches!(device.memory(), Err(Error::DeviceLost { .. })));
    let mut run = alone.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; N]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [-1.0; N]);
    drop(take_races());
}

fn errors_name_the_device_and_the_reason() {
    let [(device, control)] = devices(FakeOptions::default());
    let name = &control.name;
    let placed = state(device).unwrap();
    let text = |fault: Fault| {
        control.fail(Call::BufferFill, 0, fault);
        placed.fill_bytes("b", 0).unwrap_err().to_string()
    };
    assert_eq!(text(Fault::Fail), format!("DriverBuffer::fill: device {name} failed: told to fail"));
    let lost = format!("device {name} was lost: told to be lost; use the remaining devices");
    assert_eq!(text(Fault::Lose), lost);
    assert_eq!(text(Fault::Panic), lost, "the first reason is kept");
    assert_eq!(device.init().unwrap_err().to_string(), lost);
    let [(device, control)] = devices(FakeOptions::default());
    control.fail(Call::Stream, 0, Fault::Panic);
    let lost =
        format!("device {} was lost: Driver::stream panicked: told to panic; use the remaining devices", control.name);
    assert_eq!(device.init().unwrap_err().to_string(), lost);
    let [(device, control)] = devices(FakeOptions::default());
    control.fail(Call::Allocate, 0, Fault::Fail);
    let out = state(device).unwrap_err().to_string();
    assert!(out.contains(&format!("{}: Driver::allocate: told to fail", control.name)), "{out}");
}

/// The variables of a thread that ends are gone when those of the user are dropped.
fn failures_in_thread_local_destructors_are_errors() {
    struct Late(State, mpsc::Sender<Result<()>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let _sent = self.1.send(self.0.fill_bytes("b", 0));
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let [(device, control)] = devices(FakeOptions::default());
    let state_of = state(device).unwrap();
    let (sender, receiver) = mpsc::channel();
    let told = control;
    let thread = std::thread::spawn(move || {
        // First, so that it is dropped last.
        LATE.set(Some(Late(state_of, sender)));
        let here = state(device).unwrap();
        told.fail(Call::BufferFill, 0, Fault::Fail);
        assert!(matches!(here.fill_bytes("b", 0), Err(Error::DeviceFailed { .. })));
        told.fail(Call::BufferFill, 0, Fault::Fail);
    });
    thread.join().unwrap();
    let failed = receiver.recv().unwrap().unwrap_err();
    assert!(matches!(failed, Error::DeviceFailed { .. }), "{failed}");
    drop(take_races());
}
