//! Each supported operation, and random programs of them, compared with one device.

use fastrand::Rng;
use ggml::prelude::*;
use ggml::{GraphAllocator, ops::GluOp};
use testkit::bench::Bench;
use testkit::cases::case::Case;
use testkit::cases::rows;
use testkit::device::{here, limited};

use crate::support::{meta, noise};

/// Matrices that are split as their names say, and mirrored ones.
fn weights(device: Device) -> Weights {
    let mut builder = WeightsBuilder::new();
    for (i, ne) in SHAPES.iter().enumerate() {
        for how in ["", ".0", ".1", ".2"] {
            builder.tensor(&format!("{i}{how}"), DType::F32, *ne).unwrap();
        }
    }
    let names: Vec<_> =
        SHAPES.iter().enumerate().flat_map(|(i, _)| ["", ".0", ".1", ".2"].map(|h| format!("{i}{h}"))).collect();
    let mut weights = builder.place(device.buffer_type()).unwrap();
    for (seed, name) in names.iter().enumerate() {
        let n = weights.tensor(name).unwrap().elements();
        weights.set(name, &noise(n, seed as u64)).unwrap();
    }
    weights
}

const SHAPES: [[i64; 3]; 3] = [[12, 6, 4], [6, 12, 4], [12, 12, 4]];

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// Appends one more operation on existing tensors.
fn grow<'c>(ctx: &'c Context, rng: &mut Rng, all: &[Tensor<'c>], rows: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
    // Mostly on the newest tensor.
    let a = if rng.usize(..3) == 0 { pick(rng, all) } else { all[all.len() - 1 - rng.usize(..all.len().min(4))] };
    let b = pick(rng, all);
    let [n0, n1, n2, _] = a.ne();
    match rng.usize(..24) {
        0 => ctx.relu(a),
        1 => ctx.scale(a, 0.5),
        2 => ctx.clamp(a, -0.7, 0.7),
        3 => ctx.tanh(a),
        4 => ctx.add(a, b),
        5 => ctx.mul(a, b),
        6 => ctx.sub(a, b),
        7..=9 => ctx.mul_mat(a, b),
        10 => ctx.reshape(a, [n0 * n1, n2, 1]),
        11 => {
            ctx.reshape(a, pick(rng, &[[n0 / 2, 2, n1 * n2], [n0, 2, n1 * n2 / 2], [n0 / 3, 3, n1 * n2], [n0, n1, n2]]))
        }
        12 => ctx.permute(a, pick(rng, &[[1, 0, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3], [1, 2, 0, 3], [0, 1, 3, 2]])),
        13 => ctx.transpose(a),
        14 => ctx.cont(a),
        15 => ctx.soft_max(a),
        16 => ctx.rms_norm(a, 1e-3),
        17 => ctx.sum_rows(a),
        18 => ctx.glu(a, GluOp::Swiglu, false),
        19 => ctx.glu_split(a, b, GluOp::Geglu),
        20 if n1 > 2 => ctx.get_rows(a, rows),
        21 => ctx.cast(ctx.cast(a, DType::F16)?, DType::F32),
        22 => ctx.view(a, [n0, 1 + n1 / 2], [a.nb()[1], a.nb()[2], a.nb()[3]], 0),
        _ => ctx.scale_inplace(a, 0.9),
    }
}

/// Results with the names of their operations.
type Results = Vec<(String, Vec<f32>)>;

/// A random program: the same each time for the same `taken`.
struct Program {
    seed: u64,
    /// Which of its operations a meta device supports.
    taken: Option<Vec<bool>>,
}

impl Program {
    const STEPS: usize = 40;

    /// Builds the program, and a graph of part of its results. In the first run `takes` decides what is left out.
    fn write<'c>(
        &mut self,
        ctx: &'c Context,
        weights: &'c Weights,
        mut takes: impl FnMut(&Graph<'c>) -> bool,
    ) -> Option<(Graph<'c>, Vec<(String, Tensor<'c>)>)> {
        let mut rng = Rng::with_seed(self.seed);
        let rows = ctx.input("rows", DType::I32, [3]).unwrap();
        let mut all: Vec<_> = weights.iter().collect();
        let leaves = all.len();
        let mut taken = vec![false; Self::STEPS];
        for (step, took) in taken.iter_mut().enumerate() {
            let Ok(t) = grow(ctx, &mut rng, &all, rows) else { continue };
            if t.elements() > 20_000 {
                continue;
            }
            *took = match &self.taken {
                Some(taken) => taken[step],
                None => takes(&ctx.graph([readable(ctx, t)]).unwrap()),
            };
            if *took {
                all.push(t);
            }
        }
        self.taken.get_or_insert(taken);
        // Together, so that partial sums are used in several ways; not all, so that some are reduced late.
        let seen: Vec<_> = all[leaves..].iter().filter(|_| rng.usize(..3) == 0).collect();
        let results: Vec<_> = seen.into_iter().map(|&t| (t.op(), readable(ctx, t))).collect();
        let outputs: Vec<_> = results.iter().map(|&(_, y)| y).collect();
        (!outputs.is_empty()).then(|| (ctx.graph(&outputs).unwrap(), results))
    }

    /// Computes it on a device or a meta device. `None` if a meta device refuses it.
    fn allocate(&mut self, backend: &mut Backend, weights: &Weights) -> Option<Results> {
        let ctx = Context::new();
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let taken = |graph: &_| is_taken(allocator.alloc(graph, backend).map(drop));
        let (graph, results) = self.write(&ctx, weights, taken)?;
        let mut run = allocator.alloc(&graph, backend);
        if !is_taken(run.as_ref().map(drop).map_err(Clone::clone)) {
            return None;
        }
        let run = run.as_mut().unwrap();
        if let Some(rows) = graph.tensor("rows") {
            run.set(rows, &[2_i32, 0, 1]).unwrap();
        }
        run.compute().unwrap();
        Some(results.into_iter().map(|(op, y)| (op, run.get(y).unwrap())).collect())
    }

    /// Computes it with a scheduler over a meta device and a CPU.
    fn schedule(&mut self, sched: &mut Sched, weights: &Weights) -> Option<Results> {
        let ctx = Context::new();
        let (graph, results) = self.write(&ctx, weights, |_| false)?;
        let mut run = sched.alloc(&graph);
        if !is_taken(run.as_ref().map(drop).map_err(Clone::clone)) {
            return None;
        }
        let run = run.as_mut().unwrap();
        if let Some(rows) = graph.tensor("rows") {
            run.set(rows, &[2_i32, 0, 1]).unwrap();
        }
        run.compute().unwrap();
        Some(results.into_iter().map(|(op, y)| (op, run.get(y).unwrap())).collect())
    }
}

