//! Graphs on which ggml would abort or compute wrong results are errors before anything is allocated.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{GraphAllocator, Pieces, ops::GluOp, run::Compare};

use crate::support::{assert_refused, cpus, meta, noise};

/// Square matrices that are split as their names say.
fn weights(device: Device) -> Weights {
    let mut builder = WeightsBuilder::new();
    for name in ["whole", "w.0", "w.1", "w.2"] {
        builder.tensor(name, DType::F32, [8, 8, 8]).unwrap();
    }
    builder.tensor("one", DType::F32, [8]).unwrap();
    builder.place(device.buffer_type()).unwrap()
}

type Build = for<'c> fn(&'c Context, &dyn Fn(&str) -> Tensor<'c>, Tensor<'c>) -> ggml::Result<Tensor<'c>>;

/// Refused operations, with a part of the reason.
const REFUSED: &[(&str, Build)] = &[
    // Products.
    ("the first operand must be split", |ctx, w, x| ctx.mul_mat(w("w.0"), x)),
    ("the first operand must be split", |ctx, w, _| ctx.mul_mat(w("w.1"), w("w.1"))),
    ("the first operand must be split", |ctx, w, _| ctx.mul_mat(w("w.2"), w("whole"))),
    ("the first operand must be split", |ctx, w, _| ctx.mul_mat(w("whole"), w("w.0"))),
    // A sum over devices.
    ("can't be read", |ctx, w, _| ctx.mul_mat(w("w.0"), w("w.0"))),
    ("can't be read", |ctx, w, _| ctx.mul(ctx.mul_mat(w("w.0"), w("w.0"))?, w("whole"))),
    ("can't be read", |ctx, w, _| {
        ctx.add(ctx.mul_mat(w("w.0"), w("w.0"))?, ctx.mul_mat(w("w.0"), ctx.relu(w("w.0"))?)?)
    }),
    ("may have no other use", |ctx, w, _| {
        let sum = ctx.mul_mat(w("w.0"), w("w.0"))?;
        ctx.add(ctx.mul(sum, w("whole"))?, sum)
    }),
    ("can't be viewed", |ctx, w, _| {
        let sum = ctx.mul_mat(w("w.0"), w("w.0"))?;
        ctx.relu(ctx.view(sum, [8, 4], [32, 128, 128], 0)?)
    }),
    // Operands that are divided differently.
    ("split alike", |ctx, w, x| ctx.add(x, w("w.0"))),
    ("must be split as the first", |ctx, w, x| ctx.add(w("w.0"), x)),
    ("must be split as the first", |ctx, w, _| ctx.mul(w("w.0"), w("w.1"))),
    ("must be split as the first", |ctx, w, _| ctx.add(w("w.0"), w("one"))),
    ("split alike", |ctx, w, _| ctx.glu_split(w("w.0"), w("w.1"), GluOp::Swiglu)),
    // Rows.
    ("whole rows", |ctx, w, _| ctx.rms_norm(w("w.0"), 1e-5)),
    ("whole rows", |ctx, w, _| ctx.sum_rows(w("w.0"))),
    ("whole rows", |ctx, w, _| ctx.soft_max(w("w.0"))),
    ("both halves", |ctx, w, _| ctx.glu(w("w.0"), GluOp::Swiglu, false)),
    ("all operands must be mirrored", |ctx, w, _| ctx.repeat(w("w.1"), w("whole"))),
    ("split alike", |ctx, w, _| ctx.concat(w("whole"), w("w.0"), 0)),
    ("all operands must be mirrored", |ctx, w, _| ctx.concat(w("w.1"), w("w.1"), 0)),
    // Shapes.
    ("does not fall on an axis", |ctx, w, _| ctx.relu(ctx.reshape(ctx.relu(w("w.0"))?, [2, 256])?)),
    ("a view of part", |ctx, w, _| ctx.relu(ctx.view(ctx.relu(w("w.1"))?, [8, 4], [32, 256, 256], 0)?)),
    ("is a view of an input", |ctx, w, x| ctx.add(w("whole"), ctx.reshape(x, [8, 8, 8])?)),
    ("is a view of an input", |ctx, w, _| ctx.relu(ctx.reshape(w("whole"), [64, 8])?)),
    ("not a view", |ctx, w, _| ctx.transpose(ctx.relu(w("w.0"))?)),
    ("knows no rule for the operation", |ctx, w, _| ctx.roll(w("whole"), [1, 0, 0, 0])),
    ("knows no rule for the operation", |ctx, w, _| ctx.argsort(w("whole"), ops::SortOrder::Asc)),
];

