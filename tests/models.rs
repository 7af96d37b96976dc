//! Models that own what they compute with, and the conversions that keep them short.

#![cfg(test)]
#![allow(clippy::cast_precision_loss, clippy::float_cmp, reason = "small numbers, exact results")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use ggml::prelude::*;
use ggml::{BufferType, GraphAllocator, Registry};

/// Small whole numbers, so that sums are exact.
fn numbers(seed: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 5 + seed * 3) % 7) as f32 - 3.0).collect()
}

struct Mlp {
    weights: Weights,
    layers: Vec<[LeafIndex; 2]>,
    counts: State,
    count: LeafIndex,
    ctx: Context,
    sched: Sched,
}

const WIDTHS: [usize; 4] = [5, 7, 3, 2];

impl Mlp {
    fn new() -> ggml::Result<Self> {
        let (mut builder, mut layers) = (WeightsBuilder::new(), Vec::new());
        for (i, pair) in WIDTHS.windows(2).enumerate() {
            let w = builder.tensor(&format!("w{i}"), DType::F32, pair)?;
            layers.push([w, builder.tensor(&format!("b{i}"), DType::F32, &pair[1..])?]);
        }
        let mut weights = builder.place(Device::cpu()?)?;
        for (i, (pair, &[w, b])) in WIDTHS.windows(2).zip(&layers).enumerate() {
            weights.set(w, &numbers(i, pair[0] * pair[1]))?;
            weights.set(&format!("b{i}"), &numbers(i + 9, pair[1]))?;
            assert_eq!(weights.index(&format!("b{i}"))?, b);
        }
        let mut builder = WeightsBuilder::new();
        let count = builder.tensor("count", DType::F32, [1])?;
        let counts = builder.place_state(Device::cpu()?)?;
        Ok(Self { weights, layers, counts, count, ctx: Context::new(), sched: Sched::best()? })
    }

    fn forward(&mut self, x: &[f32]) -> ggml::Result<Vec<f32>> {
        self.ctx.reset();
        let ctx = &self.ctx;
        let input = ctx.input("x", DType::F32, [WIDTHS[0], x.len() / WIDTHS[0]])?;
        let output = self.layers.iter().try_fold(input, |x, &[w, b]| {
            ctx.relu(ctx.add(ctx.mul_mat(self.weights.at(w), x)?, self.weights.at(b))?)
        })?;
        let count = self.counts.at(self.count);
        let counted = ctx.cpy(ctx.scale_bias(count, 1.0, 1.0)?, count)?;
        let graph = ctx.graph([output, counted])?;
        let mut run = self.sched.alloc(&graph)?;
        run.set(input, x)?;
        run.compute()?;
        run.get(output)
    }
}

/// The same in plain Rust.
fn plain(x: &[f32]) -> Vec<f32> {
    let mut rows: Vec<Vec<f32>> = x.chunks(WIDTHS[0]).map(<[f32]>::to_vec).collect();
    for (i, pair) in WIDTHS.windows(2).enumerate() {
        let (w, b) = (numbers(i, pair[0] * pair[1]), numbers(i + 9, pair[1]));
        for x in &mut rows {
            let dot = |w: &[f32]| w.iter().zip(&*x).map(|(w, x)| w * x).sum::<f32>();
            *x = w.chunks(pair[0]).map(dot).zip(&b).map(|(y, b)| (y + b).max(0.0)).collect();
        }
    }
    rows.concat()
}

#[test]
fn model_struct_owns_weights_state_sched_and_context() {
    let mut models = vec![Mlp::new().unwrap(), Mlp::new().unwrap()];
    // They have moved, and move on to another thread.
    let models = thread::spawn(move || {
        for model in &mut models {
            for step in 0..5 {
                let x = numbers(step, 2 * WIDTHS[0]);
                assert_eq!(model.forward(&x).unwrap(), plain(&x), "step {step}");
            }
            assert_eq!(model.sched.plans(), 1);
        }
        models
    });
    for model in models.join().unwrap() {
        assert_eq!(model.counts.at(model.count).read::<f32>().unwrap(), [5.0]);
    }
}

#[test]
fn index_is_the_tensor_of_its_name() {
    let (mut names, mut builder) = (Vec::new(), WeightsBuilder::new());
    for i in 0..20 {
        names.push(format!("tensor number {} with a name that is too long for ggml, which cuts it", 19 - i));
        builder.tensor(&names[i], DType::F32, [i + 1]).unwrap();
    }
    let weights = builder.place(Device::cpu().unwrap()).unwrap();
    for (i, name) in names.iter().enumerate() {
        let index = weights.index(name).unwrap();
        assert_eq!(weights.at(index), weights.tensor(name).unwrap());
        assert_eq!(weights.at(index).elements(), i + 1);
        assert_eq!(index, weights.index(name).unwrap());
    }
    assert_ne!(weights.index(&names[0]).unwrap(), weights.index(&names[1]).unwrap());
    assert!(matches!(weights.index("none"), Err(Error::NoSuch { available, .. }) if available.len() == 20));
}

