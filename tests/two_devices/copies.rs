//! Inputs and copies between devices, in several pipeline copies.

use testkit::network::input as data;

use super::*;

/// More graphs than there are pipeline copies, each computed with two inputs.
#[test]
fn pipeline_copies_are_used_in_turn() {
    let weights = weights();
    let mut sched = builder().parallel(true).build().unwrap();
    for round in 0..6 {
        // New tensors each time, as in a decoder.
        let ctx = Context::new();
        let (x, y) = network(&ctx, &weights);
        let graph = ctx.graph([y]).unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        assert_eq!(run.n_copies(), 4);
        assert_eq!((run.n_splits(), run.splits().unwrap().len()), (4, 4));
        for step in 0..2 {
            let data = data(2 * round + step);
            run.set(x, &data).unwrap();
            run.compute().unwrap();
            assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data));
            assert_eq!(run.get::<f32>(x).unwrap(), data, "inputs stay");
        }
    }
    assert_eq!(sched.plans(), 1, "all copies are of one plan");
    with_network(|run, _, _| assert_eq!(run.n_copies(), 1));
}

/// While a graph is allocated, its sources are the scheduler's copies, different ones each time.
#[test]
fn h25_graph_sources_survive_pipeline_copies() {
    let weights = weights();
    let ctx = Context::new();
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    for parallel in [true, false, true] {
        let mut sched = builder().parallel(parallel).build().unwrap();
        for round in 0..3 {
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &data(round)).unwrap();
            run.compute().unwrap();
            assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data(round)));
        }
    }
}

/// Each operation has nine operands that are copied four times, the maximum: the scheduler's tables must suffice.
#[test]
fn sched_supports_the_most_copies() {
    const STEPS: usize = 120;
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let (mut y, mut pins) = (x, Vec::new());
    for _ in 0..STEPS {
        let parts: Vec<_> = (0..9).map(|i| ctx.scale(y, i as f32).unwrap()).collect();
        pins.extend(parts.iter().map(|&t| (t, 0)));
        let sum = ctx.custom::<f32>(&parts, [4], CustomOptions::new(), |out, operands| {
            for (i, row) in out {
                for (j, to) in row.iter_mut().enumerate() {
                    *to = (0..9).map(|k| operands.rows::<f32>(k).row(i)[j]).sum::<f32>() / 36.0;
                }
            }
        });
        y = sum.unwrap();
    }
    let graph = ctx.graph([y]).unwrap();
    let mut sched = builder().parallel(true).build().unwrap();
    for round in 0..2 {
        let mut run = sched.alloc_pinned(&graph, &pins).unwrap();
        assert_eq!(run.n_splits(), 2 * STEPS);
        let data = [1.0, -2.0, 0.5, round as f32];
        run.set(x, &data).unwrap();
        run.compute().unwrap();
        assert_close(&run.get::<f32>(y).unwrap(), &data);
    }
}

#[test]
fn buffer_sizes_equal_the_allocation() {
    let weights = weights();
    let ctx = Context::new();
    let (_, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    for parallel in [false, true] {
        let mut sched = builder().parallel(parallel).build().unwrap();
        let sizes = sched.reserve_size(&graph).unwrap();
        assert!(sizes.iter().all(|&n| n > 0), "{sizes:?}");
        for _ in 0..2 {
            assert_eq!(sched.alloc(&graph).unwrap().buffer_sizes().unwrap(), sizes, "taken after that");
            assert_eq!(sched.reserve_size(&graph).unwrap(), sizes);
        }
    }
}
