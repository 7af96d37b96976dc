//! Two CPUs that work as one device, beside the CPU: what one computes is copied to the other.

use std::sync::mpsc;
use std::time::Duration;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{Result, TensorInfo, ops::CustomOptions};
use ggml_draw::ToDot as _;

use super::assault::Actor;
use super::forever;
use super::stage::{Place, Stage, inside, provoke};
use crate::leaves::Leaves;
use crate::program::World;

/// What programs of this kind share.
pub(crate) struct Together {
    device: Device,
    scheds: Vec<Sched>,
}

/// How long a closure waits for another thread.
const PATIENCE: Duration = Duration::from_secs(20);

/// Divides a tensor by its name.
fn split(t: &TensorInfo) -> SplitMode {
    inside(Place::Split);
    match t.name.rsplit_once('.').and_then(|(_, axis)| axis.parse().ok()) {
        Some(axis) => SplitMode::Even { axis },
        None => SplitMode::Mirrored,
    }
}

fn sched(device: Device) -> Sched {
    let mut near = Backend::cpu().unwrap();
    near.set_threads(1).unwrap();
    let mut far = device.init().unwrap();
    far.set_threads(1).unwrap();
    Sched::builder().backend(far).backend(near).build().unwrap()
}

impl Together {
    pub(crate) fn new() -> Self {
        let device = MetaDevice::new(&[Device::cpu().unwrap(); 2], split).unwrap().device();
        Self { device, scheds: Vec::new() }
    }
}

/// The rows of a matrix of whole numbers.
type Matrix = Vec<Vec<f64>>;

fn numbers(rng: &mut fastrand::Rng, rows: usize, columns: usize) -> Matrix {
    (0..rows).map(|_| (0..columns).map(|_| f64::from(rng.i32(-1..2))).collect()).collect()
}

fn times(m: &Matrix, x: &Matrix) -> Matrix {
    x.iter().map(|x| m.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()).collect()
}

fn flat(m: &Matrix) -> Vec<f32> {
    m.iter().flatten().map(|&v| v as f32).collect()
}

