//! A scheduler over two devices: an RPC server in this process, and the CPU.

#![cfg(feature = "rpc")]
#![cfg(test)]
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

mod beside;
mod copies;
mod pins;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::prelude::*;
use ggml::{Error, SchedBuilder, ops::CustomOptions};
use ggml_draw::ToSvg as _;
use testkit::device::served as remote;
use testkit::network::{WIDTH, expected, matrix, network};

fn builder() -> SchedBuilder {
    Sched::builder().backend(remote().init().unwrap()).backend(Backend::cpu().unwrap()).op_offload(false)
}

fn sched() -> Sched {
    builder().build().unwrap()
}

/// The weights of four layers, alternating between both devices.
fn weights() -> Weights {
    let (one, two) = (remote().buffer_type(), Device::cpu().unwrap().buffer_type());
    testkit::network::weights(&[one, two, one, two])
}

fn assert_close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-4 * (1.0 + w.abs()), "element {i}: {g} instead of {w}");
    }
}

/// Allocates the network over both devices, and calls `f` with its input and output.
fn with_network(f: impl FnOnce(&mut Run<'_, '_>, Tensor<'_>, Tensor<'_>)) {
    let weights = weights();
    let ctx = Context::new();
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    f(&mut run, x, y);
}

#[test]
fn sched_splits_a_graph_over_both_devices() {
    with_network(|run, x, y| {
        let data: Vec<f32> = (0..WIDTH).map(|i| i as f32 * 0.25).collect();
        run.set(x, &data).unwrap();
        run.compute().unwrap();
        assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data));

        let splits = run.splits().unwrap();
        assert_eq!(splits.len(), run.n_splits(), "the splits are those of the C scheduler");
        assert_eq!(splits.len(), 4);
        let names: Vec<_> = splits.iter().map(|s| s.backend.device().name()).collect();
        let remote = remote().name();
        assert_eq!(names, [&*remote, "CPU", &*remote, "CPU"]);
        assert_eq!(splits.iter().map(|s| s.nodes.len()).sum::<usize>(), 8);
        for (i, split) in splits.iter().enumerate() {
            assert!(
                split.nodes.iter().all(|&t| run.backend_of(t).unwrap().device() == split.backend.device()),
                "split {i}"
            );
            assert_eq!(split.inputs.len(), 1, "split {i}");
            assert_eq!(split.inputs[0].bytes, WIDTH * 4);
            let from = split.inputs[0].from.unwrap().device();
            assert_ne!(from, split.backend.device(), "split {i}");
        }
        assert!(run.buffer_sizes().unwrap().iter().all(|&n| n > 0));
        assert_eq!(run.backend_of(y).unwrap().device(), Device::cpu().unwrap());
    });
}

/// The scheduler replaces sources by its own copies, which live until the next graph or the scheduler's drop.
#[test]
fn h25_graph_sources_survive_the_scheduler() {
    let weights = weights();
    let ctx = Context::new();
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let other = ctx.graph([ctx.neg(ctx.input("z", DType::F32, [8]).unwrap()).unwrap()]).unwrap();
    for round in 0..3 {
        let mut sched = sched();
        for step in 0..3 {
            let data: Vec<f32> = (0..WIDTH).map(|i| (i + round + step) as f32 * 0.125).collect();
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data));
            drop(run);
            drop(sched.alloc(&other).unwrap());
        }
    }
    // With the CPU alone the same graph can't reach the remote weights: an error, no crash.
    let mut cpu = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    assert!(matches!(cpu.alloc(&graph), Err(Error::Unsupported { .. })));
}

#[test]
fn compute_with_observes_the_chosen_tensors() {
    with_network(|run, x, y| {
        let data = [1.0_f32; WIDTH];
        run.set(x, &data).unwrap();
        let last = y;
        let (mut asked, mut seen) = (0, Vec::new());
        run.compute_with(
            |t| {
                asked += 1;
                t == last
            },
            |observed| {
                seen.push(observed.get::<f32>().unwrap());
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        assert!(asked >= 8, "every operation was offered: {asked}");
        assert_eq!(seen.len(), 1);
        assert_close(&seen[0], &expected(4, &data));
        assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data));
    });
}

#[test]
fn compute_with_stops_when_its_closure_says_so() {
    with_network(|run, x, y| {
        run.set(x, &[1.0_f32; WIDTH]).unwrap();
        let mut seen = 0;
        let result = run.compute_with(
            |_| true,
            |_| {
                seen += 1;
                if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert_eq!(seen, 3);
        assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
        run.compute().unwrap();
        assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &[1.0; WIDTH]));
    });
}