#[test]
fn index_of_other_weights_panics_with_the_reason() {
    let leaves = |n: usize| {
        let mut builder = WeightsBuilder::new();
        for i in 0..n {
            builder.tensor(&format!("t{i}"), DType::F32, [2]).unwrap();
        }
        builder
    };
    let cpu = Device::cpu().unwrap();
    let message = |f: &dyn Fn() -> usize| {
        let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let (a, b, few) = (leaves(3), leaves(3), leaves(1));
    let (a, b, few) = (a.place(cpu).unwrap(), b.place(cpu).unwrap(), few.place(cpu).unwrap());
    let index = a.index("t2").unwrap();
    assert_eq!(a.at(index).elements(), 2);
    for other in [&b, &few] {
        let text = message(&|| other.at(index).elements());
        assert!(text.contains("Weights::at") && text.contains("its own `index`"), "{text}");
    }
    let (a, b) = (leaves(2).place_state(cpu).unwrap(), leaves(2).place_state(cpu).unwrap());
    let index = a.index("t1").unwrap();
    let text = message(&|| b.at(index).elements());
    assert!(text.contains("State::at"), "{text}");
    // Where there is a result, it is an error.
    assert!(matches!(b.set(index, &[1.0_f32; 2]), Err(Error::Param { call: "State::set", name: "leaf", .. })));
    a.set(index, &[1.0_f32; 2]).unwrap();
    assert_eq!(a.element::<f32>("t1", [1, 0, 0, 0]).unwrap(), 1.0);
}

#[test]
fn weight_handles_survive_a_context_reset() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [3]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap()).unwrap();
    weights.set("w", &[1.0_f32, 2.0, 3.0]).unwrap();
    let w = weights.tensor("w").unwrap();
    let (mut ctx, mut allocator) = (Context::new(), GraphAllocator::new(Device::cpu().unwrap().buffer_type()));
    let mut backend = Backend::cpu().unwrap();
    for step in 0..3_u8 {
        ctx.reset();
        let y = ctx.scale(w, f32::from(step)).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
        memory.compute().unwrap();
        assert_eq!(memory.get::<f32>(y).unwrap(), [1.0, 2.0, 3.0].map(|x| x * f32::from(step)));
    }
}

#[test]
fn shapes_convert_from_any_integer_type() {
    let ctx = Context::new();
    let (wide, short, signed) = (vec![3_usize, 4], vec![3_u32, 4], vec![3_i64, 4]);
    let all = [
        ctx.input("x", DType::F32, [3_usize, 4]),
        ctx.input("x", DType::F32, [3_u32, 4]),
        ctx.input("x", DType::F32, [3_i64, 4]),
        ctx.input("x", DType::F32, &wide[..]),
        ctx.input("x", DType::F32, &short[..]),
        ctx.input("x", DType::F32, signed.as_slice()),
    ];
    for t in all {
        assert_eq!(t.unwrap().ne(), [3, 4, 1, 1]);
    }
    let x = ctx.input("x", DType::F32, [3, 4]).unwrap();
    assert_eq!(ctx.reshape(x, &[2_usize, 3, 2][..]).unwrap().ne(), [2, 3, 2, 1]);
    let mut builder = WeightsBuilder::new();
    for bad in [&[1_usize; 5][..], &[usize::MAX], &[4, usize::MAX], &[0], &[4, 0]] {
        assert!(matches!(ctx.input("x", DType::F32, bad), Err(Error::Shape { .. })), "{bad:?}");
        assert!(matches!(builder.tensor("x", DType::F32, bad), Err(Error::Shape { .. })), "{bad:?}");
        assert!(ctx.reshape(x, bad).is_err(), "{bad:?}");
        assert!(ctx.repeat_4d(x, bad).is_err(), "{bad:?}");
        assert!(ctx.cont_4d(x, bad).is_err(), "{bad:?}");
        assert!(ctx.view(x, bad, [12, 48, 48], 0).is_err(), "{bad:?}");
    }
    let error = ctx.input("x", DType::F32, &[1_u32; 5][..]).unwrap_err().to_string();
    assert!(error.contains("at most 4 dimensions"), "{error}");
}

