//! Meta devices with too little memory: whatever fails, what the other members gave is given back. In a process of its own, as
//! one thread at a time uses devices in Rust that are members of another.

#![cfg(test)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{GraphAllocator, Result, TensorInfo};
use testkit::fake_gpu::{Call, Control, FakeOptions, Fault, devices};

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const KIB: usize = 1 << 10;

/// Devices with these limits in bytes, as one.
struct Members {
    device: Device,
    controls: Vec<Arc<Control>>,
}

impl Members {
    fn new(limits: &[usize]) -> Self {
        let one = |&limit: &usize| {
            let [one] = devices(FakeOptions { limit, ordered: true, ..FakeOptions::default() });
            one
        };
        let (members, controls): (Vec<_>, Vec<_>) = limits.iter().map(one).unzip();
        let split = |t: &TensorInfo| SplitMode::Even { axis: usize::from(&*t.name != "columns") };
        Self { device: MetaDevice::new(&members, split).unwrap().device(), controls }
    }

    /// Bytes in use of each.
    fn used(&self) -> Vec<usize> {
        self.controls.iter().map(|control| control.used()).collect()
    }

    #[track_caller]
    fn assert_free(&self, what: &str) {
        assert!(self.used().iter().all(|&bytes| bytes == 0), "{what}: {:?} bytes are lost", self.used());
    }

    fn sched(&self) -> Sched {
        Sched::builder().backend(self.device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
    }
}

#[track_caller]
fn assert_out_of_memory<T>(result: Result<T>, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what}: there was memory"));
    assert!(matches!(error, Error::OutOfMemory { .. }), "{what}: {error}");
    // What ggml logged follows on lines of its own: its name for such a buffer type has no members.
    let said = error.to_string();
    let ours = said.lines().next().unwrap_or_default();
    assert!(!ours.contains("Meta()"), "{what}: {ours} names no members");
}

/// `-x` of `n` floats, twice.
fn negated(ctx: &Context, n: usize) -> (Tensor<'_>, Tensor<'_>, Graph<'_>) {
    let x = ctx.input("x", DType::F32, [n]).unwrap();
    let y = ctx.neg(ctx.neg(x).unwrap()).unwrap();
    (x, y, ctx.graph([y]).unwrap())
}

/// Pins all operations to the first backend, to which nothing else draws them.
fn pins<'g>(graph: &'g Graph<'_>) -> Vec<(Tensor<'g>, usize)> {
    graph.nodes().map(|t| (t, 0)).collect()
}

fn placed(device: Device, sizes: &[usize]) -> Result<Weights> {
    let mut builder = WeightsBuilder::new();
    for (i, n) in sizes.iter().enumerate() {
        builder.tensor(&format!("w{i}"), DType::F32, [*n, 3])?;
    }
    builder.place(device)
}

/// The last of three members lacks memory, or the second; each order loses what those before have given.
const LIMITS: [[usize; 3]; 3] = [[64 * KIB, 64 * KIB, KIB], [64 * KIB, KIB, 64 * KIB], [64 * KIB, 64 * KIB, 0]];

#[test]
fn weights_that_fit_on_some_members_only_leave_nothing() {
    let _alone = alone();
    for limits in LIMITS {
        let members = Members::new(&limits[..2 + usize::from(limits[1] > KIB)]);
        for tries in 0..5 {
            assert_out_of_memory(placed(members.device, &[3 * KIB, 2 * KIB]).map(drop), "weights");
            members.assert_free(&format!("{limits:?}, try {tries}"));
            let mut states = WeightsBuilder::new();
            states.tensor("s", DType::F32, [3 * KIB, 4]).unwrap();
            assert_out_of_memory(states.place_state(members.device).map(drop), "states");
            members.assert_free(&format!("{limits:?}, states, try {tries}"));
        }
    }
}

