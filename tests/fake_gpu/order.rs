//! Streams that order the nodes of a split.

#![expect(clippy::unnecessary_wraps, reason = "orders have the type that `DriverStream::optimize` has")]

use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::GraphAllocator;
use ggml::driver::{Failure, SplitNodes};
use ggml::prelude::*;
use testkit::fake_gpu::{Control, FakeGpu, FakeOptions, Order, devices, shuffled};

use crate::assert_no_races;

testkit::trials!(
    wrong_orders_are_errors,
    nodes_depend_on_what_shares_their_memory,
    results_are_those_of_the_cpu,
    views_follow_their_sources,
    order_of_one_scheduler_is_not_that_of_others,
    orders_that_change_are_errors,
    equal_plans_may_have_other_orders,
    failed_orders_leave_a_scheduler_that_can_be_used,
);

type Answer = Result<Option<Vec<usize>>, Failure>;
type Split<'a> = SplitNodes<'a, FakeGpu>;

fn sched(device: Device) -> Sched {
    Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
}

/// The operations that have memory of their own, to pin them to the device.
fn all<'g>(graph: &'g Graph<'_>) -> Vec<(Tensor<'g>, usize)> {
    graph.nodes().filter(|t| !["VIEW", "CPY", "CLAMP"].contains(&&*t.op())).map(|t| (t, 0)).collect()
}

fn state(device: Device) -> State {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [4, 2]).unwrap();
    builder.place_state(device).unwrap()
}

/// The order as built, changed in some way.
fn changed(nodes: &Split<'_>, change: impl FnOnce(&mut Vec<usize>)) -> Answer {
    let mut order = (0..nodes.len()).collect();
    change(&mut order);
    Ok(Some(order))
}

fn reversed(nodes: &Split<'_>) -> Answer {
    changed(nodes, |order| order.reverse())
}

/// What the scheduler says to an order, of which it takes another one afterwards.
fn refusal(device: Device, control: &Control, order: Order, graph: &Graph<'_>) -> String {
    let mut sched = sched(device);
    control.set_order(order);
    let error = sched.alloc_pinned(graph, &all(graph)).map(drop).unwrap_err();
    assert!(matches!(error, Error::DeviceFailed { call: "DriverStream::optimize", .. }), "{error}");
    assert_eq!(sched.reserve_pinned(graph, &all(graph)).unwrap_err().to_string(), error.to_string());
    control.set_order(shuffled);
    drop(sched.alloc_pinned(graph, &all(graph)).unwrap());
    error.to_string()
}

fn wrong_orders_are_errors() {
    let [(device, control)] = devices(FakeOptions::default());
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(ctx.sqr(ctx.relu(x).unwrap()).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let wrong: [(Order, &str); 5] = [
        (|nodes| changed(nodes, |order| order.truncate(2)), "the order has 2 nodes, the split 3"),
        (|nodes| changed(nodes, |order| order.push(0)), "the order has 4 nodes, the split 3"),
        (|nodes| changed(nodes, |order| order[2] = 1), "the order has node 1 twice"),
        (|nodes| changed(nodes, |order| order[2] = 3), "the split has no node 3, only 3"),
        (|nodes| changed(nodes, |order| order.swap(0, 1)), "before node 0"),
    ];
    for (order, why) in wrong {
        let text = refusal(device, &control, order, &graph);
        assert!(text.contains(why) && text.contains(&control.name), "{text}");
    }
    let names = refusal(device, &control, reversed, &graph);
    assert!(names.contains("SQR") && names.contains("RELU") && names.contains("on which it depends"), "{names}");
}

/// Two nodes, in an order that only their memory tells.
fn nodes_depend_on_what_shares_their_memory() {
    let [(device, control)] = devices(FakeOptions::default());
    let state = state(device);
    let ctx = Context::new();
    let s = state.tensor("s").unwrap();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let row = |i: usize| ctx.view_1d(s, 4, i * s.nb()[1]).unwrap();
    let write = |i| ctx.cpy(x, row(i)).unwrap();
    let y = ctx.abs(x).unwrap();
    let pairs = [
        ("a read after a write", [write(0), ctx.neg(row(0)).unwrap()]),
        ("a write after a read", [ctx.neg(row(1)).unwrap(), write(1)]),
        ("two writes", [write(0), write(0)]),
        ("a read of what is then changed in place", [ctx.neg(y).unwrap(), ctx.clamp_inplace(y, 0.0, 1.0).unwrap()]),
        ("a read through a view", [y, ctx.neg(ctx.view_1d(y, 2, 4).unwrap()).unwrap()]),
    ];
    for (what, pair) in pairs {
        let graph = ctx.graph(pair).unwrap();
        let text = refusal(device, &control, reversed, &graph);
        assert!(text.contains("on which it depends"), "{what}: {text}");
    }
    // Nothing else is refused.
    let graph = ctx.graph([ctx.neg(row(0)).unwrap(), ctx.sqr(row(0)).unwrap(), ctx.abs(x).unwrap()]).unwrap();
    control.set_order(reversed);
    drop(sched(device).alloc_pinned(&graph, &all(&graph)).unwrap());
}

/// A graph that writes to a state, changes results in place and looks at them through views.
fn mixed<'c>(ctx: &'c Context, state: &'c State) -> ggml::Result<(Tensor<'c>, Vec<Tensor<'c>>)> {
    let s = state.tensor("s")?;
    let x = ctx.input("x", DType::F32, [4])?;
    let row = |i: usize| ctx.view_1d(s, 4, i * s.nb()[1]);
    let mut y = ctx.scale(x, 2.0)?;
    let mut outputs = Vec::new();
    for i in 0..6 {
        let read = ctx.add(row(i % 2)?, y)?;
        let other = ctx.neg(ctx.view_1d(read, 2, 4)?)?;
        let doubled = ctx.scale_inplace(ctx.abs(read)?, 2.0)?;
        outputs.extend([ctx.cpy(doubled, row((i + 1) % 2)?)?, read, other]);
        y = ctx.sub(doubled, x)?;
    }
    outputs.push(y);
    Ok((x, outputs))
}

