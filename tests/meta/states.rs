//! States on meta devices: rows are written and read by each member's part, and the views belong to one graph at a time.

use ggml::prelude::*;
use ggml::{GraphAllocator, ops::FlashAttnOptions};

use crate::support::{assert_close, assert_refused, by_name, noise, wide};

const HEAD: i64 = 64;
const CELLS: i64 = 24;
/// The numbers of a row, where shapes are spelt out.
const ROW: i64 = 64;

/// Meta devices of `n` members: of a server's device, and of those to test. ggml 0.26 has no states on CPUs.
fn devices(n: usize) -> Vec<Device> {
    let of = |members: &[Device]| ggml::meta::MetaDevice::new(members, by_name).unwrap().device();
    let mut devices = Vec::new();
    #[cfg(feature = "rpc")]
    devices.push(of(&vec![testkit::device::served(); n]));
    if cfg!(ggml_0_28) || testkit::device::is_chosen() {
        devices.push(of(&testkit::device::members(n)));
    }
    devices
}

/// States with these names and shapes.
fn states(device: Device, tensors: &[(&str, DType, [i64; 2])]) -> State {
    let mut builder = WeightsBuilder::new();
    for &(name, dtype, ne) in tensors {
        builder.tensor(name, dtype, ne).unwrap();
    }
    builder.place_state(device.buffer_type()).unwrap()
}

fn cache(device: Device, kv_heads: i64, dtype: DType) -> State {
    let ne = [HEAD * kv_heads, CELLS];
    states(device, &[("k.0", dtype, ne), ("v.0", dtype, ne), ("whole", dtype, ne)])
}

/// A step of attention: `x` has queries, keys and values of some tokens, `[HEAD * heads, tokens]` each.
struct Step<'c> {
    inputs: [Tensor<'c>; 3],
    cells: Tensor<'c>,
    mask: Tensor<'c>,
    y: Tensor<'c>,
    n: i64,
}

impl<'c> Step<'c> {
    /// Keys and values, which are split if `w` is, go to their cells; queries see the first `used` cells.
    fn new(ctx: &'c Context, state: &'c State, w: &'c Weights, heads: [i64; 2], n: i64, used: i64) -> Self {
        let [q_heads, kv_heads] = heads;
        let input = |name, heads: i64| ctx.input(name, DType::F32, [HEAD * heads, n]).unwrap();
        let inputs = [input("q", q_heads), input("k", kv_heads), input("v", kv_heads)];
        let cells = ctx.input("cells", DType::I32, [n]).unwrap();
        let mask = ctx.input("mask", DType::F16, [used, n]).unwrap();
        let [q, k, v] = inputs;
        // Products with weights that are split by rows divide the inputs by heads.
        let q = ctx.mul_mat(w.tensor("q.1").unwrap(), q).unwrap();
        let [k, v] = [k, v].map(|t| ctx.mul_mat(w.tensor("kv.1").unwrap(), t).unwrap());
        let written = |name, t| ctx.set_rows(state.tensor(name).unwrap(), t, cells).unwrap();
        let read = |t: Tensor<'c>| {
            let heads = ctx.view(t, [HEAD, kv_heads, used], [t.nb()[1] / kv_heads as usize, t.nb()[1], t.nb()[2]], 0);
            ctx.permute(heads.unwrap(), [0, 2, 1, 3]).unwrap()
        };
        let [k, v] = [read(written("k.0", k)), read(written("v.0", v))];
        let q = ctx.permute(ctx.reshape(q, [HEAD, q_heads, n]).unwrap(), [0, 2, 1, 3]).unwrap();
        // Several keys have a share: if one had all, devices that round queries differently would choose different ones.
        let how = FlashAttnOptions::new(0.02).with_mask(Some(mask));
        let y = ctx.scale(ctx.flash_attn_ext(q, k, v, how).unwrap(), 2.0).unwrap();
        Self { inputs, cells, mask, y, n }
    }

    fn compute(&self, run: &mut Run<'_, '_>, first: i64) -> ggml::Result<Vec<f32>> {
        for (i, t) in self.inputs.into_iter().enumerate() {
            run.set(t, &noise(t.elements(), 100 * first as u64 + i as u64))?;
        }
        run.set(self.cells, &(first..first + self.n).map(|i| i as i32).collect::<Vec<_>>())?;
        let used = self.mask.ne()[0];
        let sees = |token: i64, cell: i64| if cell <= first + token { 0.0 } else { f32::NEG_INFINITY };
        let mask: Vec<_> = (0..self.n).flat_map(|t| (0..used).map(move |c| half::f16::from_f32(sees(t, c)))).collect();
        run.set(self.mask, &mask)?;
        run.compute()?;
        run.get::<f32>(self.y)
    }
}

