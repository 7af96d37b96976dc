//! What was found of a graph holds for that graph on that device. Plans are reused by sizes, and devices take turns over one
//! allocator: no device gets an operation that it would refuse of a new allocator.

#![cfg(test)]

use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{GraphAllocator, Registry, Result};

/// A device in host memory that computes what its function accepts, and nothing in fact: graphs are only allocated here.
#[derive(Clone, Copy)]
struct Accepts {
    name: &'static str,
    what: fn(&Node<'_, Self>) -> bool,
}

impl Driver for Accepts {
    type Buffer = NoBuffer;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.name.into(), DeviceType::Accelerator)
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        (self.what)(node)
    }

    fn stream(&self, _: &str) -> std::result::Result<Self, Failure> {
        Ok(*self)
    }
}

impl DriverStream<Self> for Accepts {
    fn compute(&mut self, _: Nodes<'_, Self>) -> std::result::Result<(), Failure> {
        Err(Failure::new("it computes nothing"))
    }
}

fn device(name: &'static str, what: fn(&Node<'_, Accepts>) -> bool) -> Device {
    Registry::register(name, [Accepts { name, what }]).unwrap().devices().unwrap()[0]
}

/// `x == x` by element, as a graph.
fn equal(ctx: &Context, ne: [i64; 3]) -> Result<Graph<'_>> {
    let x = ctx.input("x", DType::I32, ne)?;
    ctx.graph([ctx.count_equal(x, x)?])
}

fn is_refused<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Unsupported { .. }))
}

/// ggml's CPU kernel reads out of bounds for tensors of three dimensions (H61). A device that accepts all of them says
/// nothing of the CPU.
#[test]
fn devices_in_turn_are_each_asked_for_both_graphs() {
    let all = device("AcceptsAll", |_| true);
    let (mut far, mut near) = (all.init().unwrap(), Backend::cpu().unwrap());
    let ctx = Context::new();
    let (good, bad) = (equal(&ctx, [64, 4000, 1]).unwrap(), equal(&ctx, [64, 4000, 100]).unwrap());
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    allocator.alloc(&good, &mut far).unwrap();
    allocator.alloc(&bad, &mut far).unwrap();
    allocator.alloc(&good, &mut near).unwrap();
    for _ in 0..3 {
        let result = allocator.alloc(&bad, &mut near).map(drop);
        assert!(is_refused(&result), "the CPU: {result:?}");
        allocator.alloc(&bad, &mut far).unwrap();
        allocator.alloc(&good, &mut near).unwrap();
    }
}

/// A reservation without a backend is for any device that can use the memory.
#[test]
fn reserve_says_nothing_of_other_devices() {
    let few = device("AcceptsFew", |node| node.result().tensor().ne()[0] <= 4);
    let mut far = few.init().unwrap();
    let ctx = Context::new();
    let graph = |n: i64| ctx.graph([ctx.neg(ctx.input("x", DType::F32, [n]).unwrap()).unwrap()]).unwrap();
    let (small, large) = (graph(4), graph(8));
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    allocator.reserve(&large).unwrap();
    for _ in 0..3 {
        assert!(is_refused(&allocator.alloc(&large, &mut far)), "reserved for others");
        allocator.alloc(&small, &mut far).unwrap();
        assert!(allocator.sizes(&large).is_ok(), "on any device");
        allocator.reserve(&large).unwrap();
        allocator.reserve(&small).unwrap();
    }
}

/// Plans don't compare names, by which a device in Rust may go. It is asked for each allocation.
#[test]
fn drivers_are_asked_for_each_graph() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let named = device("AcceptsNamed", |node| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        node.operation().is_ok() && node.result().tensor().name() == "mine"
    });
    let mut backend = named.init().unwrap();
    let (ctx, other) = (Context::new(), Context::new());
    let graph = |ctx: &'static Context, name: &str| {
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        ctx.graph([ctx.neg(x).unwrap().named(name).unwrap()]).unwrap()
    };
    let (ctx, other): (&'static Context, &'static Context) = (Box::leak(Box::new(ctx)), Box::leak(Box::new(other)));
    let (mine, others) = (graph(ctx, "mine"), graph(other, "another's"));
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    for _ in 0..3 {
        let before = ASKED.load(Ordering::SeqCst);
        allocator.alloc(&mine, &mut backend).unwrap();
        assert!(ASKED.load(Ordering::SeqCst) > before, "it was asked");
        assert!(is_refused(&allocator.alloc(&others, &mut backend)), "it has another name");
    }
    assert_eq!(allocator.plans(), 1, "the plan is the same");
}

/// Random turns of graphs, devices and calls over one allocator, beside a table of what each device accepts.
#[test]
fn verdicts_do_not_depend_on_what_came_before() {
    const SHAPES: [[i64; 3]; 4] = [[8, 2, 1], [8, 4, 1], [8, 2, 3], [4, 4, 3]];
    /// Whether the CPU, the device for few rows, and the one for planes accept each.
    const ACCEPTED: [[bool; 4]; 3] =
        [[true, true, false, false], [true, false, true, false], [false, false, true, true]];
    let devices = [
        Device::cpu().unwrap(),
        device("AcceptsRows", |node| node.source(0).is_some_and(|x| x.tensor().ne()[1] <= 2)),
        device("AcceptsPlanes", |node| node.source(0).is_some_and(|x| x.tensor().ne()[2] > 1)),
    ];
    let mut backends = devices.map(|d| d.init().unwrap());
    let memory = Device::cpu().unwrap().buffer_type();
    let ctx = Context::new();
    let graphs = SHAPES.map(|ne| equal(&ctx, ne).unwrap());
    let mut rng = fastrand::Rng::with_seed(26);
    let mut seen = [0; 2];
    for _ in 0..40 {
        let mut allocator = GraphAllocator::new(memory);
        for _ in 0..rng.usize(2..40) {
            let (graph, device) = (rng.usize(..4), rng.usize(..3));
            let (result, accepted) = match rng.u32(..8) {
                // Any device may be meant: host memory is none's.
                0 => (allocator.reserve(&graphs[graph]), true),
                1 => (allocator.sizes(&graphs[graph]).map(drop), true),
                _ => (allocator.alloc(&graphs[graph], &mut backends[device]).map(drop), ACCEPTED[device][graph]),
            };
            assert_eq!((result.is_ok(), is_refused(&result)), (accepted, !accepted), "{graph} on {device}: {result:?}");
            seen[usize::from(accepted)] += 1;
        }
    }
    assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
}