/// A result that can be read, even if it is computed from a partial sum.
fn readable<'c>(ctx: &'c Context, t: Tensor<'c>) -> Tensor<'c> {
    ctx.scale(ctx.cont(t).unwrap(), 1.0).unwrap()
}

/// Whether the allocation succeeded. Any error must come from this crate's rules.
#[track_caller]
fn is_taken(result: ggml::Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Unsupported { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn assert_same(one: &Results, several: &Results, what: &str) {
    assert_eq!(one.len(), several.len(), "{what}");
    for ((op, one), (_, several)) in one.iter().zip(several) {
        let size = one.iter().fold(1e-3_f32, |m, v| m.max(v.abs()));
        let off = one.iter().zip(several).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
        let tolerance = (testkit::device::rounding() as f32).max(1e-3);
        assert!(
            off <= size * tolerance || one.iter().any(|v| !v.is_finite()),
            "{what}: {op} is off by {off} of {size}"
        );
    }
}

/// Whatever a meta device accepts, it computes like one device; the rest is refused before ggml sees it.
#[test]
fn meta_random_programs_equal_one_device_or_are_refused() {
    let cpu = Device::cpu().unwrap();
    let on_one = weights(cpu);
    let (mut allocated, mut scheduled) = (0, 0);
    let backend = |device: Device| limited(device.init().unwrap());
    let mut one_device = backend(cpu);
    for n in [2, 3] {
        let device = meta(n);
        let on_several = weights(device);
        let mut sched = Sched::builder().backend(backend(device)).backend(Backend::cpu().unwrap()).build().unwrap();
        let mut devices = backend(device);
        for seed in 1..=100 {
            let mut program = Program { seed, taken: None };
            let Some(several) = program.allocate(&mut devices, &on_several) else { continue };
            let one = program.allocate(&mut one_device, &on_one).unwrap();
            assert_same(&one, &several, &format!("{seed} on {n}"));
            allocated += several.len();
            if let Some(several) = program.schedule(&mut sched, &on_several) {
                assert_same(&one, &several, &format!("{seed} on {n} and a CPU"));
                scheduled += several.len();
            }
        }
    }
    assert!(allocated > 1000 && scheduled > 500, "few were taken: {allocated}, {scheduled}");
}

/// What a device computes of a case whose operands are mirrored.
fn computed(device: Device, case: &Case) -> ggml::Result<Vec<u8>> {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, 1.0);
    let y = case.build(&bench, &case.layings()[0])?;
    let graph = ctx.graph([y])?;
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = limited(device.init()?);
    let mut run = allocator.alloc(&graph, &mut backend)?;
    bench.set(|t, bytes| run.set_bytes(t, bytes))?;
    run.compute()?;
    run.get_bytes(y)
}

/// Rows of the table: each device computes as a whole what is not split, and the rest is refused.
#[test]
fn meta_mirrored_operations_equal_one_device() {
    let (one, several) = (here(), meta(2));
    let gpu = testkit::device::rounding() > 0.0;
    let mut wrong = Vec::new();
    for row in rows().iter().filter(|row| !row.looks() && !row.cases.is_empty()) {
        let (mut n, mut why) = (0, Vec::new());
        // On a GPU each takes half a second.
        for case in row.cases.iter().step_by(if gpu { 8 } else { 1 }) {
            let context = format!("{} of {}", row.name, case.name());
            match computed(several, case) {
                Ok(got) => assert!(got == computed(one, case).unwrap(), "{context}"),
                Err(error @ Error::Unsupported { .. }) => {
                    why.push(error);
                    continue;
                }
                Err(error) => panic!("{context}: {error}"),
            }
            n += 1;
        }
        if (n > 0) != row.meta && !gpu {
            wrong.push(format!("{}: {n} of {} cases are computed: {why:?}", row.name, row.cases.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