/// Random matrices: of queries, and of keys and values.
fn projections(device: Device, [q_heads, kv_heads]: [i64; 2]) -> Weights {
    let mut builder = WeightsBuilder::new();
    for (name, heads) in [("q.1", q_heads), ("kv.1", kv_heads)] {
        builder.tensor(name, DType::F32, [HEAD * heads, HEAD * heads]).unwrap();
    }
    let mut weights = builder.place(device.buffer_type()).unwrap();
    for (name, heads) in [("q.1", q_heads), ("kv.1", kv_heads)] {
        weights.set(name, &noise((HEAD * heads * HEAD * heads) as usize, heads as u64)).unwrap();
    }
    weights
}

/// A prompt, steps, and a second prompt, each with more cells than before; the results, and what is in the cache.
fn decode(device: Device, heads: [i64; 2], dtype: DType, scheduled: bool) -> (Vec<f32>, Vec<u8>) {
    let (weights, state) = (projections(device, heads), cache(device, heads[1], dtype));
    let mut backend = device.init().unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut builder = Sched::builder();
    if device != Device::cpu().unwrap() {
        builder = builder.backend(device.init().unwrap());
    }
    let mut sched = builder.backend(Backend::cpu().unwrap()).build().unwrap();
    let mut all = Vec::new();
    for (first, n, used) in [(0, 5, 8), (5, 1, 8), (6, 1, 8), (7, 1, 8), (8, 1, 16), (9, 7, 16), (16, 1, 24)] {
        let ctx = Context::new();
        let step = Step::new(&ctx, &state, &weights, heads, n, used);
        let graph = ctx.graph([step.y]).unwrap();
        let mut run = if scheduled { sched.alloc(&graph) } else { allocator.alloc(&graph, &mut backend) }.unwrap();
        let first_time = step.compute(&mut run, first).unwrap();
        assert_eq!(step.compute(&mut run, first).unwrap(), first_time, "and again");
        all.extend(first_time);
    }
    let bytes = ["k.0", "v.0"].map(|name| state.read_bytes(name).unwrap());
    (all, bytes.concat())
}

#[test]
fn meta_attention_to_a_cache_equals_one_device() {
    for (heads, dtype) in [([4, 4], DType::F32), ([6, 3], DType::F16), ([4, 2], DType::Q8_0)] {
        let (want, want_cache) = decode(Device::cpu().unwrap(), heads, dtype, true);
        for n in [2, 3] {
            if heads[1] % n as i64 != 0 {
                continue; // a head is not divided
            }
            for (device, scheduled) in devices(n).into_iter().flat_map(|d| [(d, false), (d, true)]) {
                let what = format!("{heads:?} {dtype:?} on {}, {scheduled}", device.name());
                let (got, got_cache) = decode(device, heads, dtype, scheduled);
                assert_close(&got, &wide(&want), 1e-3, &what);
                assert_eq!(got_cache.len(), want_cache.len(), "{what}");
                let [got_values, want_values] = [&got_cache, &want_cache].map(|c| dtype.dequantize(c).unwrap());
                assert_close(&got_values, &wide(&want_values), 1e-3, &what);
                if testkit::device::rounding() == 0.0 {
                    let differ = got_cache.iter().zip(&want_cache).filter(|(a, b)| a != b).count();
                    assert!(differ * 50 <= want_cache.len(), "{what}: {differ} bytes of the cache differ");
                }
            }
        }
    }
}

