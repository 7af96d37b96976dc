//! One random program: contexts, weights and states, steps from the table, and computations of what they made.

use ggml::prelude::*;
use ggml::{BufferType, GraphAllocator, Result, Threads};

use crate::bench::{Bench, Known, LARGEST, Made, Memory};
use crate::draw::Draw;
use crate::execute;
use crate::hostile::{self, Together};
use crate::learn;
use crate::leaves::Leaves;
use crate::misuse;
use crate::ops::{Op, all};
use crate::remote::Remote;
use crate::stats::Stats;

/// What programs share: contexts, schedulers and allocators are used again and again.
pub(crate) struct World {
    pub(crate) scheds: Vec<Sched>,
    pub(crate) allocators: Vec<GraphAllocator>,
    pub(crate) backend: Backend,
    contexts: Vec<Context>,
    /// Says which operations have kernels.
    probe: Sched,
    table: Vec<&'static Op>,
    /// How many of the table's first are looks at memory.
    looks: usize,
    pub(crate) stats: Stats,
    pub(crate) trace: bool,
    /// Another device, for some programs; it is started with the first.
    remote: Option<Remote>,
    /// Two devices that work as one, for some programs.
    pub(crate) together: Option<Together>,
    /// The memory of the other device, while a program has one.
    pub(crate) far: Option<BufferType>,
    /// Whether allocations may be leaked.
    pub(crate) leak: bool,
    /// Whether the process is the programs' alone, so that they may change its limits.
    pub(crate) alone: bool,
    /// The one kind of attack that there is to be, if not all.
    pub(crate) only: Option<String>,
}

/// How a repetition of a program differs from it.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    /// How many elements further on views of leaves begin.
    wander: usize,
    /// The step from which on it is another program.
    twist: Option<usize>,
    /// The seed by which operands are exchanged for others like them.
    swap: Option<u64>,
}

fn backend(threads: usize) -> Backend {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(threads).with_all(true)).unwrap();
    backend
}

/// A backend on the CPU with a thread.
pub(crate) fn one() -> Backend {
    backend(1)
}

/// A new scheduler over the CPU.
pub(crate) fn spare() -> Sched {
    Sched::builder().backend(one()).build().unwrap()
}

/// A new scheduler over devices like those of another.
pub(crate) fn another(like: &Sched) -> Sched {
    let mut builder = Sched::builder().op_offload(false);
    for backend in like.backends() {
        let mut new = backend.device().init().unwrap();
        if new.device() == Device::cpu().unwrap() {
            new.set_threads(Threads::new(backend.threads()).with_all(true)).unwrap();
        }
        builder = builder.backend(new);
    }
    builder.build().unwrap()
}

/// Whether a program uses another device: one in so many, or all of them if one was chosen.
fn goes_far(rng: &mut fastrand::Rng, one_in: u32) -> bool {
    let chosen = testkit::device::is_chosen();
    rng.u32(..if chosen { 1 } else { one_in }) == 0 && (chosen || cfg!(feature = "rpc"))
}

impl World {
    pub(crate) fn new() -> Self {
        hostile::install();
        let memory = Device::cpu().unwrap().buffer_type();
        let table = all();
        let sched = |threads: &[usize]| {
            let builder = threads.iter().fold(Sched::builder(), |b, &n| b.backend(backend(n)));
            builder.build().unwrap()
        };
        Self {
            // The last one is the one with threads.
            scheds: vec![sched(&[1]), sched(&[1]), sched(&[1, 1]), sched(&[1, 1]), sched(&[2])],
            allocators: vec![GraphAllocator::new(memory), GraphAllocator::new(memory)],
            backend: backend(1),
            contexts: vec![Context::new(), Context::new()],
            probe: sched(&[1]),
            stats: Stats::new(table.len()),
            looks: crate::ops::FAMILIES[0].len(),
            table,
            remote: None,
            together: None,
            far: None,
            trace: false,
            leak: true,
            alone: false,
            only: std::env::var("ABUSE_ONLY").ok(),
        }
    }

    /// Runs the program of this seed.
    pub(crate) fn run(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        if self.only.is_some() || rng.u32(..8) == 0 {
            return self.hostile(rng);
        }
        if !goes_far(&mut rng, 64) {
            return self.on_devices(rng);
        }
        let mut remote = self.remote.take().unwrap_or_else(Remote::start);
        for _ in 0..2 {
            std::mem::swap(&mut self.scheds, &mut remote.scheds);
            std::mem::swap(&mut self.probe, &mut remote.probe);
            if self.far.take().is_none() {
                self.far = Some(remote.memory);
                self.on_devices(rng.fork());
            }
        }
        self.remote = Some(remote);
    }

