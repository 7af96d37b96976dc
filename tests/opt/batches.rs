//! Losses and results compared with plain Rust, gradients of several batches, and graphs built per batch.

use ggml::opt::{AdamW, BuildType, Dataset, LossType, OptContext, OptParams, OptResult, Sgd};
use ggml::prelude::*;

use super::{cpu, state, waves};

const CLASSES: usize = 3;
const N: usize = 8;

/// `p x` for a matrix of two inputs and [`CLASSES`] outputs.
fn model<'c>(ctx: &'c Context, p: Tensor<'c>, n: usize) -> (Tensor<'c>, Tensor<'c>) {
    let x = ctx.input("x", DType::F32, [2, n as i64]).unwrap();
    (x, ctx.mul_mat(p, x).unwrap())
}

fn parameter() -> State {
    let state = state(&[[2, CLASSES as i64, 1, 1]]);
    state.set("p0", &waves(2 * CLASSES, 0.0, 0.1)).unwrap();
    state
}

/// Points, and the class of each.
fn data() -> (Vec<f32>, Vec<f32>) {
    let labels = (0..N).flat_map(|i| (0..CLASSES).map(move |c| if i * i % 5 % CLASSES == c { 1.0 } else { 0.0 }));
    (waves(2 * N, 0.5, 0.2), labels.collect())
}

/// The outputs, in f64.
fn outputs(p: &[f32], x: &[f32]) -> Vec<Vec<f64>> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    x.chunks_exact(2).map(|x| p.chunks_exact(2).map(|p| dot(p, x)).collect()).collect()
}

/// The loss of one datapoint, by definition.
fn loss_of(what: LossType, outputs: &[f64], labels: &[f32]) -> f64 {
    let pairs = || outputs.iter().zip(labels).map(|(&y, &l)| (y, f64::from(l)));
    match what {
        LossType::Mean => outputs.iter().sum::<f64>() / CLASSES as f64,
        LossType::Sum => outputs.iter().sum(),
        LossType::CrossEntropy => {
            let all: f64 = outputs.iter().map(|y| y.exp()).sum();
            pairs().map(|(y, l)| -l * (y - all.ln())).sum()
        }
        _ => pairs().map(|(y, l)| (y - l).powi(2)).sum::<f64>() / CLASSES as f64,
    }
}

const ALL: [LossType; 4] = [LossType::Mean, LossType::Sum, LossType::CrossEntropy, LossType::MeanSquaredError];