#[test]
fn graphs_that_fit_on_some_members_only_leave_nothing() {
    let _alone = alone();
    for limits in LIMITS {
        let members = Members::new(&limits);
        let ctx = Context::new();
        let (_, _, graph) = negated(&ctx, 2 * KIB);
        let mut backend = members.device.init().unwrap();
        let mut allocator = GraphAllocator::new(members.device.buffer_type());
        for tries in 0..5 {
            assert_out_of_memory(allocator.alloc(&graph, &mut backend).map(drop), "alloc");
            members.assert_free(&format!("{limits:?}, try {tries}"));
            assert_out_of_memory(allocator.reserve(&graph), "reserve");
            members.assert_free(&format!("{limits:?}, reserved, try {tries}"));
            assert!(allocator.sizes(&graph).unwrap()[0] >= 8 * KIB, "sizes take nothing");
        }
        let mut sched = members.sched();
        for _ in 0..5 {
            assert_out_of_memory(sched.alloc_pinned(&graph, &pins(&graph)).map(drop), "a scheduler");
            assert_out_of_memory(sched.reserve_pinned(&graph, &pins(&graph)), "a scheduler's reservation");
            assert!(members.used().iter().all(|&bytes| bytes <= KIB), "{:?}", members.used());
        }
        drop(sched);
        members.assert_free("a scheduler");
    }
}

/// A plan that grows gives its memory back before it asks for more, as ggml does.
#[test]
fn graphs_that_grow_beyond_memory_leave_a_usable_allocator() {
    let _alone = alone();
    let members = Members::new(&[64 * KIB, 24 * KIB]);
    let ctx = Context::new();
    let (x, y, small) = negated(&ctx, KIB);
    let (_, _, large) = negated(&ctx, 8 * KIB);
    let mut backend = members.device.init().unwrap();
    let mut allocator = GraphAllocator::new(members.device.buffer_type());
    let mut sched = members.sched();
    for round in 0..4_u8 {
        let values: Vec<f32> = (0..1024_u16).map(|i| f32::from(i) - f32::from(round)).collect();
        let mut run = allocator.alloc(&small, &mut backend).unwrap();
        run.set(x, &values).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), values, "round {round}");
        drop(run);
        assert_out_of_memory(allocator.alloc(&large, &mut backend).map(drop), "alloc");
        let mut run = sched.alloc_pinned(&small, &pins(&small)).unwrap();
        run.set(x, &values).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), values, "round {round}");
        drop(run);
        assert_out_of_memory(sched.alloc_pinned(&large, &pins(&large)).map(drop), "a scheduler");
    }
    drop((allocator, sched));
    members.assert_free("both");
}

/// A device may refuse any of its allocations, whatever it gave before.
#[test]
fn refusals_at_each_allocation_leave_nothing() {
    let _alone = alone();
    let members = Members::new(&[usize::MAX >> 1; 3]);
    let ctx = Context::new();
    let (_, _, graph) = negated(&ctx, KIB);
    let mut failures = 0;
    for member in 0..3 {
        for call in 0..4 {
            for kind in 0..3 {
                let control = &members.controls[member];
                control.fail(Call::Allocate, call, Fault::Fail);
                let result = match kind {
                    0 => placed(members.device, &[100, 200]).map(drop),
                    1 => {
                        let mut backend = members.device.init().unwrap();
                        let mut allocator = GraphAllocator::new(members.device.buffer_type());
                        allocator.alloc(&graph, &mut backend).map(drop)
                    }
                    _ => members.sched().alloc_pinned(&graph, &pins(&graph)).map(drop),
                };
                if control.has_failed() {
                    failures += 1;
                    assert_out_of_memory(result, &format!("allocation {call} of member {member}, {kind}"));
                } else {
                    result.unwrap();
                }
                control.fail(Call::Allocate, usize::MAX, Fault::Fail);
                members.assert_free(&format!("allocation {call} of member {member}, {kind}"));
            }
        }
    }
    assert!(failures >= 9, "{failures}");
}

