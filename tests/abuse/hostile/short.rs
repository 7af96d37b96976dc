//! Meta devices whose members lack memory, each for another call. What the others gave is given back.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{GraphAllocator, Result, TensorInfo};

use super::plain::{Rule, devices};
use crate::program::{World, one};

type Members = [(Device, Arc<Rule>); 3];

fn members() -> &'static Members {
    static MEMBERS: OnceLock<Members> = OnceLock::new();
    MEMBERS.get_or_init(|| devices("Short", true))
}

/// Without captures, so that the same members are the same device.
fn split(t: &TensorInfo) -> SplitMode {
    match &*t.name {
        "up" => SplitMode::Even { axis: 1 },
        "down" => SplitMode::Even { axis: 0 },
        _ => SplitMode::Mirrored,
    }
}

/// What is left of the members' memory while a program runs.
struct Short<'w> {
    world: &'w mut World,
    members: Vec<&'static Rule>,
}

impl Short<'_> {
    /// Leaves the members so many bytes more than they have given.
    fn leave(&self, bytes: impl Fn() -> usize) {
        for member in &self.members {
            member.limit.store(member.used.load(SeqCst) + bytes(), SeqCst);
        }
    }

    fn used(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.used.load(SeqCst)).collect()
    }

    /// Tries it with little memory, and then, if that was too little, with enough. `keeps` is what stays of it.
    fn call<T>(&mut self, rng: &mut fastrand::Rng, what: &str, mut f: impl FnMut() -> Result<T>) -> T {
        let most = 1 << rng.u32(6..16);
        let left = std::cell::RefCell::new(rng.fork());
        self.leave(|| left.borrow_mut().usize(..most));
        let before = self.used();
        for tries in 0..rng.u32(1..4) {
            match f() {
                Ok(value) => {
                    self.leave(|| usize::MAX / 4);
                    return value;
                }
                Err(e @ Error::OutOfMemory { .. }) => self.world.stats.refuse(&e),
                Err(e) => panic!("{what}, try {tries}: {e}"),
            }
            self.world.stats.hostile.out_of_memory += 1;
            let now = self.used();
            // An allocator gives back its last plan before it asks for another; a scheduler takes a little for the smallest.
            let kept = now.iter().zip(&before).all(|(now, before)| now <= &(before + 1024));
            assert!(kept, "{what}, try {tries}: {before:?} bytes before, {now:?} after");
        }
        self.leave(|| usize::MAX / 4);
        f().unwrap_or_else(|e| panic!("{what}, with memory: {e}"))
    }
}

/// A block of a network on a meta device.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    if !world.alone {
        return; // another thread would be told that these devices are in use
    }
    let mut order = [0, 1, 2];
    rng.shuffle(&mut order);
    let chosen: Vec<_> = order.iter().take(rng.usize(2..4)).map(|&i| &members()[i]).collect();
    let device = MetaDevice::new(&chosen.iter().map(|(d, _)| *d).collect::<Vec<_>>(), split).unwrap().device();
    let mut short = Short { world, members: chosen.iter().map(|(_, rule)| &**rule).collect() };
    block(&mut short, rng, device);
    assert!(short.used().iter().all(|&bytes| bytes == 0), "{:?} bytes are lost", short.used());
    assert!(short.members.iter().all(|member| member.unclaimed.load(SeqCst) == 0), "a node was not claimed");
}

fn block(short: &mut Short<'_>, rng: &mut fastrand::Rng, device: Device) {
    let (n, m, columns) = (4 * rng.usize(1..5), 3 * rng.usize(1..9), rng.usize(1..40));
    let mut numbers = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.i32(-1..2) as f32).collect() };
    let (up, down, x) = (numbers(n * m), numbers(m * n), numbers(n * columns));
    let placed = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("up", DType::F32, [n, m])?;
        builder.tensor("down", DType::F32, [m, n])?;
        builder.place(device)
    };
    let mut weights = short.call(rng, "weights", placed);
    weights.set("up", &up).unwrap();
    weights.set("down", &down).unwrap();
    let ctx = Context::new();
    let input = ctx.input("x", DType::F32, [n, columns]).unwrap();
    let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up").unwrap(), input).unwrap()).unwrap();
    let y = ctx.scale(ctx.mul_mat(weights.tensor("down").unwrap(), hidden).unwrap(), 0.5).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let times = |w: &[f32], k: usize, x: &[f32]| -> Vec<f32> {
        let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(a, b)| a * b).sum::<f32>();
        x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(x, w))).collect()
    };
    let middle: Vec<f32> = times(&up, n, &x).into_iter().map(|v| v.max(0.0)).collect();
    let want: Vec<f32> = times(&down, m, &middle).into_iter().map(|v| v * 0.5).collect();
    for _ in 0..rng.usize(1..4) {
        let pins: Vec<_> = graph.nodes().map(|t| (t, 0)).collect();
        let mut backend = device.init().unwrap();
        let mut allocator = GraphAllocator::new(device.buffer_type());
        let mut sched = Sched::builder().backend(device.init().unwrap()).backend(one()).build().unwrap();
        let by_allocator = rng.bool();
        if rng.u32(..3) == 0 {
            if by_allocator {
                short.call(rng, "reserve", || allocator.reserve(&graph));
            } else {
                short.call(rng, "reserve", || sched.reserve_pinned(&graph, &pins));
            }
        }
        let what = if by_allocator { "an allocator" } else { "a scheduler" };
        let mut alloc = || {
            if by_allocator {
                allocator.alloc(&graph, &mut backend).map(drop)
            } else {
                sched.alloc_pinned(&graph, &pins).map(drop)
            }
        };
        short.call(rng, what, &mut alloc);
        let mut run =
            if by_allocator { allocator.alloc(&graph, &mut backend) } else { sched.alloc_pinned(&graph, &pins) }
                .unwrap();
        run.set(input, &x).unwrap();
        // Sums over the members take memory of their own. Without it the backend is of no more use, and is leaked.
        let enough = rng.u32(..4) > 0 || !short.world.leak;
        short.leave(|| if enough { usize::MAX / 4 } else { 16 });
        match run.compute() {
            Ok(()) => assert_eq!(run.get::<f32>(y).unwrap(), want),
            Err(Error::Ggml { .. }) if !enough => {
                short.world.stats.hostile.out_of_memory += 1;
                let again = run.compute().err();
                assert!(matches!(again, Some(Error::Poisoned { .. })), "{again:?}");
            }
            Err(e) => panic!("a computation: {e}"),
        }
        short.leave(|| usize::MAX / 4);
    }
}