#[test]
fn contiguous_views_show_their_elements() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [6, 5]).unwrap();
    let views = [
        ctx.view_1d(x, 4_usize, 8).unwrap(),
        ctx.view_2d(x, [3, 2], 24).unwrap(),
        ctx.view_3d(x, [2_u32, 3, 4], 4 * 6).unwrap(),
    ];
    let shapes = [[4, 1, 1, 1], [3, 2, 1, 1], [2, 3, 4, 1]];
    let firsts = [2, 6, 6];
    let copies = views.map(|v| ctx.cont(v).unwrap());
    let graph = ctx.graph(copies).unwrap();
    let mut sched = Sched::best().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    let values: Vec<f32> = (0..30_u8).map(f32::from).collect();
    run.set(x, &values).unwrap();
    run.compute().unwrap();
    for (i, view) in views.into_iter().enumerate() {
        assert!(view.is_contiguous() && view.is_view());
        assert_eq!(view.ne(), shapes[i]);
        assert_eq!(run.get::<f32>(copies[i]).unwrap(), values[firsts[i]..firsts[i] + view.elements()]);
    }
}

#[test]
fn contiguous_views_check_bounds() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [6, 5]).unwrap();
    assert!(ctx.view_2d(x, [6, 4], 24).is_ok());
    let q = ctx.input("q", DType::Q8_0, [64, 2]).unwrap();
    assert!(ctx.view_1d(q, 64, 34).is_ok());
    let refused = [
        ("an element too many", ctx.view_1d(x, 31, 0)),
        ("too far", ctx.view_2d(x, [6, 4], 28)),
        ("nothing", ctx.view_1d(x, 0, 0)),
        ("a negative dimension", ctx.view_3d(x, [1, 1, -1], 0)),
        ("more than any tensor has", ctx.view_2d(x, [usize::MAX, 1], 0)),
        ("more than any tensor has", ctx.view_3d(x, [i64::MAX, i64::MAX, 2], 0)),
        ("a part of an element", ctx.view_1d(x, 1, 2)),
        ("a part of a block", ctx.view_1d(q, 33, 0)),
        ("an offset in a block", ctx.view_1d(q, 32, 4)),
    ];
    for (what, view) in refused {
        assert!(matches!(view, Err(Error::Param { .. })), "{what}: {view:?}");
    }
}

#[test]
fn buffer_type_converts_from_device() {
    for device in Device::all().unwrap() {
        assert_eq!(BufferType::from(device), device.buffer_type());
        assert_eq!(Option::<BufferType>::from(device), Some(device.buffer_type()));
    }
}

#[test]
fn sched_best_orders_gpu_first_and_cpu_last() {
    let sched = Sched::best().unwrap();
    let got: Vec<_> = sched.backends().iter().map(Backend::device).collect();
    let all = Device::all().unwrap();
    let of = |kind: DeviceType| all.iter().copied().filter(move |d| d.device_type() == kind);
    let gpu = of(DeviceType::Gpu).chain(of(DeviceType::IntegratedGpu)).next();
    let want: Vec<_> = gpu.into_iter().chain(of(DeviceType::Accelerator)).chain(of(DeviceType::Cpu).take(1)).collect();
    assert_eq!(got, want);
    assert_eq!(got.last(), Some(&Device::cpu().unwrap()));
}

#[test]
fn placing_closures_get_type_and_shape() {
    let cpu = Device::cpu().unwrap();
    let long = "a name that is longer than the sixty-three bytes that ggml keeps of it";
    let leaves = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("z", DType::F16, [8, 3]).unwrap();
        builder.tensor(long, DType::Q8_0, [32, 2, 1, 5]).unwrap();
        builder
    };
    let want =
        [("z".to_owned(), DType::F16, Shape::from([8, 3])), (long.to_owned(), DType::Q8_0, [32, 2, 1, 5].into())];
    let mut told = Vec::new();
    let weights = leaves()
        .place(|leaf: &LeafInfo| {
            told.push((leaf.name().to_owned(), leaf.dtype(), leaf.shape()));
            cpu
        })
        .unwrap();
    assert_eq!((&told[..], weights.iter().count()), (&want[..], 2));
    told.clear();
    let state = leaves()
        .place_state(|leaf: &LeafInfo| {
            told.push((leaf.name().to_owned(), leaf.dtype(), leaf.shape()));
            cpu
        })
        .unwrap();
    assert_eq!((&told[..], state.iter().count()), (&want[..], 2));
}

/// Without libraries to load, what is linked in is there already.
#[test]
fn load_all_returns_all_registries_in_a_static_build() {
    assert_eq!(Registry::load_all().unwrap(), Registry::all().unwrap());
    assert!(Registry::all().unwrap().iter().any(|r| r.name() == "CPU"));
}
