//! Servers with invalid answers: the process survives, and the remaining devices stay usable.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ggml::rpc::{self, Options};
use ggml::{Backend, Context, DType, Device, Error, Result, Sched, WeightsBuilder};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::server::ServerProcess;

use crate::proxy::{Change, Plan, Proxy};

/// Long enough for a server on a busy machine; reached only if the server is silent.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends all kinds of requests to a device of a server behind `proxy`, or to the CPU.
fn work(device: impl FnOnce() -> Result<Device>) -> Result<Vec<f32>> {
    let device = device()?;
    let _memory = device.memory()?;
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [32, 8])?;
    builder.tensor("q", DType::Q8_0, [32, 8])?;
    let mut weights = builder.place(device.buffer_type())?;
    weights.set("w", &[0.5_f32; 256])?;
    weights.set_bytes("q", &[0; 272])?;
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [8])?;
    let state = builder.place_state(device.buffer_type())?;
    state.clear_bytes(0)?;

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32])?;
    let y = ctx.add(ctx.mul_mat(weights.tensor("w")?, x)?, ctx.mul_mat(weights.tensor("q")?, x)?)?;
    let y = ctx.cpy(ctx.add(y, state.tensor("s")?)?, state.tensor("s")?)?;
    let graph = ctx.graph([y])?;
    let mut backends = Sched::builder().backend(device.init()?);
    if device != Device::cpu()? {
        backends = backends.backend(Backend::cpu()?);
    }
    let mut sched = backends.build()?;
    let mut result = Vec::new();
    for _ in 0..2 {
        let mut run = sched.alloc(&graph)?;
        run.set(x, &[1.0_f32; 32])?;
        run.compute()?;
        result = run.get::<f32>(y)?;
    }
    assert_eq!(weights.read_bytes("w")?.len(), 1024);
    assert_eq!(state.tensor("s")?.read::<f32>()?.len(), 8);
    let mut backend = device.init()?;
    let mut out = vec![0.0_f32; 8];
    backend.transfers(|queue| {
        queue.set(&state, "s", vec![1.0_f32; 8])?;
        queue.get(state.tensor("s")?, &mut out)
    })?;
    Ok(result)
}

/// The server behind all proxies, which has one client at a time. It is replaced after each changed answer: a client that
/// accepted one may have sent an invalid request, which ggml's server doesn't survive, or which keeps it busy for long.
static SERVER: Mutex<Option<ServerProcess>> = Mutex::new(None);

/// The result of the work with changed answers, the number of answers, and the number of changed ones.
fn behind(plan: Plan, limit: Duration) -> (Result<Vec<f32>>, usize, usize) {
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let address = server.get_or_insert_with(ServerProcess::start).address;
    let proxy = Proxy::start(address.into(), plan);
    let options = Options::new().with_connect_timeout(limit).with_answer_timeout(limit);
    let mut connection = None;
    let result = work(|| Ok(connection.insert(rpc::connect_with(&proxy.address.to_string(), &options)?).devices()[0]));
    if let (Err(Error::RpcLost { .. }), Some(connection)) = (&result, &connection) {
        assert!(connection.check().is_err(), "lost, but not for ever");
    }
    let changed = proxy.changed();
    if changed > 0 || result.is_err() {
        *server = None;
    }
    (result, proxy.answers(), changed)
}

fn never() -> Plan {
    Plan { from: usize::MAX, and_on: false, change: Change::Silence }
}

fn interesting() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0_u32..64).prop_map(|bit| 1 << bit),
        (0_u32..64).prop_map(|bit| (1 << bit) - 1),
        (0_u64..64).prop_map(u64::wrapping_neg),
        0_u64..5000,
        any::<u64>(),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        interesting().prop_map(Change::Length),
        (0_usize..40).prop_map(Change::Cut),
        (1_usize..40).prop_map(Change::More),
        (0_usize..24, interesting()).prop_map(|(at, n)| Change::Bytes(at, n.to_le_bytes().to_vec())),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(|bytes| Change::Bytes(0, bytes)),
    ]
}

/// Changes each answer of a session in many ways. An invalid answer is an error; a plausible one is believed, and may
/// lead to other results.
#[test]
fn altered_replies_are_errors_or_other_results() {
    let expected = work(Device::cpu).unwrap();
    let (result, answers, changed) = behind(never(), LIMIT);
    assert_eq!((result.unwrap(), changed), (expected.clone(), 0));
    assert!(answers > 15, "{answers}");

    let plan = (0..answers, any::<bool>(), change()).prop_map(|(from, and_on, change)| Plan { from, and_on, change });
    let cases = if env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 60 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let errors = AtomicUsize::new(0);
    let tried = runner.run(&plan, |plan| {
        let (result, _, changed) = behind(plan, Duration::from_secs(5));
        prop_assert!(changed > 0, "nothing was changed: {result:?}");
        if let Err(error) = result {
            errors.fetch_add(1, Ordering::Relaxed);
            prop_assert!(
                !matches!(error, Error::Ggml { .. } | Error::Exception { .. }),
                "ggml had to say so: {error:?}"
            );
        }
        Ok(())
    });
    tried.unwrap();
    assert!(errors.into_inner() > 15, "hardly anything was an error");
    assert_eq!(work(Device::cpu).unwrap(), expected, "the process goes on");
    assert_eq!(behind(never(), LIMIT).0.unwrap(), expected, "the server, unchanged, is still of use");
}

/// Changes every answer once, in ways that must be errors.
#[test]
fn malformed_replies_are_errors() {
    let (result, answers, _) = behind(never(), LIMIT);
    assert!(result.is_ok() && answers > 15, "{answers}: {result:?}");
    for from in 0..answers {
        for change in [Change::Length(1 << 40), Change::Length(3), Change::Cut(9)] {
            let plan = Plan { from, and_on: false, change };
            let (result, _, changed) = behind(plan.clone(), LIMIT);
            assert_eq!(changed, 1, "{plan:?}: {result:?}");
            // The last answer can be read completely before the connection ends.
            if !matches!((&plan.change, &result), (Change::Cut(9), Ok(_))) {
                assert!(matches!(result, Err(Error::Rpc { .. } | Error::RpcLost { .. })), "{plan:?}: {result:?}");
            }
        }
    }
}

#[test]
fn silent_server_is_lost() {
    let (result, answers, _) = behind(never(), LIMIT);
    assert!(result.is_ok() && answers > 15, "{answers}: {result:?}");
    for (from, says) in [(1, "it did not finish DEVICE_COUNT within 2s"), (answers - 1, "within 2s")] {
        let plan = Plan { from, and_on: false, change: Change::Silence };
        let (result, _, changed) = behind(plan, Duration::from_secs(2));
        let error = result.unwrap_err();
        assert_eq!(changed, 1);
        assert!(error.to_string().contains(says), "{error}");
    }
}
