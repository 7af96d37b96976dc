//! A device in host memory that computes less than it says: a result is written, or the computation failed.

use std::ops::ControlFlow;
use std::sync::Mutex;

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::prelude::*;
use ggml::{GraphAllocator, Registry, run::Compare};

testkit::trials!(
    unwritten_results_are_errors,
    unwritten_results_are_errors_in_each_kind_of_computation,
    nodes_lend_their_memory_in_order,
    fused_nodes_are_written,
    results_after_a_caught_panic_are_unwritten,
);

/// What a stream does with its nodes.
type Compute = fn(Nodes<'_, Lazy>) -> Result<(), Failure>;

/// Computes `neg` as it is told.
struct Lazy(String);

/// What it is told. Tests run one at a time.
static TOLD: Mutex<Compute> = Mutex::new(all);

impl Driver for Lazy {
    type Buffer = NoBuffer;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.0.clone(), DeviceType::Accelerator).with_async(true)
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        node.op() == "NEG"
    }

    fn stream(&self, _: &str) -> Result<Stream, Failure> {
        Ok(Stream)
    }
}

struct Stream;

impl DriverStream<Lazy> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, Lazy>) -> Result<(), Failure> {
        let told = *TOLD.lock().unwrap();
        told(nodes)
    }
}

fn negate(to: &mut [u8], from: &[&[u8]]) {
    for (y, x) in to.chunks_exact_mut(4).zip(from[0].chunks_exact(4)) {
        y.copy_from_slice(&(-bytemuck::pod_read_unaligned::<f32>(x)).to_ne_bytes());
    }
}

fn all(nodes: Nodes<'_, Lazy>) -> Result<(), Failure> {
    for mut node in nodes {
        node.on_host(negate)?;
    }
    Ok(())
}

const NONE: Compute = |_| Ok(());

fn all_but(mut nodes: Nodes<'_, Lazy>, name: &str) -> Result<(), Failure> {
    nodes.try_for_each(|mut node| {
        let skips = node.result().tensor().name() == name;
        if skips { Ok(()) } else { node.on_host(negate) }
    })
}

fn device(name: &str) -> Device {
    Registry::register(name, [Lazy(name.into())]).unwrap().devices().unwrap()[0]
}

fn tell(compute: Compute) {
    *TOLD.lock().unwrap() = compute;
}

/// Three functions of an input, each of the last one's result.
fn chain(ctx: &Context) -> [Tensor<'_>; 4] {
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let first = ctx.neg(x).unwrap().named("first").unwrap();
    let second = ctx.neg(first).unwrap().named("second").unwrap();
    let third = ctx.neg(second).unwrap().named("third").unwrap();
    [x, first, second, third]
}

fn unwritten_results_are_errors() {
    let device = device("Unwritten");
    let ctx = Context::new();
    let [x, first, second, third] = chain(&ctx);
    let sum = ctx.sum(third).unwrap();
    let graph = ctx.graph([first, second, third, sum]).unwrap();
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let lazy: [(Compute, &str); 4] = [
        (NONE, "`first`"),
        (|nodes| all_but(nodes, "first"), "`first`"),
        (|nodes| all_but(nodes, "third"), "`third`"),
        (|mut nodes| nodes.next().map_or(Ok(()), |mut node| node.on_host(negate)), "`second`"),
    ];
    for (compute, missing) in lazy {
        tell(compute);
        let error = run.compute().unwrap_err();
        let Error::DeviceFailed { call, reason, .. } = &error else { panic!("{error}") };
        assert_eq!(*call, "DriverStream::compute");
        assert!(reason.contains(missing), "{error}");
        for t in [first, second, third, sum] {
            let unread = run.get::<f32>(t).unwrap_err();
            assert!(matches!(unread, Error::NotComputed { .. }), "{unread}");
        }
        tell(all);
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(third).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
        assert_eq!(run.get::<f32>(sum).unwrap(), [-10.0]);
    }
}

fn unwritten_results_are_errors_in_each_kind_of_computation() {
    let device = device("UnwrittenToo");
    let ctx = Context::new();
    let [x, .., third] = chain(&ctx);
    let graph = ctx.graph([third]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    tell(NONE);
    let mut seen = 0;
    let see = |_: ggml::run::Observed<'_>| {
        seen += 1;
        ControlFlow::Continue(())
    };
    assert!(matches!(run.compute_with(|_| true, see), Err(Error::DeviceFailed { .. })));
    assert_eq!(seen, 0, "results that are shown");
    assert!(matches!(run.compute_async(|| ()), Err(Error::DeviceFailed { .. })));
    let compared = run.compare(&mut Backend::cpu().unwrap(), Compare::new());
    assert!(matches!(compared, Err(Error::DeviceFailed { .. })));
    assert!(matches!(run.get::<f32>(third), Err(Error::NotComputed { .. })));
    tell(all);
    assert!(run.compare(&mut Backend::cpu().unwrap(), Compare::new()).unwrap().agrees());
    drop(run);

    // An operation in place, whose result is its operand's memory.
    let x = ctx.dup(ctx.input("x", DType::F32, [4]).unwrap()).unwrap();
    let y = ctx.neg_inplace(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(backend).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    assert_eq!(run.backend_of(y).map(Backend::device), Some(device));
    let input = graph.tensor("x").unwrap();
    run.set(input, &[1.0_f32; 4]).unwrap();
    tell(NONE);
    assert!(matches!(run.compute(), Err(Error::DeviceFailed { .. })));
}

/// A later node would read what nobody has written yet, and its memory may be that of an earlier one.
fn nodes_lend_their_memory_in_order() {
    let device = device("Backwards");
    let ctx = Context::new();
    let [x, .., third] = chain(&ctx);
    let graph = ctx.graph([third]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    tell(|nodes| nodes.collect::<Vec<_>>().into_iter().rev().try_for_each(|mut node| node.on_host(negate)));
    let Err(Error::DeviceFailed { reason, .. }) = run.compute() else { panic!("not refused") };
    assert!(reason.contains("`first`"), "{reason}");
    // One that was lent already may be lent again.
    tell(|nodes| {
        let mut nodes: Vec<_> = nodes.collect();
        nodes[0].on_host(negate)?;
        nodes[0].on_host(negate)?;
        nodes[1..].iter_mut().try_for_each(|node| node.on_host(negate))
    });
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(third).unwrap(), [-1.0; 4]);
}

/// A device that computes several nodes at once is lent their memory, too.
fn fused_nodes_are_written() {
    let device = device("Fused");
    let ctx = Context::new();
    let [x, .., third] = chain(&ctx);
    let graph = ctx.graph([third]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    tell(|nodes| {
        let mut nodes: Vec<_> = nodes.collect();
        let x = nodes[0].on_host(|_, from| from[0].to_vec())?;
        nodes[1].on_host(|_, _| ())?;
        nodes[2].on_host(|to, _| negate(to, &[&x]))
    });
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(third).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
}

fn results_after_a_caught_panic_are_unwritten() {
    let device = device("Panicking");
    let ctx = Context::new();
    let [x, .., third] = chain(&ctx);
    let graph = ctx.graph([third]).unwrap();
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    tell(|nodes| {
        for mut node in nodes {
            let lends = || node.on_host(|_, _| -> () { std::panic::resume_unwind(Box::new("not today")) });
            let _caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(lends));
        }
        Ok(())
    });
    let Err(Error::DeviceFailed { reason, .. }) = run.compute() else { panic!("not refused") };
    assert!(reason.contains("`first`"), "{reason}");
}