#[test]
fn meta_refuses_operations_without_a_rule() {
    let device = meta(2);
    let weights = weights(device);
    for (i, (reason, build)) in REFUSED.iter().enumerate() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [8, 8, 8]).unwrap();
        let y = build(&ctx, &|name| weights.tensor(name).unwrap(), x).unwrap();
        assert_refused(device, &ctx.graph([y]).unwrap(), reason, i);
    }
}

/// The error names the tensors and their splits.
#[test]
fn meta_error_names_tensors_and_splits() {
    let device = meta(2);
    let weights = weights(device);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 8, 8]).unwrap();
    let graph = ctx.graph([ctx.mul_mat(weights.tensor("w.0").unwrap(), x).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let text = allocator.alloc(&graph, &mut device.init().unwrap()).unwrap_err().to_string();
    assert!(text.contains("`w.0` is axis 0 as [4, 4], `x` is MIRRORED") && text.contains(&device.name()), "{text}");
}

#[test]
fn meta_refuses_splits_that_do_not_fit() {
    let cpu = Device::cpu().unwrap();
    let place = |split: SplitMode| {
        let device = MetaDevice::new(&[cpu; 2], move |_| split.clone()).unwrap().device();
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::Q8_0, [64, 3]).unwrap();
        builder.place(device.buffer_type()).map(drop)
    };
    let shares = |axis, shares: &[i64]| place(SplitMode::Shares { axis, shares: shares.into() });
    assert!(shares(1, &[1, 2]).is_ok() && shares(0, &[32, 32]).is_ok(), "they fit");
    for (axis, s) in
        [(1, &[3, 0][..]), (1, &[1, 1]), (1, &[1, 1, 1]), (0, &[16, 48]), (2, &[1, 0]), (3, &[1, 1]), (1, &[4, -1])]
    {
        let error = shares(axis, s).unwrap_err();
        assert!(matches!(error, Error::Param { name: "split", .. }) && error.to_string().contains("`w`"), "{error}");
    }
    assert!(place(SplitMode::Even { axis: 2 }).is_err(), "one element for two devices");
}

#[test]
fn meta_device_refuses_unsuitable_devices() {
    let cpu = Device::cpu().unwrap();
    let new = |devices: &[Device]| MetaDevice::new(devices, |_| SplitMode::Mirrored);
    for devices in [&[][..], &[cpu], &[cpu; 17], &[cpu, meta(2)]] {
        assert!(matches!(new(devices), Err(Error::Param { name: "devices", .. })), "{devices:?}");
    }
    assert!(new(&[cpu; 16]).is_ok(), "as many as C takes");
    assert!(meta(2).init_with("x").is_err(), "no parameters in common");
}

/// The closure runs before ggml is called.
#[test]
fn meta_split_closure_panic_resumes() {
    let cpu = Device::cpu().unwrap();
    let device =
        MetaDevice::new(&[cpu; 2], |t| if &*t.name == "bad" { panic!("no idea") } else { SplitMode::Mirrored });
    let place = |name| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("good", DType::F32, [8]).unwrap();
        builder.tensor(name, DType::F32, [8]).unwrap();
        builder.place(device.as_ref().unwrap().device().buffer_type()).map(drop)
    };
    let panic = catch_unwind(AssertUnwindSafe(|| place("bad"))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"no idea"));
    place("other").unwrap();
}

