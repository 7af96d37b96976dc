//! Random graphs of small whole numbers, computed on devices and by plain Rust.

use std::sync::OnceLock;

use fastrand::Rng;
use ggml::GraphAllocator;
use ggml::prelude::*;
use testkit::fake_gpu::{FakeOptions, devices};

use crate::{GRAPHS, assert_no_races, count};

testkit::trials!(graphs_on_one, graphs_on_two, graphs_on_two_beside_the_cpu);

/// The rows and columns of all matrices.
const N: usize = 6;

/// How many graphs in all; a third for each test.
fn graphs() -> usize {
    std::env::var("FAKE_GPU_GRAPHS").map_or(10_002, |n| n.parse().unwrap()) / 3
}

/// A tensor, and the numbers that it must hold.
#[derive(Clone)]
struct Known<'c> {
    t: Tensor<'c>,
    data: Vec<f32>,
}

/// A graph under construction.
struct Program<'c> {
    ctx: &'c Context,
    values: Vec<Known<'c>>,
    inputs: Vec<Known<'c>>,
    indices: Option<(Tensor<'c>, Vec<i32>)>,
    /// Tensors that may be pinned.
    made: Vec<Tensor<'c>>,
}

fn clamped(x: f32) -> f32 {
    x.clamp(-9.0, 9.0)
}

fn numbers(rng: &mut Rng) -> Vec<f32> {
    (0..N * N).map(|_| f32::from(rng.i8(-3..=3))).collect()
}

impl<'c> Program<'c> {
    fn pick(&self, rng: &mut Rng) -> Known<'c> {
        self.values[rng.usize(..self.values.len())].clone()
    }

    /// Names a tensor, so that it can be found in the graph.
    fn made(&mut self, t: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
        let t = t.named(&format!("t{}", self.made.len()))?;
        self.made.push(t);
        Ok(t)
    }

    /// Adds an operation.
    fn step(&mut self, rng: &mut Rng) -> ggml::Result<()> {
        let (ctx, a, b) = (self.ctx, self.pick(rng), self.pick(rng));
        let zip = |f: fn(f32, f32) -> f32| a.data.iter().zip(&b.data).map(|(a, b)| f(*a, *b)).collect::<Vec<_>>();
        let map = |f: fn(f32) -> f32| a.data.iter().map(|a| f(*a)).collect::<Vec<_>>();
        let grid = |f: &dyn Fn(usize, usize) -> f32| (0..N * N).map(|i| f(i % N, i / N)).collect::<Vec<_>>();
        let (t, data) = match rng.u8(..11) {
            0 => (ctx.add(a.t, b.t)?, zip(|a, b| a + b)),
            1 => (ctx.sub(a.t, b.t)?, zip(|a, b| a - b)),
            2 => (ctx.mul(a.t, b.t)?, zip(|a, b| a * b)),
            3 => (ctx.relu(a.t)?, map(|a| a.max(0.0))),
            4 => (ctx.neg(a.t)?, map(|a| -a)),
            5 => (ctx.scale(a.t, 2.0)?, map(|a| 2.0 * a)),
            6 => {
                let sum = |i: usize, j: usize| (0..N).map(|k| a.data[i * N + k] * b.data[j * N + k]).sum();
                (ctx.mul_mat(a.t, b.t)?, grid(&sum))
            }
            7 => (ctx.cont(ctx.transpose(a.t)?)?, grid(&|i, j| a.data[i * N + j])),
            8 => {
                let sum = |j: usize| a.data[j * N..][..N].iter().sum::<f32>();
                (ctx.add(b.t, ctx.sum_rows(a.t)?)?, grid(&|i, j| b.data[j * N + i] + sum(j)))
            }
            9 => {
                let (rows, picks) = self.indices.clone().unwrap();
                (ctx.get_rows(a.t, rows)?, grid(&|i, j| a.data[picks[j] as usize * N + i]))
            }
            _ => {
                let row = ctx.view_2d(a.t, [N, 1], 2 * a.t.nb()[1])?;
                (ctx.add(b.t, row)?, grid(&|i, j| b.data[j * N + i] + a.data[2 * N + i]))
            }
        };
        let t = self.made(t)?;
        let data = data.into_iter().map(clamped).collect();
        let t = self.made(ctx.clamp(t, -9.0, 9.0)?)?;
        self.values.push(Known { t, data });
        Ok(())
    }
}