/// A graph that writes `rows` to cells of a state.
fn write<'c>(ctx: &'c Context, state: &'c State, name: &str, w: &'c Weights) -> [Tensor<'c>; 3] {
    let t = state.tensor(name).unwrap();
    let x = ctx.input("x", DType::F32, [t.ne()[0], 2]).unwrap();
    let cells = ctx.input("cells", DType::I32, [2]).unwrap();
    let rows = if name == "whole" { ctx.scale(x, 1.0) } else { ctx.mul_mat(w.tensor("kv.1").unwrap(), x) };
    [x, cells, ctx.set_rows(t, rows.unwrap(), cells).unwrap()]
}

fn set(run: &mut Run<'_, '_>, [x, cells, _]: [Tensor<'_>; 3]) {
    run.set(x, &noise(x.elements(), 7)).unwrap();
    run.set(cells, &[3, 1]).unwrap();
}

/// A graph that is allocated later takes the views; the one before is refused, and can be allocated again.
#[test]
fn meta_views_of_a_state_belong_to_the_last_allocated_graph() {
    for device in devices(2) {
        let (weights, state) = (projections(device, [2, 2]), cache(device, 2, DType::F32));
        let ctx = Context::new();
        let steps = [8, 16].map(|used| Step::new(&ctx, &state, &weights, [2, 2], 2, used));
        let graphs = [0, 1].map(|i| ctx.graph([steps[i].y]).unwrap());
        let [mut a, mut b] = [(); 2].map(|()| (GraphAllocator::new(device.buffer_type()), device.init().unwrap()));
        let mut earlier = a.0.alloc(&graphs[0], &mut a.1).unwrap();
        let want = steps[0].compute(&mut earlier, 0).unwrap();
        let mut later = b.0.alloc(&graphs[1], &mut b.1).unwrap();
        for result in [earlier.get::<f32>(steps[0].y).map(drop), earlier.compute(), earlier.compute_async(|| ())] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("allocated later") && error.contains("`k.0`"), "{error}");
        }
        steps[1].compute(&mut later, 0).unwrap();
        steps[1].compute(&mut later, 0).unwrap();
        assert!(earlier.compute().is_err(), "nor after the other was computed");
        drop(earlier);
        let mut again = a.0.alloc(&graphs[0], &mut a.1).unwrap();
        assert_eq!(steps[0].compute(&mut again, 0).unwrap(), want);
        assert!(steps[1].compute(&mut later, 0).is_err(), "the other way round");
        #[expect(clippy::mem_forget, reason = "what users may do")]
        std::mem::forget(again);
        drop(later);
        let mut last = b.0.alloc(&graphs[0], &mut b.1).unwrap();
        assert_eq!(steps[0].compute(&mut last, 0).unwrap(), want, "after a forgotten one");
    }
}

/// Allocations that compute nothing don't use up ggml's room for views.
#[test]
fn meta_states_outlive_allocations_without_computation() {
    for device in devices(2) {
        let (weights, state) = (projections(device, [2, 2]), cache(device, 2, DType::F16));
        let mut sched =
            Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
        let mut allocator = GraphAllocator::new(device.buffer_type());
        let mut backend = device.init().unwrap();
        let mut results = Vec::new();
        for round in 0..60 {
            let ctx = Context::new();
            let step = Step::new(&ctx, &state, &weights, [2, 2], 2, if round % 7 == 0 { 8 } else { 16 });
            let graph = ctx.graph([step.y]).unwrap();
            drop(sched.alloc(&graph).unwrap());
            let mut run = allocator.alloc(&graph, &mut backend).unwrap();
            if round % 20 == 1 {
                results.push(step.compute(&mut run, 0).unwrap());
            }
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]) && results.len() == 3);
    }
}

