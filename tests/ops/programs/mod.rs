//! Random programs: whatever is asked of builders, nothing ends the process, reads beyond a tensor or runs for ever, and
//! what is computed is what the model computes.

mod model;
mod step;

use std::cell::Cell;

use ggml::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Array, Lab, Layout, ne, refused};
use model::Model;
use step::{Known, Step, apply};

/// What a program starts with: shapes that fit each other here and there, of all sorts of types.
const INPUTS: [([usize; 4], DType); 8] = [
    ([4, 6, 2, 1], DType::F32),
    ([4, 3, 2, 1], DType::F32),
    ([4, 1, 1, 1], DType::F32),
    ([1, 6, 1, 2], DType::F32),
    ([4, 6, 2, 1], DType::F16),
    ([3, 4, 2, 1], DType::BF16),
    ([32, 3, 2, 1], DType::Q8_0),
    ([32, 2, 2, 1], DType::F32),
];

/// What copies may be written to: parts of states, some with gaps.
const TARGETS: [[i64; 4]; 3] = [[4, 6, 2, 1], [4, 3, 2, 1], [6, 4, 1, 1]];

fn dimension() -> impl Strategy<Value = i64> {
    prop_oneof![
        20 => 1_i64..7,
        3 => prop::sample::select(vec![8_i64, 12, 24, 32, 48, 64]),
        1 => prop::sample::select(vec![0_i64, -1, i64::MIN, i64::MAX, 1 << 31, 1 << 40, 1 << 62]),
    ]
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        20 => (0_usize..30).prop_map(|n| 4 * n),
        4 => (0_usize..60).prop_map(|n| 2 * n),
        2 => (0_usize..12).prop_map(|n| 34 * n),
        1 => prop::sample::select(vec![1_usize, 3, 7, 1 << 31, 1 << 40, usize::MAX - 3, usize::MAX]),
    ]
}

