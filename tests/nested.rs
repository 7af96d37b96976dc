//! `Error::Nested` names the function that the user called. The builders are those of the table of operations; each other
//! function that is refused inside a closure that ggml calls has a line. `every_wrapped_function_is_in_a_list` compares the lines with docs/coverage.md, which `cargo xtask coverage`
//! writes; so it misses a function that is not there yet.

#![cfg(test)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::ops::*;
use ggml::opt::{Dataset, Fit, LossType, OptContext, OptGraphs, OptParams, OptRun};
use ggml::prelude::*;
use ggml::run::*;
use ggml::*;
use testkit::cases::rows;

type Refusals = Vec<(&'static str, Option<Error>)>;

/// Calls methods of a type, one after the other.
macro_rules! methods {
    ($to:ident, $type:literal, $on:expr; $($name:ident $(::<$generic:ty>)? ($($arg:expr),*);)*) => {
        $($to.push((concat!($type, "::", stringify!($name)), $on.$name$(::<$generic>)?($($arg),*).map(drop).err()));)*
    };
}

/// Calls functions of a type, one after the other.
macro_rules! functions {
    ($to:ident, $type:ident; $($name:ident($($arg:expr),*);)*) => {
        $($to.push((concat!(stringify!($type), "::", stringify!($name)), $type::$name($($arg),*).map(drop).err()));)*
    };
}

/// The name of a builder, as errors have it.
fn called(name: &str) -> &'static str {
    leak(format!("Context::{name}"))
}

/// What calls need. It lives as long as the process.
struct Fixture {
    ctx: &'static Context,
    sched: &'static mut Sched,
    other: &'static mut Sched,
    run: &'static mut Run<'static, 'static>,
    planned: GraphPlan<'static, 'static, 'static>,
    allocator: GraphAllocator,
    backend: Backend,
    state: &'static State,
    weights: &'static mut Weights,
    graph: &'static Graph<'static>,
    x: Tensor<'static>,
    y: Tensor<'static>,
    opt: &'static mut OptContext<'static>,
    opt_graphs: &'static OptGraphs<'static>,
    opt_run: OptRun<'static, 'static, 'static>,
    data: Dataset<f32>,
}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

fn cpu_sched() -> &'static mut Sched {
    leak(Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap())
}

impl Fixture {
    fn new() -> Self {
        let cpu = Device::cpu().unwrap();
        let ctx: &'static Context = leak(Context::new());
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let y = ctx.neg(x).unwrap();
        let graph: &'static Graph<'static> = leak(ctx.graph([y]).unwrap());
        let builder = || {
            let mut builder = WeightsBuilder::new();
            builder.tensor("s", DType::F32, [1]).unwrap();
            builder
        };
        let state: &'static State = leak(builder().place_state(cpu).unwrap());
        let weights = leak(builder().place(cpu).unwrap());
        let run = leak(cpu_sched().alloc(graph).unwrap());
        run.set(x, &[1.0_f32; 4]).unwrap();
        let allocator = leak(GraphAllocator::new(cpu.buffer_type()));
        let to_plan = leak(allocator.alloc(graph, leak(Backend::cpu().unwrap())).unwrap());
        to_plan.set(x, &[1.0_f32; 4]).unwrap();
        let parameter = state.tensor("s").unwrap();
        let of = || leak(OptContext::new([parameter], OptParams::new(LossType::Sum)).unwrap());
        let points = ctx.input("points", DType::F32, [1, 2]).unwrap();
        let outputs = ctx.mul(points, parameter).unwrap();
        let opt = of();
        let opt_graphs: &'static OptGraphs<'static> = leak(opt.graphs(ctx, points, outputs).unwrap());
        let running = of();
        let running_graphs = leak(running.graphs(ctx, points, outputs).unwrap());
        let opt_run = running.alloc(cpu_sched(), running_graphs, false).unwrap();
        Self {
            ctx,
            sched: cpu_sched(),
            other: cpu_sched(),
            run,
            planned: to_plan.plan().unwrap(),
            allocator: GraphAllocator::new(cpu.buffer_type()),
            backend: Backend::cpu().unwrap(),
            state,
            weights,
            graph,
            x,
            y,
            opt,
            opt_graphs,
            opt_run,
            data: Dataset::new(1, [1.0_f32; 4]).unwrap(),
        }
    }