/// A graph of some inputs, of `weights`, and of operations on them.
fn program<'c>(rng: &mut Rng, ctx: &'c Context, weights: &[Known<'c>]) -> ggml::Result<Program<'c>> {
    let mut this = Program { ctx, values: weights.to_vec(), inputs: Vec::new(), indices: None, made: Vec::new() };
    for i in 0..rng.usize(1..4) {
        let input = Known { t: ctx.input(&format!("x{i}"), DType::F32, [N, N])?, data: numbers(rng) };
        this.inputs.push(input.clone());
        this.values.push(input);
    }
    let picks = (0..N).map(|_| rng.i32(0..N as i32)).collect();
    this.indices = Some((ctx.input("rows", DType::I32, [N])?, picks));
    for _ in 0..rng.usize(2..12) {
        this.step(rng)?;
    }
    Ok(this)
}

/// Weights on each of the devices, with their values.
fn weights(rng: &mut Rng, devices: &[Device]) -> Vec<(Weights, Vec<f32>)> {
    devices
        .iter()
        .map(|&device| {
            let mut builder = WeightsBuilder::new();
            builder.tensor("w", DType::F32, [N, N]).unwrap();
            let mut weights = builder.place(device).unwrap();
            let values = numbers(rng);
            weights.set("w", &values).unwrap();
            (weights, values)
        })
        .collect()
}

fn known(weights: &[(Weights, Vec<f32>)]) -> Vec<Known<'_>> {
    weights.iter().map(|(w, data)| Known { t: w.tensor("w").unwrap(), data: data.clone() }).collect()
}

fn rng(test: u64) -> Rng {
    let seed = std::env::var("FAKE_GPU_SEED").map_or(1, |n| n.parse().unwrap());
    Rng::with_seed(seed * 1000 + test)
}

/// Which values to read: the last, and some others.
fn outputs<'c>(rng: &mut Rng, p: &Program<'c>) -> Vec<Known<'c>> {
    let mut all = vec![p.values.last().unwrap().clone()];
    let made: Vec<_> = p.values.iter().filter(|v| v.t.name().starts_with('t')).collect();
    if let Some(other) = made.get(rng.usize(..made.len().max(1))) {
        all.push((*other).clone());
    }
    all
}

/// Whether the graph needs a tensor.
fn has(graph: &Graph<'_>, t: Tensor<'_>) -> bool {
    graph.tensor(&t.name()).is_some()
}

fn graphs_on_one() {
    let mut rng = rng(1);
    let [(device, control)] = devices(FakeOptions::default());
    let mut backend = device.init().unwrap();
    let weights = weights(&mut rng, &[device, device]);
    let mut allocator = GraphAllocator::new(device.buffer_type());
    for i in 0..graphs() {
        control.set_delays(i % 4 == 0);
        let ctx = Context::new();
        let p = program(&mut rng, &ctx, &known(&weights)).unwrap();
        let outputs = outputs(&mut rng, &p);
        let graph = ctx.graph(outputs.iter().map(|o| o.t).collect::<Vec<_>>()).unwrap();
        let mut run = allocator.alloc(&graph, &mut backend).unwrap();
        for _ in 0..rng.usize(1..3) {
            for input in p.inputs.iter().filter(|i| has(&graph, i.t)) {
                run.set(input.t, &input.data).unwrap();
            }
            let (rows, picks) = p.indices.as_ref().unwrap();
            if has(&graph, *rows) {
                run.set(*rows, picks).unwrap();
            }
            run.compute().unwrap();
            for output in &outputs {
                assert_eq!(run.get::<f32>(output.t).unwrap(), output.data, "graph {i}");
            }
        }
        count(&GRAPHS, 1);
        drop(run);
        assert_no_races(&format!("graph {i}"));
    }
}

