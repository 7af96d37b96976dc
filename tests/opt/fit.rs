//! Training loops: models that learn, and mismatched data.

use std::collections::BTreeSet;

use ggml::Threads;
use ggml::opt::{AdamW, Dataset, Fit, LossType, OptContext, OptParams};
use ggml::prelude::*;

use super::{cpu, state, waves};

const CLASSES: i64 = 3;

/// Points around three centres, labelled by centre.
fn clusters(n: usize) -> Dataset {
    let noise = waves(2 * n, 0.0, 0.0);
    let places = [[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]];
    let data: Vec<f32> = (0..n).flat_map(|i| [0, 1].map(|k| places[i % 3][k] + noise[2 * i + k])).collect();
    let labels: Vec<f32> = (0..n).flat_map(|i| [0, 1, 2].map(|c| if c == i % 3 { 1.0 } else { 0.0 })).collect();
    Dataset::new(2, data).unwrap().with_labels(3, labels).unwrap()
}

/// Two layers that classify the points.
fn layers<'c>(ctx: &'c Context, p: &[Tensor<'c>], n: i64) -> (Tensor<'c>, Tensor<'c>) {
    let x = ctx.input("x", DType::F32, [2, n]).unwrap();
    let hidden = ctx.relu(ctx.add(ctx.mul_mat(p[0], x).unwrap(), p[1]).unwrap()).unwrap();
    (x, ctx.mul_mat(p[2], hidden).unwrap())
}

fn parameters() -> State {
    let state = state(&[[2, 8, 1, 1], [8, 1, 1, 1], [8, CLASSES, 1, 1]]);
    state.set("p0", &waves(16, 0.0, 0.0)).unwrap();
    state.set("p2", &waves(24, 1.0, 0.0)).unwrap();
    state
}

fn params(period: u32) -> OptParams {
    OptParams::new(LossType::CrossEntropy).with_opt_period(period).with_optimizer(AdamW::new().with_alpha(0.02))
}

/// The result of a fit: parameters, training and evaluation results.
fn fitted(seed: u64, threads: usize) -> (Vec<f32>, ggml::opt::Epoch) {
    let state = parameters();
    let p: Vec<_> = state.iter().collect();
    let mut dataset = clusters(120);
    let mut opt = OptContext::new(&p, params(2)).unwrap();
    let ctx = Context::new();
    let (x, y) = layers(&ctx, &p, 5);
    let graphs = opt.graphs(&ctx, x, y).unwrap();
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(Threads::new(threads).with_all(true)).unwrap();
    let mut sched = Sched::builder().backend(cpu).build().unwrap();
    let how = Fit::new(20).with_val_split(0.25).with_seed(seed);
    let mut lines = BTreeSet::new();
    let mut calls = 0;
    let last = opt
        .fit(&mut sched, &graphs, &mut dataset, how, |p| {
            calls += 1;
            assert!(p.ibatch >= 1 && p.ibatch <= p.ibatch_max && p.result.nbatches() == p.ibatch);
            assert_eq!(p.ibatch_max, if p.train { 18 } else { 6 });
            let line = p.to_string();
            let parts = [" loss=", "± acc=", "% t=00:00:", " ETA=00:00:"].iter().all(|part| {
                // After the first batch there is no uncertainty yet.
                part.split('±').all(|part| line.contains(part))
            });
            assert!(parts && line.contains(&format!("batch={}/{}", p.ibatch, p.ibatch_max)), "{line}");
            lines.insert(line.split(' ').next().unwrap().to_owned());
        })
        .unwrap();
    assert_eq!((calls, opt.steps()), (20 * 24, 20 * 9));
    assert_eq!(lines.into_iter().collect::<Vec<_>>(), ["train", "val"]);
    (p.iter().flat_map(|t| t.read::<f32>().unwrap()).collect(), last)
}

#[test]
fn fit_learns_to_separate_clusters() {
    let (_, last) = fitted(1, 1);
    assert_eq!((last.train.ndata(), last.eval.ndata()), (90, 30));
    for result in [&last.train, &last.eval] {
        let accuracy = result.accuracy().unwrap();
        assert!(accuracy.value > 0.95, "{accuracy:?}");
        assert!(result.loss().unwrap().value < 0.3, "{:?}", result.loss());
    }
}

#[test]
fn fit_is_deterministic_for_a_seed() {
    let first = fitted(1, 1);
    assert_eq!(first, fitted(1, 1));
    assert_ne!(first, fitted(2, 1));
    // The summation order of losses may depend on threads, that of gradients not.
    assert_eq!(first.0, fitted(1, 2).0, "whatever the number of threads");
}

