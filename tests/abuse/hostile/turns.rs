//! Devices that take turns over one allocator, or over one scheduler, with graphs that differ in sizes and names only.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};

use super::plain::{Rule, devices};
use crate::program::{World, one};

/// One operation of a chain: on the last result, and on one before it or on the input.
#[derive(Clone, Copy)]
enum Step {
    Neg,
    Relu,
    Add(usize),
    Mul,
}

/// A graph with the values that it shall have.
struct Made<'c> {
    graph: Graph<'c>,
    inputs: Vec<(Tensor<'c>, Vec<f32>)>,
    whole: Vec<(Tensor<'c>, Vec<i32>)>,
    y: (Tensor<'c>, Vec<f32>),
    count: Option<(Tensor<'c>, i64)>,
    /// The letter with which the names of its nodes begin.
    letter: char,
    /// The longest row.
    row: i64,
    /// Whether the CPU has kernels for it (H61).
    on_cpu: bool,
}

fn made<'c>(ctx: &'c Context, rng: &mut fastrand::Rng, steps: &[Step], counts: bool) -> Result<Made<'c>> {
    let ne = [rng.i64(1..9), rng.i64(1..4), rng.i64(1..3)];
    let letter = ['p', 'q'][rng.usize(..2)];
    let n = ne.iter().product::<i64>() as usize;
    let x = ctx.input("x", DType::F32, ne)?;
    let values: Vec<f32> = (0..n).map(|_| rng.i32(-2..3) as f32).collect();
    let mut all = vec![(x, values.clone())];
    for (i, step) in steps.iter().enumerate() {
        let (last, was) = all.last().unwrap().clone();
        let with = |(t, v): &(Tensor<'c>, Vec<f32>)| (*t, v.clone());
        let (t, now) = match *step {
            Step::Neg => (ctx.neg(last)?, was.iter().map(|v| -v).collect()),
            Step::Relu => (ctx.relu(last)?, was.iter().map(|v| v.max(0.0)).collect()),
            Step::Add(other) => {
                let (t, v) = with(&all[other % all.len()]);
                (ctx.add(last, t)?, was.iter().zip(&v).map(|(a, b)| a + b).collect())
            }
            Step::Mul => (ctx.mul(last, x)?, was.iter().zip(&values).map(|(a, b)| a * b).collect::<Vec<f32>>()),
        };
        all.push((t.named(&format!("{letter}{i}"))?, now));
    }
    let (mut whole, mut count) = (Vec::new(), None);
    if counts {
        let pair = ["i", "j"].map(|name| (name, (0..n).map(|_| rng.i32(..2)).collect::<Vec<_>>()));
        let equal = pair[0].1.iter().zip(&pair[1].1).filter(|(a, b)| a == b).count();
        for (name, values) in pair {
            whole.push((ctx.input(name, DType::I32, ne)?, values));
        }
        let t = ctx.count_equal(whole[0].0, whole[1].0)?.named(&format!("{letter}count"))?;
        count = Some((t, equal as i64));
    }
    let y = all.pop().unwrap();
    let graph = ctx.graph([y.0].into_iter().chain(count.map(|(t, _)| t)).collect::<Vec<_>>())?;
    let on_cpu = !counts || ne[2] == 1;
    Ok(Made { graph, inputs: vec![(x, values)], whole, y, count, letter, row: ne[0], on_cpu })
}

impl Made<'_> {
    fn check(&self, run: &mut Run<'_, '_>) {
        for (t, values) in &self.inputs {
            run.set(*t, values).unwrap();
        }
        for (t, values) in &self.whole {
            run.set(*t, values).unwrap();
        }
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(self.y.0).unwrap(), self.y.1, "{:?}", self.y.0);
        if let Some((t, n)) = self.count {
            assert_eq!(run.get::<i64>(t).unwrap(), [n], "{t:?}");
        }
    }

    fn fits(&self, rule: &Rule) -> bool {
        rule.accepts(&self.letter.to_string(), self.row)
    }
}

fn pair() -> &'static [(Device, Arc<Rule>); 2] {
    static PAIR: OnceLock<[(Device, Arc<Rule>); 2]> = OnceLock::new();
    PAIR.get_or_init(|| devices("Turns", false))
}

/// A few graphs of one topology, and three devices, in any order.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    if !world.alone {
        return; // another thread may have other rules
    }
    let steps: Vec<_> = (0..rng.usize(1..7))
        .map(|_| [Step::Neg, Step::Relu, Step::Add(rng.usize(..8)), Step::Mul][rng.usize(..4)])
        .collect();
    let counts = rng.bool();
    for (_, rule) in pair() {
        rule.most.store(rng.i64(1..10), SeqCst);
        rule.refuses.store(['p', 'q', 'r', 'r'][rng.usize(..4)].into(), SeqCst);
    }
    let contexts: Vec<_> = (0..rng.usize(2..6)).map(|_| Context::new()).collect();
    let graphs: Vec<_> = contexts.iter().map(|ctx| made(ctx, rng, &steps, counts).unwrap()).collect();
    if rng.u32(..3) > 0 {
        over_allocator(world, rng, &graphs);
    } else {
        over_scheduler(world, rng, &graphs);
    }
    assert!(
        pair().iter().all(|(_, rule)| rule.unclaimed.load(SeqCst) == 0),
        "a device computed what it had not claimed"
    );
    world.stats.hostile.two_devices += 1;
}

fn over_allocator(world: &mut World, rng: &mut fastrand::Rng, graphs: &[Made<'_>]) {
    let mut backends = [one(), pair()[0].0.init().unwrap(), pair()[1].0.init().unwrap()];
    let mut allocator = GraphAllocator::new(backends[0].device().buffer_type());
    for _ in 0..rng.usize(4..30) {
        let (made, device) = (&graphs[rng.usize(..graphs.len())], rng.usize(..3));
        let accepted = if device == 0 { made.on_cpu } else { made.fits(&pair()[device - 1].1) };
        // Host memory is no device's: nothing is judged.
        match rng.u32(..8) {
            0 => allocator.reserve(&made.graph).unwrap(),
            1 => drop(allocator.sizes(&made.graph).unwrap()),
            _ => match allocator.alloc(&made.graph, &mut backends[device]) {
                Ok(mut run) => {
                    assert!(accepted, "device {device} took what it refuses");
                    if rng.bool() {
                        made.check(&mut run);
                    }
                }
                Err(e @ Error::Unsupported { .. }) if !accepted => world.stats.refuse(&e),
                Err(e) => panic!("device {device}: {e}"),
            },
        }
    }
}

/// The first backend is replaced at times. The CPU takes what is refused.
fn over_scheduler(world: &mut World, rng: &mut fastrand::Rng, graphs: &[Made<'_>]) {
    let mut sched = Sched::builder().backend(pair()[0].0.init().unwrap()).backend(one()).build().unwrap();
    for _ in 0..rng.usize(4..20) {
        if rng.u32(..4) == 0 {
            *sched.backend_mut(0).unwrap() = pair()[rng.usize(..2)].0.init().unwrap();
        }
        let made = &graphs[rng.usize(..graphs.len())];
        let reserves = rng.u32(..6) == 0;
        let result = if reserves {
            sched.reserve(&made.graph)
        } else {
            sched.alloc(&made.graph).map(|mut run| made.check(&mut run))
        };
        match result {
            Ok(()) => {}
            Err(e @ Error::Unsupported { .. }) if !made.on_cpu => world.stats.refuse(&e),
            Err(e) => panic!("beside the CPU: {e}"),
        }
    }
}
