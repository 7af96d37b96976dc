//! Letters a, c and d: what an allocation writes into tensors' headers is nobody else's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{Error, GraphAllocator};
use ggml_draw::ToDot as _;

use crate::logger::with_hook;

/// A scheduler of two CPUs that work as one, and the CPU: ggml copies between them.
fn two_devices() -> Sched {
    let cpu = Device::cpu().unwrap();
    let meta = MetaDevice::new(&[cpu, cpu], |_| SplitMode::Mirrored).unwrap().device();
    Sched::builder().backend(meta.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
}

/// `relu(roll(x))`: the CPU rolls, the other device goes on.
struct Rolled<'c> {
    x: Tensor<'c>,
    between: Tensor<'c>,
    y: Tensor<'c>,
}

fn rolled(ctx: &Context) -> Rolled<'_> {
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let rolled = ctx.roll(x, [1, 0, 0, 0]).unwrap();
    Rolled { x, between: rolled, y: ctx.relu(rolled).unwrap() }
}

fn compute(graph: &Graph<'_>, t: &Rolled<'_>) {
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(graph).unwrap();
    run.set(t.x, &[1.0_f32, -2.0, 3.0, -4.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(t.y).unwrap(), [0.0, 1.0, 0.0, 3.0]);
}

/// Letter a. The second graph walked into the scheduler's copies.
#[test]
fn graph_of_allocated_tensors_has_the_sources_as_built() {
    let ctx = Context::new();
    let t = rolled(&ctx);
    let first = ctx.graph([t.y]).unwrap();
    let mut sched = two_devices();
    let mut run = sched.alloc_pinned(&first, &[(t.between, 1), (t.y, 0)]).unwrap();
    assert_eq!(run.splits().unwrap().iter().map(|s| s.inputs.len()).sum::<usize>(), 1, "one copy between the devices");
    run.set(t.x, &[1.0_f32, -2.0, 3.0, -4.0]).unwrap();
    let second = ctx.graph([t.y]).unwrap();
    assert_eq!(second.to_dot().unwrap(), first.to_dot().unwrap());
    assert_eq!(second.sources(t.y).collect::<Vec<_>>(), [t.between]);
    compute(&second, &t);
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(t.y).unwrap(), [0.0, 1.0, 0.0, 3.0], "the first allocation is as it was");
}

/// Letter a, after the allocation was forgotten and its scheduler dropped.
#[test]
fn forgotten_allocation_leaves_headers_as_built() {
    let ctx = Context::new();
    let t = rolled(&ctx);
    let first = ctx.graph([t.y]).unwrap();
    let dot = first.to_dot().unwrap();
    let mut sched = two_devices();
    std::mem::forget(sched.alloc_pinned(&first, &[(t.between, 1), (t.y, 0)]).unwrap());
    drop(sched);
    let second = ctx.graph([t.y]).unwrap();
    assert_eq!(second.to_dot().unwrap(), dot);
    compute(&second, &t);
    compute(&first, &t);
}

/// Letter c. Another allocation of the same tensors, made by the logger while the first runs out of memory, is refused, and
/// made right after that it keeps its memory.
#[test]
fn logger_cannot_allocate_a_graph_being_allocated() {
    // Leaked, so that the logger, which is no part of this function, can reach them.
    let ctx: &'static Context = Box::leak(Box::new(Context::new()));
    let x = ctx.input("x", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let y = ctx.relu(x).unwrap();
    let graph: &'static Graph<'static> = Box::leak(Box::new(ctx.graph([y]).unwrap()));
    let buft = Device::cpu().unwrap().buffer_type();
    let outcomes = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&outcomes);
    let second = RefCell::new((GraphAllocator::new(buft), Backend::cpu().unwrap()));
    let logged = move |_: &str| {
        let (allocator, backend) = &mut *second.borrow_mut();
        seen.borrow_mut().push(allocator.alloc(graph, backend).map(std::mem::forget).err());
    };
    let mut first = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let error = with_hook(logged, || first.alloc(graph).err());
    assert!(matches!(error, Some(Error::OutOfMemory { .. })), "{error:?}");
    assert!(!outcomes.borrow().is_empty(), "ggml says what it could not have");
    for outcome in &*outcomes.borrow() {
        assert!(matches!(outcome, Some(Error::Nested { .. })), "{outcome:?}");
    }
    let small = ctx.graph([ctx.relu(ctx.input("s", DType::F32, [2]).unwrap()).unwrap()]).unwrap();
    assert!(first.alloc(&small).is_ok(), "the scheduler goes on");
}