#[test]
fn compute_with_resumes_the_panic_of_its_closure() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.relu(ctx.neg(x).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[-1.0_f32; 4]).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| run.compute_with(|_| panic!("asked"), |_| ControlFlow::Continue(()))));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"asked"));
    let panic = catch_unwind(AssertUnwindSafe(|| run.compute_with(|_| true, |_| panic!("seen"))));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"seen"));
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [1.0; 4]);
}

/// Weights of a device that no backend of the scheduler can reach.
#[test]
fn sched_refuses_weights_on_an_unreachable_device() {
    let weights = weights();
    let ctx = Context::new();
    let y = ctx.relu(weights.tensor("w0").unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut cpu = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let message = cpu.alloc(&graph).unwrap_err().to_string();
    assert!(message.contains("`w0` f32 [32, 32, 1, 1]") && message.contains("CPU"), "{message}");
}

#[test]
fn sched_refuses_a_refused_graph_again() {
    let weights = weights();
    let ctx = Context::new();
    // Computed where the weights are; closures run in this process, and can't change remote tensors.
    let there = ctx.neg(weights.tensor("w0").unwrap()).unwrap();
    let y = ctx.map_custom1_inplace::<f32>(there, CustomOptions::new(), |out| out.for_each(|(_, row)| row.fill(1.0)));
    let graph = ctx.graph([y.unwrap()]).unwrap();
    let mut sched = sched();
    sched.reserve(&graph).unwrap();
    for time in 0..3 {
        let refusal = sched.alloc(&graph).map(drop);
        assert!(matches!(refusal, Err(Error::Unsupported { .. })), "{time}: {refusal:?}");
    }
}

#[test]
fn sched_does_not_use_a_replaced_backend() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let compute = |sched: &mut Sched| -> ggml::Result<Vec<f32>> {
        let mut run = sched.alloc(&graph)?;
        run.set(x, &[1.0_f32, 2.0, 3.0, 4.0])?;
        run.compute()?;
        assert!(run.buffer_sizes()?.len() == 2, "one for each");
        run.get(y)
    };
    let mut sched = sched();
    let want = compute(&mut sched).unwrap();
    for with in [Device::cpu().unwrap(), remote(), remote(), Device::cpu().unwrap()] {
        *sched.backend_mut(0).unwrap() = with.init().unwrap();
        assert_eq!(compute(&mut sched).unwrap(), want);
        *sched.backend_mut(1).unwrap() = Backend::cpu().unwrap();
        assert_eq!(compute(&mut sched).unwrap(), want);
    }
    *sched.backend_mut(1).unwrap() = remote().init().unwrap();
    for time in 0..2 {
        assert!(matches!(compute(&mut sched), Err(Error::Backends { .. })), "{time}");
    }
    *sched.backend_mut(1).unwrap() = Backend::cpu().unwrap();
    assert_eq!(compute(&mut sched).unwrap(), want);
    let mut fresh = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    *fresh.backend_mut(0).unwrap() = remote().init().unwrap();
    assert!(matches!(fresh.reserve(&graph), Err(Error::Backends { .. })), "before its first graph");
}

#[test]
fn sched_requires_a_cpu_as_last_backend() {
    let only_remote = Sched::builder().backend(remote().init().unwrap()).build();
    assert!(matches!(only_remote, Err(Error::Backends { .. })));
    assert!(matches!(Sched::builder().build(), Err(Error::Backends { .. })));
    let many = (0..17).fold(Sched::builder(), |b, _| b.backend(Backend::cpu().unwrap()));
    assert!(matches!(many.build(), Err(Error::Backends { .. })));
}