#[test]
fn losses_equal_their_definitions() {
    let (x, y) = data();
    for what in ALL {
        let state = parameter();
        let p = state.tensor("p0").unwrap();
        let before: Vec<f32> = p.read().unwrap();
        let labelled = matches!(what, LossType::CrossEntropy | LossType::MeanSquaredError);
        let dataset = Dataset::new(2, x.clone()).unwrap();
        let dataset = if labelled { dataset.with_labels(CLASSES, y.clone()).unwrap() } else { dataset };
        let mut opt = OptContext::new([p], OptParams::new(what)).unwrap();
        let ctx = Context::new();
        let (inputs, outs) = model(&ctx, p, 2);
        let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
        assert_eq!((graphs.ndata(), graphs.inputs(), graphs.outputs()), (2, Some(inputs), outs));
        assert_eq!(graphs.labels().is_some(), labelled);
        let mut calls = 0;
        let result = opt
            .evaluate(&mut cpu(), &graphs, &dataset, 0..N, |p| {
                calls += 1;
                assert_eq!((p.train, p.ibatch, p.ibatch_max, p.epoch), (false, calls, N / 2, 0));
                assert_eq!(p.result.ndata(), 2 * calls);
            })
            .unwrap();
        assert_eq!(p.read::<f32>().unwrap(), before, "an evaluation changes nothing");
        assert_eq!((opt.steps(), calls, result.nbatches(), result.ndata()), (0, N / 2, N / 2, N));

        let outs = outputs(&before, &x);
        let losses: Vec<_> = outs.iter().zip(y.chunks_exact(CLASSES)).map(|(o, l)| loss_of(what, o, l)).collect();
        let mean = what != LossType::Sum;
        let batches: Vec<f64> =
            losses.chunks_exact(2).map(|b| b.iter().sum::<f64>() / if mean { 2.0 } else { 1.0 }).collect();
        let (n, sum) = (batches.len() as f64, batches.iter().sum::<f64>());
        let variance = batches.iter().map(|b| (b - sum / n).powi(2)).sum::<f64>() / (n - 1.0);
        let (value, uncertainty) = if mean { (sum / n, (variance / n).sqrt()) } else { (sum, (variance * n).sqrt()) };
        let got = result.loss().unwrap();
        assert!((got.value - value).abs() < 1e-5, "{what:?}: {got:?} {value}");
        assert!((got.uncertainty.unwrap() - uncertainty).abs() < 1e-5, "{what:?}: {got:?} {uncertainty}");

        if what != LossType::CrossEntropy {
            assert!(result.accuracy().is_none() && result.pred().is_empty() && result.ncorrect().is_none());
            continue;
        }
        let largest = |row: &[f64]| (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        let pred: Vec<_> = outs.iter().map(|row| largest(row)).collect();
        let right = pred.iter().zip(y.chunks_exact(CLASSES)).filter(|(p, l)| l[**p] == 1.0).count();
        assert!(right > 0 && right < N, "the test tells right from wrong");
        assert_eq!(result.pred().iter().map(|&p| p as usize).collect::<Vec<_>>(), pred);
        assert_eq!(result.ncorrect(), Some(right));
        let accuracy = result.accuracy().unwrap();
        let share = right as f64 / N as f64;
        assert!((accuracy.value - share).abs() < 1e-12);
        assert!((accuracy.uncertainty.unwrap() - (share * (1.0 - share) / 7.0).sqrt()).abs() < 1e-12);
    }
}

#[test]
fn opt_result_refuses_results_of_another_loss() {
    let state = parameter();
    let p = state.tensor("p0").unwrap();
    let ctx = Context::new();
    let (inputs, outs) = model(&ctx, p, 2);
    let mut result = OptResult::new();
    let mut sched = cpu();
    let mut eval = |what, result: &mut OptResult| {
        let mut opt = OptContext::new([p], OptParams::new(what)).unwrap();
        let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
        let mut run = opt.alloc(&mut sched, &graphs, false).unwrap();
        run.set(inputs, &[1.0_f32; 4]).unwrap();
        run.eval(Some(result))
    };
    let loss = eval(LossType::Mean, &mut result).unwrap();
    let got = result.loss().unwrap();
    assert_eq!((got.value, got.uncertainty), (loss.into(), None), "one batch has no uncertainty");
    assert!(matches!(eval(LossType::Sum, &mut result), Err(Error::Param { name: "result", .. })));
    result.reset();
    eval(LossType::Sum, &mut result).unwrap();
}

/// The parameters after training with this batch size and period.
fn trained(what: LossType, batch: usize, period: u32) -> Vec<f32> {
    let state = parameter();
    let p = state.tensor("p0").unwrap();
    let (x, y) = data();
    let labelled = matches!(what, LossType::CrossEntropy | LossType::MeanSquaredError);
    let dataset = Dataset::new(2, x).unwrap();
    let dataset = if labelled { dataset.with_labels(CLASSES, y).unwrap() } else { dataset };
    let params =
        OptParams::new(what).with_opt_period(period).with_optimizer(AdamW::new().with_alpha(0.05).with_wd(0.01));
    let mut opt = OptContext::new([p], params).unwrap();
    let ctx = Context::new();
    let (inputs, outs) = model(&ctx, p, batch);
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let mut sched = cpu();
    let first = opt.epoch(&mut sched, &graphs, &dataset, N, |_| {}).unwrap();
    for _ in 0..4 {
        opt.epoch(&mut sched, &graphs, &dataset, N, |_| {}).unwrap();
    }
    assert_eq!(opt.steps() as usize, 5 * N / batch / period as usize);
    // The loss is per datapoint, independent of the number of batches per step.
    let expected = outputs(&waves(2 * CLASSES, 0.0, 0.1), &data().0);
    let losses =
        expected.iter().zip(data().1.chunks_exact(CLASSES)).map(|(o, l)| loss_of(what, o, l)).collect::<Vec<_>>();
    if period as usize * batch == N {
        let mean = if what == LossType::Sum { 1.0 } else { N as f64 };
        let value = losses.iter().sum::<f64>() / mean;
        assert!((first.train.loss().unwrap().value - value).abs() < 1e-5, "{what:?} {batch} {period}");
    }
    p.read().unwrap()
}

#[test]
fn opt_period_of_several_batches_equals_one_large_batch() {
    for what in ALL {
        for steps in [1, 2] {
            let whole = trained(what, N / steps, 1);
            for period in [2, 4] {
                let batch = N / steps / period as usize;
                let parts = trained(what, batch, period);
                let near = whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5);
                assert!(near, "{what:?}, {steps} steps, {period}: {whole:?} {parts:?}");
            }
        }
    }
}