/// A graph that begins on the CPU and ends on the two.
struct Chain {
    graph: &'static Graph<'static>,
    x: Tensor<'static>,
    y: Tensor<'static>,
    pins: Vec<(Tensor<'static>, usize)>,
    data: Vec<f32>,
    want: Vec<f32>,
}

/// What the CPU does: an operation that is pinned there, or a closure, which may wait for a thread that reads weights.
fn near(
    rng: &mut fastrand::Rng,
    ctx: &'static Context,
    weights: &'static Weights,
    pins: &mut Vec<(Tensor<'static>, usize)>,
    v: Tensor<'static>,
    values: &mut Matrix,
) -> Result<Tensor<'static>> {
    if rng.bool() {
        let t = ctx.roll(v, [1, 0, 0, 0])?;
        pins.push((t, 1));
        for row in values.iter_mut() {
            row.rotate_right(1);
        }
        return Ok(t);
    }
    let waits = rng.bool();
    values.iter_mut().flatten().for_each(|v| *v += 1.0);
    let how = CustomOptions::new().with_n_tasks(1);
    ctx.map_custom1::<f32>(v, how, move |out, x| {
        inside(Place::Custom);
        if waits {
            let (done, wait) = mpsc::channel();
            let reader = std::thread::spawn(move || {
                // It is told not to wait for a computation that may wait for it.
                let _heard = done.send(matches!(weights.read_bytes("up.1"), Ok(_) | Err(Error::Busy { .. })));
            });
            assert_eq!(wait.recv_timeout(PATIENCE), Ok(true), "a thread that reads weights does not come through");
            reader.join().unwrap();
        }
        for (i, row) in out {
            row.iter_mut().zip(x.row(i)).for_each(|(y, x)| *y = x + 1.0);
        }
    })
}

fn chain(rng: &mut fastrand::Rng, device: Device, ctx: &'static Context, actor: &mut Actor) -> Result<Chain> {
    let (n, m, columns) = (32, [32, 64][rng.usize(..2)], rng.usize(1..4));
    let (up, down) = (numbers(rng, m, n), numbers(rng, n, m));
    let mut weights = loop {
        let mut builder = WeightsBuilder::new();
        builder.tensor("up.1", DType::F32, [n as i64, m as i64])?;
        builder.tensor("down.0", DType::F32, [m as i64, n as i64])?;
        // The closure that divides them may panic.
        if let Some(weights) = provoke(actor, || builder.place(device.buffer_type())) {
            break weights?;
        }
    };
    weights.set("up.1", &flat(&up))?;
    weights.set("down.0", &flat(&down))?;
    let weights = forever(weights);
    let mut values = numbers(rng, columns, n);
    let data = flat(&values);
    let x = ctx.input("x", DType::F32, [n as i64, columns as i64])?;
    let (mut v, mut pins) = (x, Vec::new());
    // What lies on several CPUs that work as one can't be used elsewhere: the CPU comes first.
    for _ in 0..rng.usize(1..3) {
        v = near(rng, ctx, weights, &mut pins, v, &mut values)?;
    }
    for _ in 0..rng.usize(1..3) {
        let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up.1")?, v)?)?;
        let mut middle = times(&up, &values);
        middle.iter_mut().flatten().for_each(|v| *v = v.max(0.0));
        // A sum over devices can't be read; what is made of it can.
        v = ctx.scale(ctx.mul_mat(weights.tensor("down.0")?, hidden)?, 0.5)?;
        values = times(&down, &middle);
        values.iter_mut().flatten().for_each(|v| *v *= 0.5);
    }
    let graph = forever(ctx.graph([v])?);
    Ok(Chain { graph, x, y: v, pins, data, want: flat(&values) })
}

/// Allocations, forgotten or not, and other graphs of the same tensors.
pub(super) fn program(world: &mut World, rng: &mut fastrand::Rng) {
    if !world.alone {
        return; // another thread may be told that these devices are in use
    }
    let mut together = world.together.take().unwrap_or_else(Together::new);
    let device = together.device;
    let ctx = forever(Context::new());
    let leaves = forever(Leaves::default());
    let other = ctx.neg(ctx.input("other", DType::F32, [4]).unwrap()).unwrap();
    let graph = forever(ctx.graph([other]).unwrap());
    let mut stage = Stage::new(rng.fork(), ctx, graph, vec![other], leaves);
    (stage.left, stage.seldom, stage.panics, stage.trace) = (rng.u32(..4), 2, rng.bool(), world.trace);
    let mut actor = Some(Box::new(stage));
    let chain = chain(rng, device, ctx, &mut actor).unwrap();
    world.stats.hostile.two_devices += 1;
    let stage = actor.as_mut().unwrap();
    (stage.graph, stage.outputs) = (chain.graph, vec![chain.y]);
    let before = (device.supports_op(chain.y).unwrap(), chain.graph.to_dot().unwrap());
    for round in 0..rng.usize(1..4) {
        let mut sched = together.scheds.pop().unwrap_or_else(|| sched(device));
        let stage = actor.as_mut().unwrap();
        (stage.left, stage.seldom, stage.panics) = (rng.u32(..4), rng.u32(1..3), rng.u32(..4) == 0);
        stage.trace = world.trace;
        let sound = {
            let mut run = sched.alloc_pinned(chain.graph, &chain.pins).unwrap();
            if round > 0 || rng.bool() {
                run.set(chain.x, &chain.data).unwrap();
                let result = provoke(&mut actor, || run.compute());
                if let Some(result) = result {
                    result.unwrap();
                    assert_eq!(run.get::<f32>(chain.y).unwrap(), chain.want);
                }
                assert!(run.n_splits() > 1, "nothing is copied");
            }
            // While it is allocated:
            look(world, rng, device, ctx, &chain, &before);
            if world.leak && rng.u32(..4) == 0 {
                actor.as_mut().unwrap().forgot = 1;
                #[expect(clippy::mem_forget, reason = "safe code may do that")]
                std::mem::forget(run);
                rng.bool()
            } else {
                true
            }
        };
        if sound {
            together.scheds.push(sched);
        } else {
            drop(sched);
        }
        look(world, rng, device, ctx, &chain, &before);
    }
    let stage = actor.unwrap();
    world.stats.hostile.reentered += u64::from(stage.calls > 0);
    world.stats.hostile.panicked += u64::from(stage.thrown > 0);
    world.stats.hostile.forgot += stage.forgot;
    drop(stage);
    let mut sched = sched(device);
    let mut run = sched.alloc_pinned(chain.graph, &chain.pins).unwrap();
    run.set(chain.x, &chain.data).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(chain.y).unwrap(), chain.want);
    drop(run);
    together.scheds.truncate(2);
    world.together = Some(together);
}

/// Makes graphs of the same tensors, asks about them, and allocates them elsewhere.
fn look(
    world: &mut World,
    rng: &mut fastrand::Rng,
    device: Device,
    ctx: &'static Context,
    chain: &Chain,
    before: &(bool, String),
) {
    let again = ctx.graph([chain.y]).unwrap();
    let now = (device.supports_op(chain.y).unwrap(), again.to_dot().unwrap());
    assert_eq!(now, *before, "what a graph is said to be");
    let more = ctx.graph([ctx.cont(chain.y).unwrap()]).unwrap();
    assert_eq!(more.n_nodes(), chain.graph.n_nodes() + 1, "operations that the graph has");
    if rng.bool() {
        let mut other = sched(device);
        let result = other.alloc_pinned(&again, &chain.pins).map(|mut run| {
            run.set(chain.x, &chain.data).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(chain.y).unwrap(), chain.want);
        });
        crate::stats::may_fail(&mut world.stats, result);
    }
}