    fn hostile(&mut self, mut rng: fastrand::Rng) {
        if !goes_far(&mut rng, 32) {
            return hostile::program(self, &mut rng);
        }
        let mut remote = self.remote.take().unwrap_or_else(Remote::start);
        std::mem::swap(&mut self.scheds, &mut remote.scheds);
        std::mem::swap(&mut self.probe, &mut remote.probe);
        self.far = Some(remote.memory);
        hostile::program(self, &mut rng);
        self.far = None;
        std::mem::swap(&mut self.scheds, &mut remote.scheds);
        std::mem::swap(&mut self.probe, &mut remote.probe);
        self.remote = Some(remote);
    }

    fn on_devices(&mut self, mut rng: fastrand::Rng) {
        let mut outer = self.contexts.pop().unwrap_or_default();
        if rng.bool() {
            outer.reset();
        }
        let mut dims = [(); 4].map(|()| rng.i64(1..7));
        dims[0] = [2, 4, 6, 8, 10, 12, 16, 24, 32, 64][rng.usize(..10)];
        let leaves = Leaves::place(&mut self.stats, &mut rng, dims, self.far);
        let begin = rng.clone();
        self.in_context(&mut rng, &outer, &leaves, dims, Change::default());
        for turn in 1..=if rng.u32(..6) == 0 { rng.usize(1..4) } else { 0 } {
            // The same once more, or nearly: plans fit again, or all but fit, and tensors lie where others of their kind lay.
            outer.reset();
            let change = Change {
                wander: if rng.bool() { turn } else { 0 },
                twist: if rng.u32(..3) == 0 { Some(rng.usize(..12)) } else { None },
                swap: if rng.bool() { Some(rng.u64(..)) } else { None },
            };
            if self.trace {
                crate::say(format_args!("  again, with {change:?}"));
            }
            self.in_context(&mut begin.clone(), &outer, &leaves, dims, change);
        }
        // A context that is not reset grows.
        if rng.u32(..8) > 0 {
            self.contexts.push(outer);
        }
        self.stats.programs += 1;
    }