#[test]
fn backend_with_refuses_unsupported_buffer_types() {
    let (there, here) = (remote().buffer_type(), Device::cpu().unwrap().buffer_type());
    let cpu = || Backend::cpu().unwrap();
    let build = |first, last| {
        let first = Sched::builder().backend_with(remote().init().unwrap(), first);
        first.backend_with(cpu(), last).build()
    };
    assert_eq!(build(there, here).unwrap().buffer_types(), [there, here]);
    assert!(matches!(build(here, here), Err(Error::Backends { .. })));
    assert!(matches!(build(there, there), Err(Error::Backends { .. })));
    // A backend may be replaced later. The default buffer type is its device's.
    let ctx = Context::new();
    let graph = ctx.graph([ctx.neg(ctx.input("x", DType::F32, [4]).unwrap()).unwrap()]).unwrap();
    for (mut sched, fits) in [(build(there, here).unwrap(), false), (sched(), true)] {
        drop(sched.alloc(&graph).unwrap());
        *sched.backend_mut(0).unwrap() = cpu();
        assert_eq!(sched.buffer_types()[0], if fits { here } else { there });
        match sched.alloc(&graph) {
            Ok(run) => assert!(fits, "{run:?}"),
            Err(error) => assert!(!fits && matches!(error, Error::Backends { .. }), "{error}"),
        }
        match sched.reserve_size(&graph) {
            Ok(sizes) => assert!(fits && sizes[0] > 0 && sizes[1] == 0, "{sizes:?}"),
            Err(error) => assert!(!fits && matches!(error, Error::Backends { .. }), "{error}"),
        }
    }
}

#[test]
fn to_svg_shows_copied_tensors() {
    with_network(|run, _, _| {
        let svg = run.to_svg().unwrap();
        let copied: usize = run.splits().unwrap().iter().map(|split| split.inputs.len()).sum();
        assert_eq!(svg.matches(r#"class="copied""#).count(), copied, "{svg}");
        // To the other device and back.
        assert_eq!(svg.matches(r#"class="copy""#).count(), 2 * copied, "{svg}");
        assert_eq!(svg.matches(">128 B<").count(), copied, "{svg}");
        for split in run.splits().unwrap() {
            let on = |t: &Tensor<'_>| run.backend_of(*t).unwrap().device() == split.backend.device();
            let count = run.splits().unwrap().iter().flat_map(|split| &split.nodes).filter(|t| on(t)).count();
            let line = format!("{} \u{b7} {count} operations", split.backend.device().name());
            assert!(svg.contains(&line), "{line} in {svg}");
        }
    });
}

/// Layers on both devices are trained as on one: moments and summed gradients are placed like their parameters.
#[test]
fn training_updates_parameters_on_both_devices() {
    use ggml::opt::{AdamW, BuildType, LossType, OptContext, OptParams};
    let train = |sched: &mut Sched, place: [ggml::BufferType; 2]| {
        let mut builder = WeightsBuilder::new();
        for name in ["w0", "w1"] {
            builder.tensor(name, DType::F32, [WIDTH as i64, WIDTH as i64]).unwrap();
        }
        let state = builder.place_state(|leaf: &LeafInfo| place[usize::from(leaf.name() == "w1")]).unwrap();
        state.set("w0", &matrix(0)).unwrap();
        state.set("w1", &matrix(1)).unwrap();
        let [w0, w1] = ["w0", "w1"].map(|name| state.tensor(name).unwrap());
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [WIDTH as i64, 4]).unwrap();
        let y = ctx.mul_mat(w1, ctx.relu(ctx.mul_mat(w0, x).unwrap()).unwrap()).unwrap();
        let params =
            OptParams::new(LossType::MeanSquaredError).with_optimizer(AdamW::new().with_alpha(0.01)).with_opt_period(2);
        let mut opt = OptContext::new([w0, w1], params).unwrap();
        let graphs = opt.graphs(&ctx, x, y).unwrap();
        let mut splits = 0;
        let losses: Vec<f32> = (0..10)
            .map(|i| {
                let mut run = opt.alloc(sched, &graphs, true).unwrap();
                assert_eq!(run.build_type(), if i % 2 == 0 { BuildType::Grad } else { BuildType::Opt });
                splits = splits.max(run.splits().unwrap().len());
                run.set(x, &matrix(2 + i % 2)[..4 * WIDTH]).unwrap();
                run.set(graphs.labels().unwrap(), &matrix(5)[..4 * WIDTH]).unwrap();
                run.eval(None).unwrap()
            })
            .collect();
        assert!(losses[9] < losses[1], "{losses:?}");
        (splits, [w0, w1].map(|w| w.read::<f32>().unwrap()))
    };
    let (one, two) = (remote().buffer_type(), Device::cpu().unwrap().buffer_type());
    let mut cpu = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let (splits, expected) = train(&mut cpu, [two, two]);
    assert_eq!(splits, 1);
    let (splits, got) = train(&mut sched(), [one, two]);
    assert!(splits > 2, "{splits}");
    got.iter().zip(&expected).for_each(|(got, expected)| assert_close(got, expected));
}