/// Parts of a tensor, and everything that observes a computation.
#[test]
fn meta_refuses_pieces_and_observers() {
    let device = meta(2);
    let mut weights = weights(device);
    let pieces = Pieces { offset: 0, len: 1, count: 1, step: 1, data_step: 1 };
    assert!(
        weights.set_2d("whole", pieces, &[1.0_f32]).is_err() && weights.read_2d("w.1", pieces, &mut [0.0_f32]).is_err()
    );
    let copy = {
        let mut builder = WeightsBuilder::new();
        builder.tensor("copy", DType::F32, [8]).unwrap();
        let mut copy = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        copy.copy("copy", weights.tensor("one").unwrap())
    };
    assert!(matches!(copy, Err(Error::Unsupported { .. })), "C would read at no address: {copy:?}");
    let transfers = device.init().unwrap().transfers(|_| Ok(()));
    assert!(matches!(transfers, Err(Error::Unsupported { .. })), "{transfers:?}");
    let two = GraphAllocator::with_buffers(&[device.buffer_type(), Device::cpu().unwrap().buffer_type()], |_| 0);
    assert!(matches!(two, Err(Error::Param { .. })), "{two:?}");

    // A view of a split tensor is read through its root.
    let ctx = Context::new();
    let view = |name| ctx.view(weights.tensor(name).unwrap(), [8, 4], [32, 128, 128], 64).unwrap().read::<f32>();
    assert!(view("w.1").is_err() && view("whole").is_ok());

    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let y = ctx.relu(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let cpu = || Backend::cpu().unwrap();
    let builder = || Sched::builder().backend(device.init().unwrap());
    assert!(builder().backend(cpu()).parallel(true).build().is_err(), "no copies of inputs");
    assert!(builder().backend(device.init().unwrap()).backend(cpu()).build().is_err(), "one is enough");
    let mut sched = builder().backend(cpu()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &noise(8, 1)).unwrap();
    assert!(matches!(run.profile(), Err(Error::Unsupported { .. })), "one operation at a time");
    run.compute().unwrap();
    drop(run);

    let mut allocator = GraphAllocator::new(device.buffer_type());
    let refused = allocator.alloc(&graph, &mut cpu()).map(drop);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "a CPU would read at no address: {refused:?}");
    let mut backend = device.init().unwrap();
    let mut run = allocator.alloc(&graph, &mut backend).unwrap();
    run.set(x, &noise(8, 1)).unwrap();
    let compared = run.compare(&mut cpu(), Compare::new());
    assert!(matches!(compared, Err(Error::Unsupported { .. })), "{compared:?}");
    run.compute().unwrap();
}

/// Tensors that the CPU would mistake for its own.
#[test]
fn cpu_refuses_tensors_of_a_meta_device() {
    let device = cpus(2);
    let weights = weights(device);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 8, 8]).unwrap();
    let here = ctx.add(x, weights.tensor("whole").unwrap()).unwrap();
    let there = ctx.roll(here, [1, 0, 0, 0]).unwrap();
    let graph = ctx.graph([there]).unwrap();
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let error = sched.alloc_pinned(&graph, &[(there, 1)]).unwrap_err().to_string();
    assert!(error.contains("can't be used elsewhere"), "{error}");
    let mut alone = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let own = ctx.graph([here]).unwrap();
    assert!(matches!(alone.alloc(&own), Err(Error::Unsupported { .. })), "weights on no device of the scheduler's");

    // The view would be initialised on the meta device.
    let view = ctx.transpose(weights.tensor("w.1").unwrap()).unwrap();
    let graph_of_view = ctx.graph([ctx.cont(view).unwrap()]).unwrap();
    let mut on_cpu = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut cpu = Backend::cpu().unwrap();
    assert!(matches!(on_cpu.alloc(&graph_of_view, &mut cpu), Err(Error::Unsupported { .. })), "not the CPU's");

    // Another device can't compute in the middle of a meta device's part.
    let first = ctx.add(x, weights.tensor("whole").unwrap()).unwrap();
    let rolled = ctx.roll(x, [1, 0, 0, 0]).unwrap();
    let last = ctx.add(first, rolled).unwrap();
    let graph = ctx.graph([last]).unwrap();
    let error = sched.alloc_pinned(&graph, &[(rolled, 1), (last, 0)]).unwrap_err().to_string();
    assert!(error.contains("without interruption"), "{error}");
    let graph = ctx.graph([ctx.add(rolled, weights.tensor("whole").unwrap()).unwrap()]).unwrap();
    assert!(sched.alloc_pinned(&graph, &[(rolled, 1)]).is_ok(), "before it, it can");
}