/// An embedding table is trained through row indices.
#[test]
fn fit_trains_an_embedding_table() {
    let state = state(&[[4, 6, 1, 1]]);
    let p = state.tensor("p0").unwrap();
    let ctx = Context::new();
    let rows = ctx.input("rows", DType::I32, [8]).unwrap();
    let y = ctx.get_rows(p, rows).unwrap();
    let params = OptParams::new(LossType::MeanSquaredError).with_optimizer(AdamW::new().with_alpha(0.05));
    let mut opt = OptContext::new([p], params).unwrap();
    let graphs = opt.graphs(&ctx, rows, y).unwrap();
    // Row 4 is never used.
    let numbers: Vec<i32> = (0..32).map(|i| [0, 1, 2, 3, 5][i % 5]).collect();
    let labels: Vec<f32> = numbers.iter().flat_map(|&n| [0, 1, 2, 3].map(|i| (n * 4 + i) as f32 / 24.0)).collect();
    let mut dataset = Dataset::new(1, numbers).unwrap().with_labels(4, labels).unwrap();
    let how = Fit::new(100);
    opt.fit(&mut cpu(), &graphs, &mut dataset, how, |_| {}).unwrap();
    for (i, &value) in p.read::<f32>().unwrap().iter().enumerate() {
        let expected = if i / 4 == 4 { 0.0 } else { i as f32 / 24.0 };
        assert!((value - expected).abs() < 0.01, "{i}: {value} {expected}");
    }
    // Indices out of bounds of the table are an error, not a crash.
    dataset.data_mut()[3] = 6;
    assert!(matches!(opt.fit(&mut cpu(), &graphs, &mut dataset, how, |_| {}), Err(Error::Index { value: 6, .. })));
}

#[test]
fn h30_fit_refuses_sizes_that_do_not_match() {
    let state = parameters();
    let p: Vec<_> = state.iter().collect();
    let before: Vec<f32> = p[0].read().unwrap();
    let mut opt = OptContext::new(&p, params(2)).unwrap();
    let ctx = Context::new();
    let (x, y) = layers(&ctx, &p, 4);
    let graphs = opt.graphs(&ctx, x, y).unwrap();
    let unnamed = opt.graphs(&ctx, None, y).unwrap();
    let mut sched = cpu();
    let name = |result: ggml::Result<()>| match result {
        Err(Error::Param { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let good = clusters(12);
    let wide = Dataset::new(3, vec![0.0_f32; 36]).unwrap().with_labels(3, vec![0.0; 36]).unwrap();
    let bare = Dataset::new(2, vec![0.0_f32; 24]).unwrap();
    let short = Dataset::new(2, vec![0.0_f32; 24]).unwrap().with_labels(2, vec![0.0; 24]).unwrap();
    let mut epoch = |graphs, data: &Dataset, split| name(opt.epoch(&mut sched, graphs, data, split, |_| {}).map(drop));
    assert_eq!(epoch(&unnamed, &good, 12), "inputs");
    assert_eq!(epoch(&graphs, &wide, 12), "ne_datapoint");
    assert_eq!(epoch(&graphs, &bare, 12), "ne_label");
    assert_eq!(epoch(&graphs, &short, 12), "ne_label");
    assert_eq!(epoch(&graphs, &good, 13), "range");
    assert_eq!(epoch(&graphs, &good, 3), "range");
    assert_eq!(epoch(&graphs, &good, 0), "range");
    let shards = good.clone().with_shards(3).unwrap();
    assert_eq!(epoch(&graphs, &shards, 4), "range");
    assert_eq!(epoch(&graphs, &shards, 6), "data_batch", "a batch is no whole number of shards");
    let mut range = |range| name(opt.evaluate(&mut sched, &graphs, &good, range, |_| {}).map(drop));
    assert_eq!(range(0..16), "range");
    assert_eq!(range(8..10), "range");
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    let reversed = 8..4;
    assert_eq!(range(reversed), "range");

    let mut fit = |nepoch, val_split, n| {
        let how = Fit::new(nepoch).with_val_split(val_split);
        name(opt.fit(&mut sched, &graphs, &mut clusters(n), how, |_| {}).map(drop))
    };
    assert_eq!(fit(0, 0.0, 12), "nepoch");
    for val_split in [1.0, -0.1, f32::NAN, f32::INFINITY] {
        assert_eq!(fit(1, val_split, 12), "val_split");
    }
    assert_eq!(fit(1, 0.9, 16), "val_split", "nothing is left for a step");
    assert_eq!(fit(1, 0.0, 7), "val_split", "fewer data than a step takes");
    for none in [f32::NAN, f32::INFINITY] {
        let mut bad = clusters(12);
        bad.data_mut()[5] = none;
        assert_eq!(name(opt.epoch(&mut sched, &graphs, &bad, 12, |_| {}).map(drop)), "data_batch");
    }
    let mut run = opt.alloc(&mut sched, &graphs, true).unwrap();
    assert_eq!(name(run.set_batch(&good, 3)), "ibatch");
    assert_eq!(name(run.set_batch(&good, usize::MAX)), "ibatch");
    let ints = Dataset::new(2, vec![0_i32; 24]).unwrap().with_labels(3, vec![0.0; 36]).unwrap();
    assert!(matches!(run.set_batch(&ints, 0), Err(Error::ElementType { .. })));
    drop(run);
    assert_eq!((opt.steps(), p[0].read::<f32>().unwrap()), (0, before), "nothing moved");
}