    fn in_context<'c>(
        &mut self,
        rng: &mut fastrand::Rng,
        outer: &'c Context,
        leaves: &'c Leaves,
        dims: [i64; 4],
        change: Change,
    ) {
        let mut bench =
            Bench { wander: change.wander, swap: change.swap.map(fastrand::Rng::with_seed), ..Bench::default() };
        leaves.list(&mut bench);
        self.inputs(rng, &mut bench, dims, outer);
        for i in 0..rng.usize(1..14) {
            if change.twist == Some(i) {
                *rng = rng.fork();
            }
            self.step(rng, &mut bench, dims, outer);
        }
        if rng.u32(..4) == 0 {
            // Another context, which goes before this one does; nodes in this one then point to what is no more.
            let mut inner = self.contexts.pop().unwrap_or_default();
            if rng.bool() {
                inner.reset();
            }
            let mut nested = bench.clone();
            for _ in 0..rng.usize(1..8) {
                let ctx = if rng.bool() { &inner } else { outer };
                self.step(rng, &mut nested, dims, ctx);
            }
            execute::graphs(self, rng, &nested, &inner, leaves);
            if rng.bool() {
                self.contexts.push(inner);
            }
            for _ in 0..rng.usize(..4) {
                self.step(rng, &mut bench, dims, outer);
            }
        }
        execute::graphs(self, rng, &bench, outer, leaves);
        if rng.u32(..8) == 0 {
            learn::parameters(self, rng, &bench, outer, leaves);
        }
        if rng.u32(..32) == 0 {
            misuse::convert(&mut self.stats, rng);
        }
    }

    /// What a program begins with: shapes that fit each other here and there, of all sorts of types.
    pub(crate) fn inputs<'c>(
        &mut self,
        rng: &mut fastrand::Rng,
        bench: &mut Bench<'c>,
        dims: [i64; 4],
        ctx: &'c Context,
    ) {
        for i in 0..rng.usize(3..7) {
            let types =
                [DType::F32, DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::I32];
            let dtype = match rng.u32(..12) {
                _ if i == 0 => DType::F32,
                0 => Some(DType::ALL[rng.usize(..DType::ALL.len())]).filter(|t| t.is_known()).unwrap_or(DType::F32),
                _ => types[rng.usize(..types.len())],
            };
            let pick = |rng: &mut fastrand::Rng| if rng.u32(..3) == 0 { 1 } else { dims[rng.usize(..4)] };
            let block = dtype.block_size();
            let n0 = if block > 1 { block * rng.i64(1..3) } else { dims[rng.usize(..4)] };
            let (n1, n2) = (dims[if i == 0 { 1 } else { rng.usize(..4) }], if i == 0 { 1 } else { pick(rng) });
            let n3 = if rng.u32(..4) == 0 { rng.i64(1..4) } else { 1 };
            let mut draw = Draw { ctx, rng, bench, dims, trace: self.trace, used: 0, undefined: false };
            draw.fresh(dtype, [n0, n1, n2, n3]).unwrap();
        }
    }

    /// One step: an operation from the table, accepted or refused.
    pub(crate) fn step<'c>(
        &mut self,
        rng: &mut fastrand::Rng,
        bench: &mut Bench<'c>,
        dims: [i64; 4],
        ctx: &'c Context,
    ) {
        if bench.is_full() {
            return;
        }
        let i = if rng.u32(..5) == 0 { rng.usize(..self.looks) } else { rng.usize(..self.table.len()) };
        self.step_of(i, rng, bench, dims, ctx);
    }

    /// A step by one of the operations of these names.
    pub(crate) fn one_of<'c>(&mut self, rng: &mut fastrand::Rng, bench: &mut Bench<'c>, ctx: &'c Context, of: &[&str]) {
        let name = of[rng.usize(..of.len())];
        let i = self.table.iter().position(|op| op.name == name).unwrap();
        if !bench.is_full() {
            self.step_of(i, rng, bench, [4, 2, 3, 1], ctx);
        }
    }

    fn step_of<'c>(
        &mut self,
        i: usize,
        rng: &mut fastrand::Rng,
        bench: &mut Bench<'c>,
        dims: [i64; 4],
        ctx: &'c Context,
    ) {
        let op = self.table[i];
        if self.trace {
            crate::say(format_args!("  {}", op.name));
        }
        self.stats.ops[i].calls += 1;
        let mut draw = Draw { ctx, rng, bench, dims, trace: self.trace, used: 0, undefined: false };
        let result = op.run(&mut draw);
        let (used, undefined) = (draw.used, draw.undefined);
        match result {
            Ok(mut made) => {
                made.model = made.model.filter(|_| !undefined);
                self.stats.ops[i].accepted += 1;
                self.admit(rng, bench, ctx, i, &made, used);
            }
            Err(e) => {
                if self.trace {
                    crate::say(format_args!("    refused: {e}"));
                }
                self.stats.refuse(&e);
            }
        }
    }

    /// Takes what a step made among the program's tensors, if it can be computed.
    fn admit<'c>(
        &mut self,
        rng: &mut fastrand::Rng,
        bench: &mut Bench<'c>,
        ctx: &'c Context,
        op: usize,
        made: &Made<'c>,
        used: u128,
    ) {
        let t = made.t;
        if let Some(m) = &made.model {
            assert_eq!((m.ne.map(|n| n as i64), m.dtype), (t.ne(), t.dtype()), "shape or type of {t:?}");
        }
        if self.trace {
            let name = format!("t{}", bench.known.len());
            // Leaves have names, and keep them.
            let _named = t.named(&name);
            crate::say(format_args!("    makes {t:?} with strides {:?} as {}", t.nb(), t.op()));
        }
        let copy = match self.copied(rng, ctx, t) {
            Ok(copy) => copy,
            Err(e) => {
                if self.trace {
                    crate::say(format_args!("    no kernel: {e}"));
                }
                self.stats.ops[op].no_kernel += 1;
                self.stats.refuse(&e);
                None
            }
        };
        let Some(copy) = copy else {
            // Operands of what is built but not computed.
            let root = bench.next_root();
            bench.odd.push(Known { t, model: None, root, deps: used | root, copy: None, op });
            return;
        };
        let (root, deps) = match made.memory {
            Memory::New => {
                let root = bench.next_root();
                (root, used | root)
            }
            Memory::View(root) => (root, used),
            Memory::Written(root) => {
                // What depends on this memory was computed before or after: nobody knows.
                bench.known.iter_mut().filter(|k| k.deps & root != 0).for_each(|k| k.model = None);
                (root, used | root)
            }
        };
        bench.known.push(Known { t, model: made.model.clone(), root, deps, copy: Some(copy), op });
    }

    /// A copy of `t`, if that and all it depends on can be computed and is no larger than what is.
    fn copied<'c>(&mut self, rng: &mut fastrand::Rng, ctx: &'c Context, t: Tensor<'c>) -> Result<Option<Tensor<'c>>> {
        if t.elements() > LARGEST && rng.u32(..16) > 0 {
            return Ok(None);
        }
        let copy = ctx.cont(t)?;
        let graph = ctx.graph([copy])?;
        let small = |t: Tensor<'_>| t.elements() <= LARGEST && t.nbytes() <= 16 * LARGEST;
        if graph.nodes().all(|n| small(n) && graph.sources(n).all(small)) {
            return self.probe.reserve(&graph).map(|()| Some(copy));
        }
        // Memory may be too little, or the size no size; what could be had goes at once.
        if graph.nodes().map(Tensor::nbytes).max() > Some(1 << 36) {
            let _refused = GraphAllocator::new(self.backend.device().buffer_type())
                .reserve(&graph)
                .inspect_err(|e| self.stats.refuse(e));
        }
        Ok(None)
    }
}
