//! Batches that fail during the computation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::opt::{BuildType, LossType, OptContext, OptParams, Sgd};
use ggml::prelude::*;

use super::state;

/// A scheduler that cancels computations while the flag is set.
fn stoppable() -> (Sched, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut cpu = Backend::cpu().unwrap();
    let stops = Arc::clone(&stop);
    cpu.set_abort(move || stops.load(Ordering::Relaxed)).unwrap();
    (Sched::builder().backend(cpu).build().unwrap(), stop)
}

/// A failed batch restarts the period, and nothing of its gradients is left.
#[test]
fn opt_failed_batch_restarts_its_period() {
    let state = state(&[[2, 3, 1, 1]]);
    let p = state.tensor("p0").unwrap();
    let before: Vec<f32> = p.read().unwrap();
    let params = OptParams::new(LossType::Sum).with_optimizer(Sgd::new().with_alpha(1.0)).with_opt_period(2);
    let mut opt = OptContext::new([p], params).unwrap();
    let ctx = Context::new();
    let inputs = ctx.input("x", DType::F32, [2, 1]).unwrap();
    let outs = ctx.mul_mat(p, inputs).unwrap();
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let (mut sched, stop) = stoppable();
    let feed = |opt: &mut OptContext<'_>, sched: &mut Sched, x: [f32; 2]| {
        let mut run = opt.alloc(sched, &graphs, true).unwrap();
        run.set(inputs, &x).unwrap();
        (run.build_type(), run.eval(None).map(drop))
    };
    assert!(matches!(feed(&mut opt, &mut sched, [8.0, 8.0]), (BuildType::Grad, Ok(()))));
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(feed(&mut opt, &mut sched, [4.0, 4.0]), (BuildType::Opt, Err(Error::Cancelled))));
    stop.store(false, Ordering::Relaxed);
    assert_eq!((opt.steps(), p.read::<f32>().unwrap()), (0, before.clone()));
    assert!(matches!(feed(&mut opt, &mut sched, [1.0, 0.0]), (BuildType::Grad, Ok(()))));
    assert!(matches!(feed(&mut opt, &mut sched, [1.0, 0.5]), (BuildType::Opt, Ok(()))));
    let expected: Vec<_> = before.chunks_exact(2).flat_map(|b| [b[0] - 2.0, b[1] - 0.5]).collect();
    let near = p.read::<f32>().unwrap().iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near && opt.steps() == 1, "{expected:?}");

    // A missing input stops a batch before it begins: the period continues.
    assert!(matches!(feed(&mut opt, &mut sched, [0.5, 1.0]), (BuildType::Grad, Ok(()))));
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    assert!(matches!(run.eval(None), Err(Error::InputNotSet { .. })));
    run.set(inputs, &[0.5_f32, 1.0]).unwrap();
    run.eval(None).unwrap();
    drop(run);
    let near = p
        .read::<f32>()
        .unwrap()
        .chunks_exact(2)
        .zip(expected.chunks_exact(2))
        .all(|(a, b)| (a[0] - b[0] + 1.0).abs() < 1e-6 && (a[1] - b[1] + 2.0).abs() < 1e-6);
    assert!(near && opt.steps() == 2, "{expected:?}");
}

/// The same with gradients only: a failed batch leaves nothing in the sums.
#[test]
fn opt_failed_batch_leaves_gradient_sums_unchanged() {
    let state = state(&[[2, 3, 1, 1]]);
    let p = state.tensor("p0").unwrap();
    let params = OptParams::new(LossType::Sum).with_build_type(BuildType::Grad);
    let mut opt = OptContext::new([p], params).unwrap();
    let ctx = Context::new();
    let inputs = ctx.input("x", DType::F32, [2, 1]).unwrap();
    let outs = ctx.mul_mat(p, inputs).unwrap();
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let (mut sched, stop) = stoppable();
    for (stopped, x, expected) in [
        (false, [1.0_f32, 2.0], [1.0, 2.0]),
        (false, [1.0, 2.0], [2.0, 4.0]),
        (true, [8.0, 8.0], [2.0, 4.0]),
        (false, [0.5, 0.25], [0.5, 0.25]),
    ] {
        stop.store(stopped, Ordering::Relaxed);
        let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
        run.set(inputs, &x).unwrap();
        assert_eq!(run.eval(None).is_err(), stopped);
        drop(run);
        assert_eq!(opt.grad_acc(p).unwrap().read::<f32>().unwrap(), expected.repeat(3));
    }
}
