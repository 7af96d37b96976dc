//! Graphs over two devices, with weights on each.

use ggml::GraphAllocator;
use ggml::prelude::*;
use ggml_draw::ToDot as _;
use testkit::network::{expected, input, matrix, network, weights};

use crate::beside::distance;
use crate::{backend, cpu, vulkan};

fn sched() -> Sched {
    Sched::builder().backend(backend()).backend(cpu()).op_offload(false).build().unwrap()
}

/// To the device and back twice, with copies in both directions.
fn sched_alternates_between_vulkan_and_cpu() {
    let (there, here) = (vulkan().buffer_type(), Device::cpu().unwrap().buffer_type());
    let weights = weights(&[there, here, there, here]);
    for parallel in [false, true] {
        let mut sched =
            Sched::builder().backend(backend()).backend(cpu()).op_offload(false).parallel(parallel).build().unwrap();
        for round in 0..5 {
            let ctx = Context::new();
            let (x, y) = network(&ctx, &weights);
            let graph = ctx.graph([y]).unwrap();
            let mut run = sched.alloc(&graph).unwrap();
            assert_eq!(
                (run.n_splits(), run.n_copies()),
                (4, if parallel { 4 } else { 1 }),
                "{}",
                run.to_dot().unwrap()
            );
            assert!(run.splits().unwrap().iter().all(|split| !split.inputs.is_empty()), "each is given something");
            for step in 0..2 {
                let data = input(2 * round + step);
                run.set(x, &data).unwrap();
                if step == 0 { run.compute() } else { run.compute_async(|| ()) }.unwrap();
                let far = distance(&run.get(y).unwrap(), &expected(4, &data));
                assert!(far < 1e-2, "{far}");
                assert_eq!(run.get::<f32>(x).unwrap(), data, "inputs stay");
            }
        }
    }
}

fn vulkan_weights_round_trip() {
    for place in [vulkan().buffer_type(), vulkan().host_buffer_type().unwrap()] {
        let weights = weights(&[place, place]);
        for i in 0..2 {
            assert_eq!(weights.tensor(&format!("w{i}")).unwrap().read::<f32>().unwrap(), matrix(i), "{place:?}");
        }
        let ctx = Context::new();
        let (x, y) = network(&ctx, &weights);
        let graph = ctx.graph([y]).unwrap();
        let mut sched = sched();
        let mut run = sched.alloc(&graph).unwrap();
        let at = run.backend_of(y).unwrap().name();
        assert_eq!(at == "Vulkan0", !place.is_host(), "it runs where its weights lie");
        run.set(x, &input(3)).unwrap();
        run.compute().unwrap();
        let far = distance(&run.get(y).unwrap(), &expected(2, &input(3)));
        assert!(far < 1e-2, "{far} with {place:?}");
    }
}

fn graph_allocator_computes_in_vulkan_memory() {
    let place = vulkan().buffer_type();
    let weights = weights(&[place, place, place]);
    let mut allocator = GraphAllocator::new(place);
    let mut backend = backend();
    for round in 0..3 {
        let ctx = Context::new();
        let (x, y) = network(&ctx, &weights);
        let graph = ctx.graph([y]).unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        memory.set(x, &input(round)).unwrap();
        memory.compute().unwrap();
        assert!(distance(&memory.get(y).unwrap(), &expected(3, &input(round))) < 1e-2);
        drop(memory);
        let result = allocator.alloc(&graph, &mut cpu()).map(drop);
        assert!(matches!(result, Err(Error::Unsupported { .. })), "the CPU can't reach it: {result:?}");
    }
    assert!(allocator.buffer_sizes().unwrap()[0] > 0);
}

/// Sizes that are not a multiple of four bytes, the unit in which Vulkan fills memory.
fn fill_reaches_the_end_of_odd_sizes() {
    let mut builder = WeightsBuilder::new();
    for (name, dtype, n) in [("a", DType::F16, 3), ("b", DType::I8, 5), ("c", DType::I8, 1)] {
        builder.tensor(name, dtype, [n]).unwrap();
    }
    let state = builder.place_state(vulkan().buffer_type()).unwrap();
    let all = |state: &State| ["a", "b", "c"].map(|name| state.read_bytes(name).unwrap()).concat();
    assert!(all(&state).iter().all(|&b| b == 0), "new memory is zero");
    for name in ["a", "b", "c"] {
        state.fill_bytes(name, 0xA5).unwrap();
    }
    assert!(all(&state).iter().all(|&b| b == 0xA5), "{:?}", all(&state));
    state.fill_bytes("b", 1).unwrap();
    assert_eq!(state.read_bytes("a").unwrap(), [0xA5; 6], "its neighbours stay");
    state.clear_bytes(0x11).unwrap();
    assert!(all(&state).iter().all(|&b| b == 0x11), "{:?}", all(&state));
}

/// Operations that the device claims but can't run; the scheduler would trust the claim.
fn sched_leaves_to_the_cpu_what_vulkan_cannot_run() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [9, 4]).unwrap();
    let doubled = ctx.scale(x, 2.0).unwrap();
    let largest = ctx.top_k(doubled, 1).unwrap();
    let shifted = ctx.view(doubled, [7_i64, 3], [36, 144, 144], 4).unwrap();
    let soft = ctx.soft_max(ctx.cont(shifted).unwrap()).unwrap();
    let graph = ctx.graph([largest, soft]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc_pinned(&graph, &[(doubled, 0)]).unwrap();
    assert_eq!(run.backend_of(doubled).unwrap().name(), "Vulkan0");
    assert_eq!(run.backend_of(largest).unwrap().name(), "CPU");
    let data: Vec<f32> = (0..36).map(|i| -1.0 - ((i * 7) % 36) as f32).collect();
    run.set(x, &data).unwrap();
    run.compute().unwrap();
    let best = |row: &[f32]| row.iter().position(|v| row.iter().all(|other| other <= v)).unwrap() as i32;
    assert_eq!(run.get::<i32>(largest).unwrap(), data.chunks(9).map(best).collect::<Vec<_>>());
    drop(run);
    let error = sched.alloc_pinned(&graph, &[(largest, 0)]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

testkit::trials! {
    sched_alternates_between_vulkan_and_cpu,
    vulkan_weights_round_trip,
    graph_allocator_computes_in_vulkan_memory,
    fill_reaches_the_end_of_odd_sizes,
    sched_leaves_to_the_cpu_what_vulkan_cannot_run,
}