fn results(sched: &mut Sched, graph: &Graph<'_>, x: Tensor<'_>, outputs: &[Tensor<'_>]) -> Vec<Vec<f32>> {
    let mut run = sched.alloc(graph).unwrap();
    run.set(x, &[1.0_f32, -2.0, 3.0, -4.0]).unwrap();
    run.compute().unwrap();
    outputs.iter().map(|t| run.get::<f32>(*t).unwrap()).collect()
}

/// An allowed order that differs each time.
fn any(nodes: &Split<'_>) -> Answer {
    static SEED: AtomicUsize = AtomicUsize::new(0);
    let seed = SEED.fetch_add(1, Ordering::SeqCst);
    let mut left: Vec<_> = (0..nodes.len()).collect();
    let mut order: Vec<usize> = Vec::new();
    while !left.is_empty() {
        let ready = |i: &usize| nodes.before(*i).iter().all(|before| order.contains(before));
        let ready: Vec<_> = left.iter().copied().filter(ready).collect();
        let next = ready[(seed * 7 + order.len() * 5) % ready.len()];
        left.retain(|&i| i != next);
        order.push(next);
    }
    Ok(Some(order))
}

static OTHER: AtomicUsize = AtomicUsize::new(0);

fn results_are_those_of_the_cpu() {
    let [(device, control)] = devices(FakeOptions::default());
    control.set_order(|nodes| {
        let order = shuffled(nodes)?;
        OTHER.fetch_add(usize::from(!order.iter().flatten().is_sorted()), Ordering::SeqCst);
        Ok(order)
    });
    let on = |place: Device, sched: &mut Sched| {
        let (ctx, state) = (Context::new(), state(place));
        let (x, outputs) = mixed(&ctx, &state).unwrap();
        let graph = ctx.graph(&outputs).unwrap();
        [(); 3].map(|()| results(sched, &graph, x, &outputs))
    };
    let mut cpu = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    assert_eq!(on(device, &mut sched(device)), on(Device::cpu().unwrap(), &mut cpu));
    assert!(OTHER.load(Ordering::SeqCst) >= 4, "each allocation reorders");
    assert_no_races("orders");
}

/// Before their sources, they would take memory for longer.
fn views_follow_their_sources() {
    let [(device, control)] = devices(FakeOptions::default());
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4096]).unwrap();
    let weights = builder.place(device).unwrap();
    let ctx = Context::new();
    let mut y = weights.tensor("w").unwrap();
    for _ in 0..8 {
        y = ctx.view_1d(ctx.neg(y).unwrap(), 4096, 0).unwrap();
    }
    let graph = ctx.graph([ctx.sqr(y).unwrap()]).unwrap();
    let orders: [Order; 2] = [|_| Ok(None), |nodes| changed(nodes, |_| ())];
    let [kept, same] = orders.map(|order| {
        control.set_order(order);
        sched(device).reserve_size(&graph).unwrap()
    });
    assert!(kept[0] > 0 && kept == same, "{kept:?} {same:?}");
}