/// A state of another split at the address of one that was dropped, in the same scheduler.
#[test]
fn meta_states_are_dropped_and_placed_anew() {
    for device in devices(2) {
        let weights = projections(device, [2, 2]);
        let mut sched =
            Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
        for round in 0..12 {
            let name = if round % 3 == 2 { "whole" } else { "k.0" };
            let state = states(device, &[(name, DType::F32, [2 * HEAD, CELLS])]);
            let ctx = Context::new();
            let inputs = write(&ctx, &state, name, &weights);
            let y = ctx.scale(inputs[0], 2.0).unwrap();
            let graph = ctx.graph([inputs[2], y]).unwrap();
            let mut run = sched.alloc(&graph).unwrap();
            set(&mut run, inputs);
            run.compute().unwrap();
            let read = run.get::<f32>(inputs[2]).unwrap();
            drop(run);
            let kept = state.tensor(name).unwrap().read::<f32>().unwrap();
            assert_eq!(read, kept, "{name} {round}: the result is the state");
            let row = 2 * HEAD as usize;
            let written = kept.chunks(row).map(|cell| cell.iter().any(|&v| v != 0.0));
            assert!(written.eq((0..CELLS).map(|cell| cell == 1 || cell == 3)), "{name} {round}: cells 1 and 3");
        }
    }
}

type Build = for<'c> fn(&'c Context, &dyn Fn(&str) -> Tensor<'c>, Tensor<'c>) -> ggml::Result<Tensor<'c>>;

/// Refused operations, with a part of the reason.
const REFUSED: &[(&str, Build)] = &[
    ("only `set_rows` writes to a state", |ctx, s, _| ctx.add_inplace(s("whole"), s("whole"))),
    ("only `set_rows` writes to a state", |ctx, s, _| ctx.cpy(ctx.relu(s("whole"))?, s("whole"))),
    ("only `set_rows` writes to a state", |ctx, s, _| ctx.scale_inplace(s("k.0"), 2.0)),
    ("must be split alike along axis 0", |ctx, s, rows| ctx.set_rows(s("k.0"), ctx.relu(s("v.1"))?, rows)),
    ("operands must be split alike", |ctx, s, rows| ctx.set_rows(s("k.0"), ctx.relu(s("whole"))?, rows)),
    ("begins at its first element", |ctx, s, _| ctx.relu(ctx.view(s("k.0"), [64, 8], [256, 2048, 2048], 256)?)),
    ("a view of part", |ctx, s, _| ctx.relu(ctx.view(s("k.0"), [16, 8], [256, 2048, 2048], 0)?)),
    ("a view of part", |ctx, s, _| ctx.relu(ctx.view(s("k.0"), [32, 24, 2], [256, 128, 6144], 0)?)),
    ("does not fall on an axis", |ctx, s, _| ctx.relu(ctx.reshape(s("k.0"), [24, 64])?)),
];

#[test]
fn meta_refuses_what_has_no_rule_for_states() {
    for device in devices(2) {
        let ne = [ROW, CELLS];
        let names = ["k.0", "v.1", "whole"];
        let state = states(device, &names.map(|name| (name, DType::F32, ne)));
        for (i, (reason, build)) in REFUSED.iter().enumerate() {
            let ctx = Context::new();
            let rows = ctx.input("rows", DType::I32, [CELLS]).unwrap();
            let y = build(&ctx, &|name| state.tensor(name).unwrap(), rows).unwrap();
            assert_refused(device, &ctx.graph([y]).unwrap(), reason, i);
        }
    }
}

