//! `Error::Nested` names the function that the user called. One line for each function that is refused inside a closure that
//! ggml calls. `every_wrapped_function_is_in_a_list` compares the lines with docs/coverage.md, which `cargo xtask coverage`
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
        let (b, d, dtype, part) = (a, a, DType::F32, SetOptions::new(0));
        let how = || CustomOptions::new();
        methods! { to, "Context", ctx;
            input("i", DType::F32, [1]); input_like("i", a); output(a); graph([a]);
            flash_attn_ext(a, b, d, FlashAttnOptions::new(1.0)); get_rel_pos(a, 1, 1); add_rel_pos(a, b, d);
            add_rel_pos_inplace(a, b, d); add_cast(a, b, dtype); add(a, b); add_inplace(a, b); sub(a, b); sub_inplace(a, b);
            mul(a, b); mul_inplace(a, b); div(a, b); div_inplace(a, b); add1(a, b); add1_inplace(a, b);
            cont(a); cont_4d(a, [4]); dup(a); dup_inplace(a); cast(a, dtype); cpy(a, b); repeat(a, b);
            repeat_4d(a, [4]); repeat_back(a, b); concat(a, b, 0);
            im2col(a, b, Conv2dOptions::new(), dtype); im2col_1d(a, b, Conv1dOptions::new(), dtype);
            im2col_3d(a, b, 1, Conv3dOptions::new(), dtype); im2col_back(a, b, [1], Conv2dOptions::new());
            im2col_1d_back(a, b, [1], Conv1dOptions::new()); col2im_1d(a, 1, 1, 0); conv_2d_direct(a, b, Conv2dOptions::new());
            conv_2d_dw_direct(a, b, Conv2dOptions::new()); conv_3d_direct(a, b, 1, Conv3dOptions::new()); conv_1d(a, b, Conv1dOptions::new());
            conv_2d(a, b, Conv2dOptions::new()); conv_3d(a, b, 1, Conv3dOptions::new()); conv_1d_dw(a, b, Conv1dOptions::new());
            conv_2d_dw(a, b, Conv2dOptions::new()); conv_transpose_1d(a, b, 1); conv_transpose_2d_p0(a, b, 1);
            map_custom1(a, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ());
            map_custom1_inplace(a, how(), |_: RowsMut<'_, f32>| ());
            map_custom2(a, b, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            map_custom2_inplace(a, b, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ());
            map_custom3(a, b, d, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            map_custom3_inplace(a, b, d, how(), |_: RowsMut<'_, f32>, _: Rows<'_, f32>, _: Rows<'_, f32>| ());
            custom(&[a], [4], how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ());
            custom_op(&CustomOp::new(how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ()), &[a], [4]);
            custom_inplace(a, &[], how(), |_: RowsMut<'_, f32>, _: Operands<'_>| ());
            mul_mat_id(a, b, d); mul_mat_id_ext(a, b, d, MulMatOptions::new()); add_id(a, b, d);
            fill(a, 1.0); fill_inplace(a, 1.0); arange(0.0, 2.0, 1.0); timestep_embedding(a, 2, 10);
            glu(a, GluOp::Reglu, false); glu_split(a, b, GluOp::Reglu); swiglu_oai(a, b, 1.0, 1.0);
            reglu(a); reglu_swapped(a); reglu_split(a, b); geglu(a); geglu_swapped(a); geglu_split(a, b);
            swiglu(a); swiglu_swapped(a); swiglu_split(a, b); geglu_erf(a); geglu_erf_swapped(a); geglu_erf_split(a, b);
            geglu_quick(a); geglu_quick_swapped(a); geglu_quick_split(a, b);
            cross_entropy_loss(a, b); cross_entropy_loss_back(a, b, d);
            diag(a); tri(a, TriType::Lower); diag_mask_inf(a, 0); diag_mask_inf_inplace(a, 0); diag_mask_zero(a, 0);
            diag_mask_zero_inplace(a, 0); mul_mat(a, b); mul_mat_ext(a, b, MulMatOptions::new()); out_prod(a, b); solve_tri(a, b);
            norm(a, 0.1); norm_inplace(a, 0.1); rms_norm(a, 0.1); rms_norm_inplace(a, 0.1); l2_norm(a, 0.1);
            l2_norm_inplace(a, 0.1); group_norm(a, 1, 0.1); group_norm_inplace(a, 1, 0.1); rms_norm_back(a, b, 0.1);
            pad(a, PadOptions::new()); pad_reflect_1d(a, 1, 1); roll(a, [1, 0, 0, 0]);
            pool_1d(a, PoolOp::Max, Pool1dOptions::new([1])); pool_2d(a, PoolOp::Max, Pool2dOptions::new([1, 1]));
            pool_2d_back(a, b, PoolOp::Max, Pool2dOptions::new([1, 1]));
            gated_delta_net(GatedDeltaNetOperands { q: a, k: a, v: a, g: a, beta: a, state: a }, 1);
            gated_linear_attn(GatedLinearAttnOperands { k: a, v: a, q: a, g: a, state: a }, 1.0);
            rwkv_wkv6(RwkvWkv6Operands { k: a, v: a, r: a, tf: a, td: a, state: a });
            rwkv_wkv7(RwkvWkv7Operands { r: a, w: a, k: a, v: a, a, b: a, state: a }); ssm_conv(a, b);
            ssm_scan(SsmScanOperands { s: a, x: a, dt: a, a, b: a, c: a, ids: a }, 1);
            sum(a); sum_rows(a); mean(a); argmax(a); cumsum(a); count_equal(a, b);
            interpolate(a, [8], InterpolateOptions::new(InterpolateMode::Nearest)); rope(a, b, 2, RopeMode::NeoX);
            rope_inplace(a, b, 2, RopeMode::NeoX); rope_ext(a, b, RopeOptions::new(2, RopeMode::NeoX));
            rope_ext_inplace(a, b, RopeOptions::new(2, RopeMode::NeoX)); rope_ext_back(a, b, RopeOptions::new(2, RopeMode::NeoX));
            get_rows(a, b); get_rows_back(a, b, d); set_rows(a, b, d); scale(a, 1.0); scale_inplace(a, 1.0);
            scale_bias(a, 1.0, 1.0); scale_bias_inplace(a, 1.0, 1.0); clamp(a, 0.0, 1.0); clamp_inplace(a, 0.0, 1.0);
            set(a, b, part); set_inplace(a, b, part); set_1d(a, b, 0); set_1d_inplace(a, b, 0); set_2d(a, b, 16, 0);
            set_2d_inplace(a, b, 16, 0); acc(a, b, part); acc_inplace(a, b, part);
            soft_max(a); soft_max_inplace(a); soft_max_ext(a, SoftMaxOptions::new()); soft_max_ext_inplace(a, SoftMaxOptions::new());
            soft_max_ext_back(a, b, 1.0); soft_max_ext_back_inplace(a, b, 1.0);
            argsort(a, SortOrder::Asc); argsort_top_k(a, 1); top_k(a, 1);
            unary(a, UnaryOp::Abs); unary_inplace(a, UnaryOp::Abs); xielu(a, 1.0, 1.0, 1.0, 1.0); silu_back(a, b);
            leaky_relu(a, 0.1); leaky_relu_inplace(a, 0.1);
            reshape(a, [4]); view(a, [4], [16; 3], 0); view_1d(a, 4, 0); view_2d(a, [2, 2], 0); view_3d(a, [2, 2, 1], 0);
            permute(a, [0, 1, 2, 3]); transpose(a); win_part(a, 1); win_unpart(a, 1, 1);
            abs(a); ceil(a); cos(a); elu(a); exp(a); expm1(a); floor(a); gelu(a); gelu_erf(a); gelu_quick(a);
            hardsigmoid(a); hardswish(a); log(a); neg(a); relu(a); round(a); sgn(a); sigmoid(a); silu(a); sin(a);
            softplus(a); sqr(a); sqrt(a); step(a); tanh(a); trunc(a);
            abs_inplace(a); relu_inplace(a); sqr_inplace(a);
        }
        #[cfg(ggml_0_28)]
        methods! { to, "Context", ctx;
            lightning_indexer(a, b, d, a); swiglu_clamp(a, b, 1.0); dsv4_hc_comb(a, b, d, 0.1, 1); dsv4_hc_pre(a, b);
            dsv4_hc_pre_gated(a, b, 1.0); dsv4_hc_post(a, b, d, None); top_k_mask(a, b, TopKMaskOptions::new());
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