/// Two schedulers and an allocator hold one graph, each with its own order.
fn order_of_one_scheduler_is_not_that_of_others() {
    let [(a, first), (b, second)] = devices(FakeOptions::default());
    first.set_order(|_| Ok(None));
    second.set_order(|nodes| {
        let mut depths = Vec::new();
        for i in 0..nodes.len() {
            depths.push(nodes.before(i).iter().map(|&i| depths[i] + 1).max().unwrap_or(0));
        }
        changed(nodes, |order| order.sort_by_key(|&i| depths[i]))
    });
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64]).unwrap();
    // One after another they can have the same memory, side by side they can't.
    let chain = |n: f32| ctx.sum(ctx.neg(ctx.scale(x, n)?)?);
    let ys = [1.0, 2.0, 3.0, 4.0].map(|n| chain(n).unwrap());
    let graph = ctx.graph(ys).unwrap();
    let (mut one, mut two, mut cpu) = (sched(a), sched(b), Backend::cpu().unwrap());
    let mut allocator = GraphAllocator::new(cpu.device().buffer_type());
    let mut runs = [
        one.alloc_pinned(&graph, &all(&graph)).unwrap(),
        two.alloc_pinned(&graph, &all(&graph)).unwrap(),
        allocator.alloc(&graph, &mut cpu).unwrap(),
    ];
    for i in [0, 1, 0, 2, 1, 2, 0] {
        runs[i].set(x, &[1.0_f32; 64]).unwrap();
        runs[i].compute().unwrap();
        let sums = ys.map(|y| runs[i].get::<f32>(y).unwrap()[0]);
        assert_eq!(sums, [-64.0, -128.0, -192.0, -256.0], "engine {i}");
    }
    drop(runs);
    assert_no_races("two orders");
}

fn orders_that_change_are_errors() {
    let [(device, control)] = devices(FakeOptions::default());
    let (ctx, state) = (Context::new(), state(device));
    let (x, outputs) = mixed(&ctx, &state).unwrap();
    let graph = ctx.graph(&outputs).unwrap();
    let mut sched = sched(device);
    control.set_order(any);
    let error = sched.alloc(&graph).map(drop).unwrap_err();
    assert!(error.to_string().contains("the order of the same operations has changed"), "{error}");
    control.set_order(shuffled);
    results(&mut sched, &graph, x, &outputs);
}

/// A device may tell nodes apart by what plans don't depend on.
fn equal_plans_may_have_other_orders() {
    let [(device, control)] = devices(FakeOptions::default());
    control.set_order(|nodes| {
        let first = nodes.node(0).is_some_and(|node| node.result().tensor().name() == "first");
        if first { Ok(None) } else { reversed(nodes) }
    });
    let mut sched = sched(device);
    for name in ["first", "second", "first"] {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let ys = [ctx.neg(x).unwrap().named(name).unwrap(), ctx.neg(x).unwrap(), ctx.neg(x).unwrap()];
        let graph = ctx.graph(ys).unwrap();
        let mut run = sched.alloc_pinned(&graph, &all(&graph)).unwrap();
        run.set(x, &[1.0_f32; 4]).unwrap();
        run.compute().unwrap();
        for y in ys {
            assert_eq!(run.get::<f32>(y).unwrap(), [-1.0; 4]);
        }
    }
    assert_eq!(sched.plans(), 3, "each order has its plan");
}

/// A lack of memory is told first, and repaired.
fn failed_orders_leave_a_scheduler_that_can_be_used() {
    let [(device, control)] = devices(FakeOptions { limit: 4096, ..FakeOptions::default() });
    let mut sched = sched(device);
    let ctx = Context::new();
    let graph = |n: usize| {
        let x = ctx.input("x", DType::F32, [n]).unwrap();
        ctx.graph([ctx.sqr(ctx.neg(x).unwrap()).unwrap()]).unwrap()
    };
    let (small, large) = (graph(4), graph(1 << 20));
    for _ in 0..3 {
        control.set_order(|_| Err(Failure::new("no order today")));
        let error = sched.alloc_pinned(&large, &all(&large)).map(drop).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        control.set_order(shuffled);
        drop(sched.alloc_pinned(&small, &all(&small)).unwrap());
        control.set_order(|_| Err(Failure::new("no order today")));
        sched.reserve_pinned(&large, &all(&large)).unwrap_err();
        let error = sched.alloc_pinned(&small, &all(&small)).map(drop).unwrap_err();
        assert!(error.to_string().ends_with("failed: no order today"), "{error}");
        control.set_order(shuffled);
        drop(sched.alloc_pinned(&small, &all(&small)).unwrap());
    }
}