/// Letter d. The answer depended on a buffer that was freed.
#[test]
fn supports_op_does_not_depend_on_a_forgotten_allocation() {
    let cpu = Device::cpu().unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64, 4]).unwrap();
    let y = ctx.mul_mat(ctx.input("w", DType::F32, [64, 64]).unwrap(), x).unwrap();
    let asked = || (cpu.supports_op(y).unwrap(), cpu.offloads(y).unwrap(), cpu.buffer_type().alloc_size(y).unwrap());
    let before = asked();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    std::mem::forget(sched.alloc(&graph).unwrap());
    drop(sched);
    // Something else takes the place of what was freed, as likely as not memory of another type.
    let mut builder = WeightsBuilder::new();
    builder.tensor("q", DType::Q4_0, [64, 64]).unwrap();
    let _weights: Vec<_> = cpu
        .extra_buffer_types()
        .unwrap()
        .into_iter()
        .filter(|m| matches!(m.holds(DType::Q4_0, [64, 64]), Ok(true)))
        .flat_map(|m| (0..20).map(move |_| m))
        .map(|m| {
            let mut builder = WeightsBuilder::new();
            builder.tensor("q", DType::Q4_0, [64, 64]).unwrap();
            builder.place(m).unwrap()
        })
        .collect();
    assert_eq!(asked(), before);
}

/// Two schedulers hold one graph at a time, each with values of its own.
#[test]
fn graph_allocated_twice_has_separate_memory() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let y = ctx.sqr(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut one = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut other = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = Backend::cpu().unwrap();
    let mut a = one.alloc(&graph).unwrap();
    let mut b = other.alloc(&graph, &mut backend).unwrap();
    a.set(x, &[2.0_f32, 3.0]).unwrap();
    b.set(x, &[4.0_f32, 5.0]).unwrap();
    a.compute().unwrap();
    b.compute().unwrap();
    assert_eq!(a.get::<f32>(y).unwrap(), [4.0, 9.0]);
    assert_eq!(b.get::<f32>(y).unwrap(), [16.0, 25.0]);
    drop(b);
    a.compute().unwrap();
    assert_eq!(a.get::<f32>(y).unwrap(), [4.0, 9.0], "the one does not end with the other");
}

/// Within its closure, `compute_async` keeps what devices use from everybody else.
#[test]
fn compute_async_refuses_access_to_tensors_in_use() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let y = ctx.sqr(x).unwrap();
    let (graph, again) = (ctx.graph([y]).unwrap(), ctx.graph([y]).unwrap());
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut other = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[2.0_f32, 3.0]).unwrap();
    let calls = Cell::new(0);
    run.compute_async(|| {
        let in_use = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::InUse { .. })), "{result:?}");
            calls.set(calls.get() + 1);
        };
        in_use(ctx.graph([y]).map(drop));
        in_use(other.alloc(&again).map(drop));
        in_use(ctx.neg(y).map(drop));
        in_use(ctx.add(x, x).map(drop));
        in_use(y.named("z").map(drop));
        in_use(ctx.output(y).map(drop));
        in_use(Device::cpu().unwrap().supports_op(y).map(drop));
        in_use(Device::cpu().unwrap().offloads(y).map(drop));
        let z = ctx.input("z", DType::F32, [2]).unwrap();
        let else_where = ctx.graph([ctx.neg(z).unwrap()]).unwrap();
        let mut run = other.alloc(&else_where).unwrap();
        run.set(z, &[1.0_f32, 2.0]).unwrap();
        run.compute().unwrap();
    })
    .unwrap();
    assert_eq!(calls.get(), 8);
    assert_eq!(run.get::<f32>(y).unwrap(), [4.0, 9.0]);
    drop(run);
    assert!(other.alloc(&again).is_ok() && ctx.neg(y).is_ok(), "free again");
}