/// Strides that no element uses reach ggml's divisions; parts of rows, and rows in another order, its assertions.
#[test]
fn meta_reads_only_whole_split_states() {
    for device in devices(2) {
        let state = states(device, &[("k.0", DType::F32, [ROW, CELLS])]);
        let size = ROW as usize * CELLS as usize;
        state.set("k.0", &noise(size, 3)).unwrap();
        let kept = state.tensor("k.0").unwrap().read::<f32>().unwrap();
        for (ne, nb, readable) in [
            ([64, 24, 1], [256, 6144, 6144], true),
            ([64, 1, 1], [0, 256, 256], false),
            ([64, 1, 1], [128, 256, 256], false),
            ([64, 1, 1], [1 << 20, 256, 256], false),
            ([64, 1, 8], [4, 256, 2048], false),
            ([64, 8, 1], [256, 2048, 2048], false),
        ] {
            let ctx = Context::new();
            let view = ctx.view(state.tensor("k.0").unwrap(), ne, nb, 0).unwrap();
            let cells = ctx.input("cells", DType::I32, [1, ne[2]]).unwrap();
            let rows = ctx.get_rows(state.tensor("k.0").unwrap(), ctx.input("first", DType::I32, [1]).unwrap());
            let rows = ctx.reshape(rows.unwrap(), [64, 1, 1]).unwrap();
            let written = if ne[2] == 1 { ctx.set_rows(view, rows, cells).unwrap() } else { view };
            assert_eq!(view.read::<f32>().is_ok(), readable, "{ne:?} {nb:?}, without a graph");
            let graph = ctx.graph([written, ctx.scale(rows, 2.0).unwrap()]).unwrap();
            let mut allocator = GraphAllocator::new(device.buffer_type());
            let mut backend = device.init().unwrap();
            let mut run = allocator.alloc(&graph, &mut backend).unwrap();
            for name in ["cells", "first"] {
                if let Some(t) = graph.tensor(name) {
                    run.set(t, &vec![0; t.elements()]).unwrap();
                }
            }
            run.compute().unwrap();
            let read = run.get::<f32>(written);
            assert_eq!(read.is_ok(), readable, "{ne:?} {nb:?}: {read:?}");
            assert!(read.is_err() || read.unwrap() == kept, "row 0 was written to row 0");
            let swapped = ctx.permute(state.tensor("k.0").unwrap(), [1, 0, 2, 3]).unwrap();
            assert!(swapped.read::<f32>().is_err(), "columns before rows");
        }
    }
}

/// ggml has room for sixteen views of each state between two computations.
#[test]
fn meta_refuses_more_views_of_states_than_ggml_has_room_for() {
    for device in devices(2) {
        let state = states(device, &[("k.0", DType::F32, [2 * HEAD, CELLS])]);
        for n in [15, 16, 17, 40] {
            let ctx = Context::new();
            let views: Vec<_> = (0..n)
                .map(|_| ctx.scale(ctx.reshape(state.tensor("k.0").unwrap(), [HEAD, 2, CELLS]).unwrap(), 1.0).unwrap())
                .collect();
            let graph = ctx.graph(views).unwrap();
            let mut allocator = GraphAllocator::new(device.buffer_type());
            let mut backend = device.init().unwrap();
            let result = allocator.alloc(&graph, &mut backend).and_then(|mut run| run.compute());
            assert_eq!(result.is_ok(), n <= 16, "{n} views: {result:?}");
        }
    }
}

/// What ggml would miss: the last operation of a graph on CPUs.
#[cfg(ggml_0_28)]
#[test]
fn meta_of_cpus_refuses_graphs_that_end_with_a_view_of_a_state() {
    let device = crate::support::cpus(2);
    let state = states(device, &[("whole", DType::F32, [2 * HEAD, CELLS])]);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2 * HEAD, 1]).unwrap();
    let cells = ctx.input("cells", DType::I32, [1]).unwrap();
    let written = ctx.set_rows(state.tensor("whole").unwrap(), ctx.relu(x).unwrap(), cells).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init().unwrap();
    let graph = ctx.graph([written]).unwrap();
    let error = allocator.alloc(&graph, &mut backend).unwrap_err().to_string();
    assert!(error.contains("can't end with a view of a state"), "{error}");
    let graph = ctx.graph([written, ctx.neg(x).unwrap()]).unwrap();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &vec![1.5_f32; 2 * HEAD as usize]).unwrap();
    run.set(cells, &[2]).unwrap();
    run.compute().unwrap();
    drop(run);
    let kept = state.tensor("whole").unwrap().read::<f32>().unwrap();
    let (row, at) = (2 * HEAD as usize, 2 * 2 * HEAD as usize);
    assert_eq!(kept[at..at + row], vec![1.5; row]);
}