fn axes() -> impl Strategy<Value = [usize; 4]> {
    prop_oneof![
        9 => Just([0, 1, 2, 3]).prop_shuffle(),
        1 => prop::array::uniform4(0_usize..6),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0_usize..1000;
    let dtype = prop::sample::select(vec![DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::I32]);
    let shape = || prop::array::uniform4(dimension());
    // A row length, rows, and ones: what most parts look like.
    let part = (dimension(), dimension(), 1_i64..3).prop_map(|(n0, n1, n2)| [n0, n1, n2, 1]);
    let looks = prop_oneof![
        (n(), shape()).prop_map(|(a, s)| Step::Reshape(a, s)),
        (n(), prop::sample::select(TARGETS.to_vec())).prop_map(|(a, s)| Step::Reshape(a, s)),
        (n(), axes()).prop_map(|(a, x)| Step::Permute(a, x)),
        n().prop_map(Step::Transpose),
        (n(), part, prop::array::uniform3(bytes()), bytes()).prop_map(|(a, s, b, o)| Step::View(a, s, b, o)),
        (n(), 1_i64..5, 1_i64..4, 1_usize..40, bytes())
            .prop_map(|(a, n0, n1, s, o)| { Step::View(a, [n0, n1, 1, 1], [4 * s, 0, 4], o) }),
    ];
    let makes = prop_oneof![
        n().prop_map(Step::Neg),
        n().prop_map(Step::Relu),
        n().prop_map(Step::LeakyRelu),
        n().prop_map(Step::Scale),
        n().prop_map(Step::Clamp),
        n().prop_map(Step::SumRows),
        n().prop_map(Step::SoftMax),
        n().prop_map(Step::Cont),
        (n(), dtype).prop_map(|(a, t)| Step::Cast(a, t)),
        (n(), n()).prop_map(|(a, b)| Step::Add(a, b)),
        (n(), n()).prop_map(|(a, b)| Step::Mul(a, b)),
        (n(), n()).prop_map(|(a, b)| Step::MulMat(a, b)),
        (n(), n()).prop_map(|(a, b)| Step::OutProd(a, b)),
        n().prop_map(Step::CumSum),
        n().prop_map(Step::Tri),
        (n(), prop::sample::select(vec![0, 1, 3, -1, i32::MAX])).prop_map(|(a, n)| Step::DiagMask(a, n)),
        (n(), n()).prop_map(|(a, b)| Step::GluSplit(a, b)),
        (n(), n()).prop_map(|(a, b)| Step::Repeat(a, b)),
        (n(), n()).prop_map(|(a, b)| Step::Cpy(a, b)),
        (n(), n(), 0_usize..5).prop_map(|(a, b, d)| Step::Concat(a, b, d)),
    ];
    prop_oneof![looks, makes]
}

/// Runs a program, and says how many of its steps were computed.
fn run(steps: &[Step]) -> usize {
    let mut builder = WeightsBuilder::new();
    for i in 0..TARGETS.len() {
        builder.tensor(&i.to_string(), DType::F32, [8, 8, 2]).unwrap();
    }
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let mut known: Vec<Known<'_>> = Vec::new();
    for (seed, (shape, dtype)) in INPUTS.into_iter().enumerate() {
        let (t, values) = lab.operand(&Array::sample(shape, seed as u64 + 1, -2.0, 2.0), dtype, Layout::Plain);
        known.push((t, Model::new(&values, dtype, 0.0).unwrap()));
    }
    let mut targets: Vec<Known<'_>> = Vec::new();
    for (i, shape) in TARGETS.into_iter().enumerate() {
        let whole = state.get(&i.to_string()).unwrap();
        let model = Model::new(&Array::of(ne([8, 8, 2]), |_| 0.0), DType::F32, 0.0).unwrap();
        let [nb0, nb1, nb2, nb3] = model.nb;
        let (offset, nb) = (i * nb1 + 2 * nb0, [nb0, nb1, nb2, nb3]);
        let part = model.view(shape.map(|n| n as usize), nb, offset);
        targets.push((ctx.view(whole, shape, [nb1, nb2, nb3], offset).unwrap(), part));
    }
    let mut outputs: Vec<(Tensor<'_>, Model, &Step)> = Vec::new();
    for step in steps {
        let (t, model) = match apply(step, &ctx, &known, &mut targets) {
            Ok(made) => made,
            // The check comes before C's own, which would be told in C's words.
            Err(e @ (Error::Ggml { .. } | Error::Exception { .. })) => panic!("{step:?} of {steps:?}: {e}"),
            Err(_) => continue,
        };
        let (Some(model), true) = (model, t.elements() < 1 << 14) else { continue };
        // A copy of it is what can be read; where there is no kernel for the one or the other, nothing follows from it.
        let y = ctx.cont(t).unwrap();
        match lab.accepted(y) {
            Ok(()) => {}
            refusal => {
                refused!(Unsupported, refusal);
                continue;
            }
        }
        known.push((t, model.clone()));
        outputs.push((y, model, step));
    }
    if outputs.is_empty() {
        return 0;
    }
    let tensors: Vec<_> = outputs.iter().map(|(y, ..)| *y).collect();
    let all = lab.run_all(&tensors).unwrap();
    // The last by itself, so that memory of what it is made from is reused.
    let last = lab.run(tensors[tensors.len() - 1]).unwrap();
    for ((_, model, step), got) in outputs.iter().zip(all).chain(outputs.last().map(|o| (o, last))) {
        let want = model.array();
        assert_eq!(got.ne, want.ne, "{step:?} of {steps:?}");
        for (i, (g, w)) in got.data.iter().zip(&want.data).enumerate() {
            let near = (g - w).abs() <= model.error + 1e-6;
            assert!(near, "{step:?}: element {i} is {g}, should be {w} to within {}, in {steps:?}", model.error);
        }
    }
    outputs.len()
}

#[test]
fn random_programs_compute_what_the_model_computes_or_are_refused() {
    const CASES: u32 = 256;
    let config = Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let computed = Cell::new(0);
    TestRunner::new(config)
        .run(&prop::collection::vec(step(), 1..16), |steps| {
            computed.set(computed.get() + run(&steps));
            Ok(())
        })
        .unwrap();
    assert!(computed.get() > 2 * CASES as usize, "too little is computed: {} steps", computed.get());
}