/// Graphs of alternating sizes, built anew for each batch, while the moments persist; compared with plain Rust.
#[test]
fn opt_graphs_may_be_built_for_each_batch() {
    let how = AdamW::new().with_alpha(0.05);
    let state = parameter();
    let p = state.tensor("p0").unwrap();
    let params = OptParams::new(LossType::MeanSquaredError).with_optimizer(how);
    let mut opt = OptContext::new([p], params).unwrap();
    let mut sched = cpu();
    let mut result = OptResult::new();
    let mut expected: Vec<f64> = waves(2 * CLASSES, 0.0, 0.1).into_iter().map(f64::from).collect();
    let (mut m, mut v) = (vec![0.0; 6], vec![0.0; 6]);
    let mut ctx = Context::new();
    let mut weighted = 0.0;
    for (step, n) in [3_usize, 1, 4, 4, 2, 5].into_iter().enumerate() {
        let (x, y) = (waves(2 * n, step as f32, 0.3), waves(CLASSES * n, 1.0 + step as f32, 0.0));
        {
            let (inputs, outs) = model(&ctx, p, n);
            let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
            let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
            run.set(inputs, &x).unwrap();
            run.set(graphs.labels().unwrap(), &y).unwrap();
            weighted += f64::from(run.eval(Some(&mut result)).unwrap()) * n as f64;
        }
        ctx.reset();
        let mut g = [0.0; 6];
        for (x, y) in x.chunks_exact(2).zip(y.chunks_exact(CLASSES)) {
            for c in 0..CLASSES {
                let out: f64 = (0..2).map(|k| expected[2 * c + k] * f64::from(x[k])).sum();
                for k in 0..2 {
                    g[2 * c + k] += 2.0 * (out - f64::from(y[c])) * f64::from(x[k]) / (n * CLASSES) as f64;
                }
            }
        }
        let t = step as i32 + 1;
        for i in 0..6 {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
            expected[i] -= 0.05 * (m[i] / (1.0 - 0.9_f64.powi(t))) / ((v[i] / (1.0 - 0.999_f64.powi(t))).sqrt() + 1e-8);
        }
    }
    let got: Vec<f32> = p.read().unwrap();
    assert!(got.iter().zip(&expected).all(|(&a, b)| (f64::from(a) - b).abs() < 1e-4), "{got:?} {expected:?}");
    assert_eq!((opt.steps(), result.ndata(), result.nbatches()), (6, 19, 6));
    assert!((result.loss().unwrap().value - weighted / 19.0).abs() < 1e-9, "the mean of datapoints, not of batches");
}

/// Gradients are summed until a reset, and the parameters stay unchanged.
#[test]
fn opt_grad_only_sums_gradients() {
    let state = parameter();
    let p = state.tensor("p0").unwrap();
    let before: Vec<f32> = p.read().unwrap();
    let params = OptParams::new(LossType::Sum).with_build_type(BuildType::Grad);
    let mut opt = OptContext::new([p], params).unwrap();
    let ctx = Context::new();
    let (inputs, outs) = model(&ctx, p, 1);
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let mut sched = cpu();
    let mut feed = |opt: &mut OptContext<'_>, x: [f32; 2]| {
        let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
        run.set(inputs, &x).unwrap();
        run.eval(None).unwrap();
    };
    let sum = |opt: &OptContext<'_>| opt.grad_acc(p).unwrap().read::<f32>().unwrap();
    feed(&mut opt, [1.0, 2.0]);
    assert_eq!(sum(&opt), [1.0, 2.0].repeat(CLASSES));
    feed(&mut opt, [0.5, -1.0]);
    assert_eq!(sum(&opt), [1.5, 1.0].repeat(CLASSES));
    opt.reset(false).unwrap();
    assert_eq!(sum(&opt), [0.0; 2 * CLASSES]);
    feed(&mut opt, [3.0, 4.0]);
    assert_eq!(sum(&opt), [3.0, 4.0].repeat(CLASSES));
    assert_eq!((opt.steps(), p.read::<f32>().unwrap()), (0, before));
    assert!(opt.grad_acc(inputs).is_none());
    assert!(OptContext::new([p], OptParams::new(LossType::Sum)).unwrap().grad_acc(p).is_none());
}

