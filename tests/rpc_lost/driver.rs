//! Servers of devices in Rust, which may fail in the middle.

use std::time::Duration;

use ggml::prelude::*;
use ggml::rpc::{self, Connection, Server, Stop};
use ggml::{Error, Result};
use testkit::fake_gpu::{Call, FakeOptions, Fault, devices};
use testkit::server::ServerProcess;

const N: usize = 8;

fn connect(server: &ServerProcess) -> Connection {
    rpc::connect(&server.address.to_string()).unwrap()
}

fn state(device: Device) -> Result<State> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [N, N])?;
    builder.tensor("cache", DType::F32, [N, N])?;
    builder.place_state(device)
}

/// Computes on both devices of a server, and on the CPU, with transfers in between.
fn work(connection: &Connection, rounds: u8) -> Result<()> {
    let [a, b] = connection.devices() else { panic!("two devices") };
    let (here, there) = (state(*a)?, state(*b)?);
    let identity: Vec<_> = (0..N * N).map(|i| f32::from(u8::from(i % (N + 1) == 0))).collect();
    here.set("w", &identity)?;
    there.copy("w", here.tensor("w")?)?;
    there.fill_bytes("cache", 0)?;
    assert_eq!(there.tensor("w")?.read::<f32>()?, identity);
    let mut sched = Sched::builder().backend(a.init()?).backend(b.init()?).backend(Backend::cpu()?).build()?;
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [N, N])?;
    let first = ctx.mul_mat(here.tensor("w")?, x)?;
    let second = ctx.relu(ctx.mul_mat(there.tensor("w")?, first)?)?;
    let kept = ctx.cpy(second, there.tensor("cache")?)?;
    let last = ctx.add(second, first)?;
    let graph = ctx.graph([kept, last])?;
    for round in 0..rounds {
        let data: Vec<_> = (0..64_u8).map(|i| f32::from(i) - 10.0 * f32::from(round)).collect();
        let mut run = sched.alloc_pinned(&graph, &[(first, 0), (second, 1), (last, 0)])?;
        run.set(x, &data)?;
        run.compute()?;
        let wanted: Vec<_> = data.iter().map(|v| v.max(0.0)).collect();
        assert_eq!(run.get::<f32>(last)?, data.iter().map(|v| v + v.max(0.0)).collect::<Vec<_>>(), "round {round}");
        drop(run);
        assert_eq!(there.tensor("cache")?.read::<f32>()?, wanted, "round {round}");
        here.copy("cache", there.tensor("cache")?)?;
        assert_eq!(here.tensor("cache")?.read::<f32>()?, wanted, "round {round}");
    }
    connection.check()
}

#[test]
fn devices_in_rust_are_served() {
    let server = ServerProcess::of_fakes(None);
    let connection = connect(&server);
    work(&connection, 20).unwrap();
    drop(connection);
    let status = server.close();
    assert!(status.success(), "no races: {status}");
}

/// Functions that a server calls, at a call in the middle of what a client does, or at the first. (Between two devices, a
/// server copies through its own memory.)
const CALLED: [Call; 7] =
    [Call::Allocate, Call::BufferSet, Call::BufferGet, Call::BufferFill, Call::Compute, Call::Synchronize, Call::Work];

/// ggml's own server would assert that graphs are computed, and take what it transfers for transferred.
#[test]
fn server_disconnects_where_its_device_fails() {
    for call in CALLED {
        for fault in [Fault::Fail, Fault::Lose, Fault::Panic] {
            let mut met = 0;
            for n in [0, 1, 3] {
                let what = format!("{fault:?} at call {n} of {call:?}");
                let mut server = ServerProcess::of_fakes(Some((call, n, fault)));
                let result = work(&connect(&server), 3);
                met += usize::from(result.is_err());
                let fits = match &result {
                    // Buffers are cleared when they are made.
                    Err(Error::OutOfMemory { .. }) => matches!(call, Call::Allocate | Call::BufferFill),
                    Err(error) => matches!(error, Error::RpcLost { .. }),
                    // There were fewer such calls.
                    Ok(()) => n > 0,
                };
                assert!(fits, "{what}: {result:?}");
                assert_eq!(server.ended(Duration::ZERO), None, "{what}: the process goes on");
            }
            assert!(met > 0, "{fault:?} at {call:?} makes no difference");
        }
    }
}

/// The client whose device failed is disconnected. Others use the server as before, and the device if it isn't lost.
#[test]
fn server_goes_on_where_its_device_fails() {
    for (call, fault) in [(Call::BufferSet, Fault::Fail), (Call::Compute, Fault::Fail), (Call::Compute, Fault::Panic)] {
        let [(a, control), (b, _)] = devices(FakeOptions::default());
        let server = Server::builder().devices([a, b]).start().unwrap();
        let endpoint = server.address().to_string();
        control.fail(call, 0, fault);
        let lost = work(&rpc::connect(&endpoint).unwrap(), 1).unwrap_err();
        assert!(matches!(lost, Error::RpcLost { .. }), "{lost}");
        assert_eq!(a.init().is_ok(), fault == Fault::Fail);
        let connection = rpc::connect(&endpoint).unwrap();
        if fault == Fault::Fail {
            work(&connection, 1).unwrap();
        } else {
            let other = state(connection.devices()[1]).unwrap();
            assert_eq!(other.tensor("w").unwrap().read::<f32>().unwrap(), [0.0; N * N]);
        }
        drop(connection);
        server.stop(Stop::Now);
        assert_eq!(control.used(), 0, "what clients had is freed");
        assert_eq!(state(b).unwrap().tensor("w").unwrap().read::<f32>().unwrap(), [0.0; N * N]);
    }
}