/// A device is asked once for what it gives.
#[test]
fn members_are_asked_once() {
    let _alone = alone();
    let n = 4096;
    let members = Members::new(&[n * 8, n * 8]);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [n]).unwrap();
    let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut backend = members.device.init().unwrap();
    let mut allocator = GraphAllocator::new(members.device.buffer_type());
    let size = allocator.sizes(&graph).unwrap()[0];
    members.controls.iter().for_each(|control| control.fail(Call::Allocate, 1, Fault::Fail));
    let run = allocator.alloc(&graph, &mut backend).unwrap();
    assert_eq!(members.used(), [size; 2]);
    assert!(!members.controls.iter().any(|control| control.has_failed()), "a second time");
    drop(run);
    drop(allocator);
    members.assert_free("dropped");
}

/// The last sum of a graph over its members needs memory that only the computation takes.
#[test]
fn sums_without_memory_leave_nothing() {
    const N: usize = 64;
    let _alone = alone();
    let computed = |members: &Members, by_sched: bool| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("rows", DType::F32, [N, N])?;
        builder.tensor("columns", DType::F32, [N, N])?;
        let weights = builder.place(members.device)?;
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [N, N])?;
        let hidden = ctx.mul_mat(weights.tensor("rows")?, x)?;
        let y = ctx.scale(ctx.mul_mat(weights.tensor("columns")?, hidden)?, 1.0)?;
        let graph = ctx.graph([y])?;
        let (mut sched, mut backend) = (members.sched(), members.device.init()?);
        let mut allocator = GraphAllocator::new(members.device.buffer_type());
        let mut run = if by_sched { sched.alloc(&graph)? } else { allocator.alloc(&graph, &mut backend)? };
        run.set(x, &[1.0_f32; N * N])?;
        let before = members.used();
        let result = run.compute();
        let after = members.used();
        let again = run.compute();
        assert_eq!(result.is_err(), matches!(again, Err(Error::Poisoned { .. })), "{result:?}, {again:?}");
        result.map(|()| (before, after))
    };
    let members = Members::new(&[1 << 30; 2]);
    for by_sched in [false, true] {
        let (before, after) = computed(&members, by_sched).unwrap();
        assert!(after[1] > before[1], "sums take memory: {before:?} {after:?}");
        members.assert_free("a sum");
        let few = Members::new(&[1 << 30, after[1] - 1]);
        for tries in 0..3 {
            let error = computed(&few, by_sched).unwrap_err();
            assert!(error.to_string().contains("bytes are more than are left"), "{error}");
            few.assert_free(&format!("a sum without memory, try {tries}, scheduler: {by_sched}"));
        }
    }
}

/// The CPU before a device without memory: what the CPU gave goes back, too.
#[cfg(target_os = "linux")]
#[test]
fn memory_of_the_cpu_beside_a_device_without_memory_is_freed() {
    let _alone = alone();
    let [(gpu, control)] = devices(FakeOptions { limit: 1, ..FakeOptions::default() });
    let device = MetaDevice::new(&[Device::cpu().unwrap(), gpu], |_| SplitMode::Mirrored).unwrap().device();
    let ctx = Context::new();
    let (_, _, graph) = negated(&ctx, 16 << 20);
    let mut backend = device.init().unwrap();
    let pages = || {
        let used = std::fs::read_to_string("/proc/self/statm").unwrap();
        used.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let before = pages();
    for _ in 0..10 {
        assert_out_of_memory(allocator.alloc(&graph, &mut backend).map(drop), "alloc");
        assert_out_of_memory(placed(device, &[8 << 20]).map(drop), "weights");
    }
    let kept = pages().saturating_sub(before) * 4096;
    assert!(kept < 1 << 30, "{} MiB of 64 MiB each", kept >> 20);
    assert_eq!(control.used(), 0);
}