/// After a reset, an optimisation behaves like a new one, and forgets an unfinished period.
#[test]
fn opt_reset_restarts_optimizer_and_period() {
    let (x, y) = data();
    let dataset = Dataset::new(2, x).unwrap().with_labels(CLASSES, y).unwrap();
    let state = parameter();
    let p = state.tensor("p0").unwrap();
    let params = OptParams::new(LossType::CrossEntropy).with_opt_period(2);
    let mut opt = OptContext::new([p], params).unwrap();
    let ctx = Context::new();
    let (inputs, outs) = model(&ctx, p, 2);
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let mut sched = cpu();
    let mut epoch = |opt: &mut OptContext<'_>, n| {
        state.set("p0", &waves(2 * CLASSES, 0.0, 0.1)).unwrap();
        opt.epoch(&mut sched, &graphs, &dataset, n, |_| {}).unwrap();
        p.read::<f32>().unwrap()
    };
    let first = epoch(&mut opt, N);
    assert_ne!(epoch(&mut opt, N), first, "moments stay");
    assert_eq!(opt.steps(), 4);
    // Six datapoints are one and a half steps.
    epoch(&mut opt, 6);
    assert!(opt.grad_acc(p).unwrap().read::<f32>().unwrap().iter().any(|&g| g != 0.0));
    opt.reset(true).unwrap();
    assert_eq!(opt.steps(), 0);
    assert_eq!(opt.grad_acc(p).unwrap().read::<f32>().unwrap(), [0.0; 2 * CLASSES]);
    assert_eq!(epoch(&mut opt, N), first, "bit for bit");
}

#[test]
fn opt_schedule_is_called_before_each_step() {
    let (x, y) = data();
    let dataset = Dataset::new(2, x).unwrap().with_labels(CLASSES, y).unwrap();
    let run = |schedule: bool| {
        let state = parameter();
        let p = state.tensor("p0").unwrap();
        let rate = |step: u32| Sgd::new().with_alpha(0.1 / step as f32);
        let params = OptParams::new(LossType::MeanSquaredError).with_optimizer(Sgd::new()).with_opt_period(2);
        let mut asked = Vec::new();
        let mut opt = OptContext::new([p], params).unwrap();
        if schedule {
            opt = opt.with_schedule(|m| {
                asked.push((m.step, m.epoch));
                rate(m.step).into()
            });
        }
        let ctx = Context::new();
        let (inputs, outs) = model(&ctx, p, 2);
        let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
        let mut sched = cpu();
        for epoch in 0..2 {
            if schedule {
                opt.epoch(&mut sched, &graphs, &dataset, N, |_| {}).unwrap();
                continue;
            }
            // The same by hand.
            for i in 0..4 {
                opt.set_optimizer(rate(1 + 2 * epoch + i / 2)).unwrap();
                let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
                run.set_batch(&dataset, i as usize).unwrap();
                run.eval(None).unwrap();
            }
        }
        drop(opt);
        if schedule {
            assert_eq!(asked, [(1, 1), (2, 1), (3, 2), (4, 2)]);
        }
        p.read::<f32>().unwrap()
    };
    assert_eq!(run(true), run(false));
}

/// A model that is only evaluated needs no parameters, and its weights may be frozen.
#[test]
fn opt_evaluates_frozen_weights() {
    let (x, y) = data();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [2, CLASSES as i64]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.set("w", &waves(2 * CLASSES, 0.0, 0.1)).unwrap();
    let params = OptParams::new(LossType::CrossEntropy).with_build_type(BuildType::Forward);
    let mut opt = OptContext::new([], params).unwrap();
    let ctx = Context::new();
    let (inputs, outs) = model(&ctx, weights.tensor("w").unwrap(), N);
    let graphs = opt.graphs(&ctx, inputs, outs).unwrap();
    let dataset = Dataset::new(2, x).unwrap().with_labels(CLASSES, y).unwrap();
    let result = opt.evaluate(&mut cpu(), &graphs, &dataset, 0..N, |_| {}).unwrap();
    assert_eq!(result.pred().len(), N);
}

/// Of `n` numbers that vary alike and independently, the variance of the sum is `n` times that of one: 6 times 3.5 for 0 to 5.
/// (`ggml_opt_result_loss` returns that of one.)
#[test]
fn uncertainty_of_a_sum_is_that_of_all_batches() {
    let state = state(&[[1, 1, 1, 1]]);
    state.set("p0", &[1.0_f32]).unwrap();
    let p = state.tensor("p0").unwrap();
    for (what, value, variance) in [(LossType::Sum, 15.0, 21.0_f64), (LossType::Mean, 2.5, 3.5 / 6.0)] {
        let mut opt = OptContext::new([p], OptParams::new(what)).unwrap();
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [1, 1]).unwrap();
        let graphs = opt.graphs(&ctx, x, ctx.mul_mat(p, x).unwrap()).unwrap();
        let dataset = Dataset::new(1, vec![0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let loss = opt.evaluate(&mut cpu(), &graphs, &dataset, 0..6, |_| ()).unwrap().loss().unwrap();
        assert!((loss.value - value).abs() < 1e-9, "{what:?}: {loss:?}");
        assert!((loss.uncertainty.unwrap() - variance.sqrt()).abs() < 1e-9, "{what:?}: {loss:?}");
    }
}
