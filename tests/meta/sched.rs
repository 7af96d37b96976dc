//! A meta device and a CPU in a scheduler.

use ggml::prelude::*;

use crate::support::{Matrix, assert_close, meta, noise, place, wide};

fn sched(device: Device) -> Sched {
    Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
}

fn matrices() -> [Matrix; 2] {
    [Matrix::new("up.1", DType::F32, [32, 64]), Matrix::new("down.0", DType::F32, [64, 32])]
}

fn want(x: &[f32]) -> Vec<f64> {
    let [up, down] = matrices();
    down.times(&up.times(&wide(x)).into_iter().map(|h| h.max(0.0)).collect::<Vec<_>>())
}

#[test]
fn sched_computes_on_a_meta_device() {
    let device = meta(2);
    let weights = place(device, &matrices());
    let mut sched = sched(device);
    for round in 0..3 {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [32, 1]).unwrap();
        let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up.1").unwrap(), x).unwrap()).unwrap();
        let y = ctx.scale(ctx.mul_mat(weights.tensor("down.0").unwrap(), hidden).unwrap(), 1.0).unwrap();
        let graph = ctx.graph([y]).unwrap();
        for seed in [1, 2] {
            let values = noise(32, seed + round);
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &values).unwrap();
            run.compute().unwrap();
            assert_close(&run.get::<f32>(y).unwrap(), &want(&values), 1e-5, "computed");
            run.compute_async(|| ()).unwrap();
            assert_close(&run.get::<f32>(y).unwrap(), &want(&values), 1e-5, "and again");
            assert_eq!(run.n_splits(), 1);
        }
    }
    assert_eq!(sched.plans(), 1, "one plan for all");
}

/// What the CPU computes first is copied to the devices.
#[test]
fn sched_pins_to_the_cpu_beside_a_meta_device() {
    let device = meta(2);
    let weights = place(device, &matrices());
    let mut sched = sched(device);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [32, 1]).unwrap();
    let rolled = ctx.roll(x, [1, 0, 0, 0]).unwrap();
    let hidden = ctx.relu(ctx.mul_mat(weights.tensor("up.1").unwrap(), rolled).unwrap()).unwrap();
    let y = ctx.scale(ctx.mul_mat(weights.tensor("down.0").unwrap(), hidden).unwrap(), 1.0).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let refused = sched.alloc(&graph).err();
    assert!(matches!(refused, Some(Error::Unsupported { .. })), "`roll` is not known: {refused:?}");
    let mut run = sched.alloc_pinned(&graph, &[(rolled, 1)]).unwrap();
    let mut values = noise(32, 4);
    run.set(x, &values).unwrap();
    run.compute().unwrap();
    values.rotate_right(1);
    assert_close(&run.get::<f32>(y).unwrap(), &want(&values), 1e-5, "computed");
    assert_eq!(run.n_splits(), 2);
}