/// Computes random graphs on a scheduler of these devices and the CPU, with tensors pinned to the first `pinned` backends.
fn scheduled(rng: &mut Rng, gpus: &[Device], on_cpu: bool, parallel: bool, first: usize, n: usize) {
    static CPU: OnceLock<Device> = OnceLock::new();
    let cpu = *CPU.get_or_init(|| Device::cpu().unwrap());
    let mut places = gpus.to_vec();
    places.extend(on_cpu.then_some(cpu));
    let weights = weights(rng, &places);
    let backends = gpus.iter().map(|d| d.init().unwrap());
    let builder = backends.fold(Sched::builder(), ggml::SchedBuilder::backend);
    let mut last = Backend::cpu().unwrap();
    last.set_threads(1).unwrap();
    let mut sched = builder.backend(last).parallel(parallel).build().unwrap();
    for i in first..first + n {
        let ctx = Context::new();
        let p = program(rng, &ctx, &known(&weights)).unwrap();
        let outputs = outputs(rng, &p);
        let graph = ctx.graph(outputs.iter().map(|o| o.t).collect::<Vec<_>>()).unwrap();
        // What the outputs don't need isn't part of the graph.
        let part = p.made.iter().filter(|t| has(&graph, **t) && (!on_cpu || rng.bool())).copied().collect::<Vec<_>>();
        let part: Vec<_> = part.into_iter().map(|t| (t, rng.usize(..places.len()))).collect();
        let mut run = match sched.alloc_pinned(&graph, &part) {
            Ok(run) => run,
            Err(error) => panic!("graph {i}: {error}"),
        };
        for _ in 0..rng.usize(1..4) {
            for input in p.inputs.iter().filter(|i| has(&graph, i.t)) {
                run.set(input.t, &input.data).unwrap();
            }
            let (rows, picks) = p.indices.as_ref().unwrap();
            if has(&graph, *rows) {
                run.set(*rows, picks).unwrap();
            }
            match rng.u8(..4) {
                0 => run.compute_with(|_| true, |_| std::ops::ControlFlow::Continue(())).unwrap(),
                1 => run.compute_async(|| ()).unwrap(),
                _ => run.compute().unwrap(),
            }
            for output in &outputs {
                assert_eq!(run.get::<f32>(output.t).unwrap(), output.data, "graph {i}: {:?}", run.splits());
            }
        }
        drop(run);
        count(&GRAPHS, 1);
        assert_no_races(&format!("graph {i}"));
    }
}

/// Some graphs per scheduler, which plans some of them anew and reuses the memory of others.
const PER_SCHED: usize = 46;

fn graphs_on_two() {
    let mut rng = rng(2);
    let [(a, first), (b, second)] = devices(FakeOptions::default());
    for i in (0..graphs()).step_by(PER_SCHED) {
        first.set_delays(rng.bool());
        second.set_delays(rng.bool());
        scheduled(&mut rng, &[a, b], false, false, i, PER_SCHED.min(graphs() - i));
    }
    assert_eq!((first.used(), second.used()), (0, 0), "all memory is freed");
}

fn graphs_on_two_beside_the_cpu() {
    let mut rng = rng(3);
    let [(a, first), (b, second)] = devices(FakeOptions::default());
    for i in (0..graphs()).step_by(PER_SCHED) {
        first.set_delays(rng.bool());
        second.set_delays(rng.bool());
        scheduled(&mut rng, &[a, b], true, i % (2 * PER_SCHED) == 0, i, PER_SCHED.min(graphs() - i));
    }
    assert_eq!((first.used(), second.used()), (0, 0), "all memory is freed");
}