    fn builders(&self, to: &mut Refusals) {
        let (ctx, a) = (self.ctx, self.x);
        let (b, d) = (a, a);
        let how = || CustomOptions::new();
        methods! { to, "Context", ctx;
            input("i", DType::F32, [1]); input_like("i", a); output(a); graph([a]);
            map_custom1(a, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ());
            map_custom1_inplace(a, how(), |_: RowsMut<'_, f32>| ());
            map_custom2(a, b, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            map_custom2_inplace(a, b, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ());
            map_custom3(a, b, d, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            map_custom3_inplace(a, b, d, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            custom(&[a], [4], how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ());
            custom_op(&CustomOp::new(how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ()), &[a], [4]);
            custom_inplace(a, &[], how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ());
        }
        for row in rows() {
            to.push((called(row.name), row.call_with(ctx, &[a; 8]).err()));
            if let Some((name, build)) = &row.in_place {
                to.push((called(name), build(ctx, &[a; 8]).err()));
            }
        }
    }

    fn devices(&mut self, to: &mut Refusals) {
        let (cpu, data) = (self.backend.device(), [0.0_f32; 4]);
        functions! { to, Device; all(); by_name("CPU"); by_type(DeviceType::Cpu); best(); cpu(); }
        methods! { to, "Device", cpu;
            init(); init_with(""); memory(); capabilities(); supports_op(self.y); offloads(self.y); extra_buffer_types();
        }
        let registry = cpu.registry().unwrap();
        functions! { to, Registry; all(); by_name("CPU"); load_all(); }
        methods! { to, "Registry", registry; devices(); features(); pin(vec![0_u8]); }
        functions! { to, Backend;
            best(); cpu(); from_spec("CPU");
        }
        methods! { to, "Backend", self.backend;
            set_threads(1); synchronize(); set_abort(|| false); set_deadline(None); clear_abort(); set_use_ref(false);
            pause_threads(); transfers(|_| Ok(()));
        }
        to.push(("Event::new", Event::new(cpu).err()));
        to.push(("MetaDevice::new", MetaDevice::new(&[cpu, cpu], |_| SplitMode::Mirrored).err()));
        let buft = cpu.buffer_type();
        methods! { to, "BufferType", buft; alignment(); max_size(); is_extra(); }
        methods! { to, "Quantize", DType::Q8_0;
            quantize(&[0.0; 32], 32, None); dequantize(&[0; 34]); validate_row_data(&[0; 34]);
        }
        to.push(("cpu::numa_init", cpu::numa_init(cpu::Numa::Distribute).err()));
        to.push(("cpu::is_numa", cpu::is_numa().map(drop).err()));
        to.push(("cpu::features", cpu::features().map(drop).err()));
        let builder = WeightsBuilder::new;
        let mut none = builder();
        methods! { to, "WeightsBuilder", none; tensor("t", DType::F32, [1]); size(cpu); }
        methods! { to, "WeightsBuilder", builder();
            place(cpu); place_state(cpu); place_over(cpu, data.map(|_| 0_u8), |_| 0);
        }
    }

    fn values(&mut self, to: &mut Refusals) {
        let (s, mut one, piece) =
            (self.state.tensor("s").unwrap(), [0.0_f32], Pieces { offset: 0, len: 1, count: 1, step: 1, data_step: 1 });
        methods! { to, "Tensor", s; read::<f32>(); named("other"); }
        methods! { to, "State", self.state;
            set("s", &one); set_bytes("s", &[0; 4]); set_2d("s", piece, &one); fill_bytes("s", 0); copy("s", s);
            read_bytes("s"); read_2d("s", piece, &mut one); element::<f32>("s", [0; 4]); set_element("s", [0; 4], 1.0_f32);
            fill_with("s", 1.0_f32); clear_bytes(0);
        }
        methods! { to, "Weights", self.weights;
            set("s", &one); set_bytes("s", &[0; 4]); set_2d("s", piece, &one); fill_bytes("s", 0); copy("s", s);
            read_bytes("s"); read_2d("s", piece, &mut one); element::<f32>("s", [0; 4]); set_element("s", [0; 4], 1.0_f32);
            fill_with("s", 1.0_f32);
        }
    }

    fn graphs(&mut self, to: &mut Refusals) {
        let (graph, x, y, mut four) = (self.graph, self.x, self.y, [0.0_f32; 4]);
        methods! { to, "Graph", graph; print(); }
        functions! { to, Sched; best(); }
        to.push(("SchedBuilder::build", Sched::builder().build().map(drop).err()));
        methods! { to, "Sched", self.sched;
            alloc(graph); run(graph, ()); alloc_pinned(graph, &[(y, 0)]); reserve(graph); reserve_pinned(graph, &[(y, 0)]);
            reserve_size(graph);
        }
        methods! { to, "GraphAllocator", self.allocator; alloc(graph, &mut self.backend); run(graph, &mut self.backend, ()); sizes(graph); reserve(graph); }
        methods! { to, "Run", self.run;
            set(x, &four); set_at(x, 0, &four); set_bytes(x, &[0; 16]); get::<f32>(x); get_into(x, &mut four); get_bytes(x);
            compute(); compute_async(|| ()); compute_with(|_| false, |_| ControlFlow::Continue(()));
            compare(&mut self.backend, Compare::new()); plan(); profile(); buffer_sizes();
        }
        methods! { to, "GraphPlan", self.planned; set(x, &four); get::<f32>(x); compute(); }
        let (opt, sched, graphs, data) = (&mut *self.opt, &mut *self.other, self.opt_graphs, &mut self.data);
        to.push((
            "OptContext::new",
            OptContext::new([self.state.tensor("s").unwrap()], OptParams::new(LossType::Sum)).err(),
        ));
        methods! { to, "OptContext", opt;
            graphs(self.ctx, x, y); alloc(sched, graphs, true); reset(true); epoch(sched, graphs, data, 2, |_| ());
            evaluate(sched, graphs, data, 0..4, |_| ()); fit(sched, graphs, data, Fit::new(1), |_| ());
        }
        methods! { to, "OptRun", self.opt_run;
            set(x, &four); set_batch(data, 0); eval(None); get::<f32>(x); get_into(x, &mut four);
        }
    }

    fn files(to: &mut Refusals) {
        let reader = || gguf::Reader::from_bytes(gguf::Writer::new().to_bytes().unwrap()).unwrap();
        let none = |_: &LeafInfo| None;
        methods! { to, "Load", reader(); load(none); }
        methods! { to, "Load", reader(); map(|_: &LeafInfo| -> BufferType { unreachable!() }); }
        let mut stream = gguf::Reader::from_stream(std::io::Cursor::new(reader().source().clone())).unwrap();
        methods! { to, "Load", stream; stream(none, |_, _| ()); }
    }

    fn all(&mut self) -> Refusals {
        let mut to = Vec::new();
        self.builders(&mut to);
        self.devices(&mut to);
        self.values(&mut to);
        self.graphs(&mut to);
        Self::files(&mut to);
        #[cfg(feature = "rpc")]
        {
            to.push(("rpc::connect", rpc::connect("localhost:1").err()));
            to.push(("rpc::connect_with", rpc::connect_with("localhost:1", &rpc::Options::new()).err()));
            to.push(("rpc::ServerBuilder::start", rpc::Server::builder().start().err()));
        }
        to
    }
}

thread_local! {
    static FIXTURE: RefCell<Option<Fixture>> = const { RefCell::new(None) };
    static REFUSALS: RefCell<Refusals> = const { RefCell::new(Vec::new()) };
}

/// What all functions say inside the closure of a custom operation.
fn refusals() -> Refusals {
    FIXTURE.set(Some(Fixture::new()));
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1]).unwrap();
    // One task runs on the thread that computes, which has the variables.
    let how = CustomOptions::new().with_n_tasks(1);
    let y = ctx.map_custom1(x, how, |_: RowsMut<'_, f32>, _: Rows<'_, f32>| {
        REFUSALS.set(FIXTURE.with_borrow_mut(|fixture| fixture.as_mut().unwrap().all()));
    });
    let graph = ctx.graph([y.unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32]).unwrap();
    run.compute().unwrap();
    REFUSALS.take()
}

#[test]
fn nested_names_the_function_that_was_called() {
    let refusals = refusals();
    assert!(refusals.len() > 250, "{}", refusals.len());
    let wrong: Vec<_> = refusals
        .iter()
        .filter(|(name, error)| !matches!(error, Some(Error::Nested { call }) if call == name))
        .map(|(name, error)| format!("{name}: {error:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Types whose methods read what Rust or a header has, so no closure is refused them. `Tensor::read` and `named` are in the list.
const READ_ONLY: &[&str] = &[
    "Array",
    "ConvOptions",
    "DType",
    "Dataset",
    "Error",
    "Features",
    "OptGraphs",
    "OptResult",
    "Optimizer",
    "Reader",
    "RopeOptions",
    "Shape",
    "Tensor",
    "TensorInfo",
    "Threads",
    "ToDot",
    "Value",
    "Writer",
];

/// Methods of other types that closures may call, too.
const ALLOWED: &[&str] = &[
    "Backend::device",
    "Backend::name",
    "Backend::threads",
    "Buffer::buffer_type",
    "Buffer::is_host",
    "Buffer::name",
    "Buffer::size",
    "Buffer::usage",
    "BufferType::device",
    "BufferType::is_host",
    "BufferType::name",
    "Context::mem_size",
    "Context::reset",
    "Context::used_mem",
    "Device::buffer_type",
    "Device::description",
    "Device::device_type",
    "Device::host_buffer_type",
    "Device::name",
    "Device::registry",
    "Device::supports_buffer_type",
    "Graph::n_nodes",
    "Graph::nodes",
    "Graph::tensor",
    "GraphAllocator::with_buffers",
    "OptContext::grad_acc",
    "OptContext::optimizer",
    "OptContext::set_optimizer",
    "Quantize::requires_imatrix",
    "Registry::find_function",
    "Registry::name",
    "Run::backend_of",
    "Run::n_copies",
    "Run::n_splits",
    "Run::splits",
    "Sched::backends",
    "Sched::buffer_types",
    "Sched::plans",
    "GraphAllocator::new",
    "GraphAllocator::buffer_sizes",
    "State::iter",
    "State::tensor",
    "Weights::iter",
    "Weights::tensor",
    "Connection::devices",
];

/// Methods that are refused, but that need what this test lacks: a device with events, transfers under way, Metal, or a library to load.
const UNTRIED: &[&str] = &[
    "Backend::capture_next_compute",
    "Backend::supports_family",
    "Backend::wait",
    "Event::record",
    "Event::synchronize",
    "Registry::load",
    "Registry::load_all_from",
    "Registry::register",
    "Registry::unload",
    "Transfers::copy",
    "Transfers::get",
    "Transfers::get_2d",
    "Transfers::set",
    "Transfers::set_2d",
    // Not public.
    "Buffer::clear",
    "BufferType::alloc_size",
];

/// Fails when a function is new: add it to one of the lists.
#[test]
fn every_wrapped_function_is_in_a_list() {
    let refused: BTreeSet<_> = refusals().into_iter().map(|(name, _)| name).collect();
    let rows = include_str!("../docs/coverage.md").lines().filter_map(|row| row.split('|').nth(2));
    let paths = rows.filter(|row| !row.trim_start().starts_with('*')).flat_map(|row| row.split('`').skip(1).step_by(2));
    let mut n = 0;
    for path in paths.filter(|path| path.starts_with(char::is_uppercase)) {
        let Some((of, _)) = path.split_once("::") else { continue };
        n += 1;
        let known =
            refused.contains(path) || READ_ONLY.contains(&of) || ALLOWED.contains(&path) || UNTRIED.contains(&path);
        assert!(known || newer(path), "{path} is in no list");
    }
    assert!(n > 300, "{n}");
}

/// Whether only newer versions of ggml have the function; docs/coverage.md is about the default one.
fn newer(path: &str) -> bool {
    const NEWER: &[&str] = &[
        "Context::lightning_indexer",
        "Context::swiglu_clamp",
        "Context::dsv4_hc_comb",
        "Context::dsv4_hc_pre",
        "Context::dsv4_hc_pre_gated",
        "Context::dsv4_hc_post",
        "Context::top_k_mask",
    ];
    !cfg!(ggml_0_28) && NEWER.contains(&path)
}
