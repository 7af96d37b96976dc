//! Reductions and norms of rows.

use ggml::Result;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;

fn sum(row: &[f64]) -> f64 {
    row.iter().sum()
}

fn mean(row: &[f64]) -> f64 {
    sum(row) / row.len() as f64
}

fn squares(row: &[f64]) -> f64 {
    row.iter().map(|x| x * x).sum()
}

pub(crate) const EPS: f32 = 1e-2;

pub(crate) fn normalised(row: &[f64]) -> Vec<f64> {
    let m = mean(row);
    let centred: Vec<f64> = row.iter().map(|x| x - m).collect();
    let deviation = (squares(&centred) / row.len() as f64 + f64::from(EPS)).sqrt();
    centred.into_iter().map(|x| x / deviation).collect()
}

fn scaled(row: &[f64], by: f64) -> Vec<f64> {
    row.iter().map(|x| x / by).collect()
}

pub(crate) fn by_root_of_mean_square(row: &[f64]) -> Vec<f64> {
    scaled(row, (squares(row) / row.len() as f64 + f64::from(EPS)).sqrt())
}

pub(crate) fn by_length(row: &[f64]) -> Vec<f64> {
    scaled(row, squares(row).sqrt().max(f64::from(EPS)))
}

pub(crate) fn cumulated(row: &[f64]) -> Vec<f64> {
    (1..=row.len()).map(|n| sum(&row[..n])).collect()
}

/// A method, and its reference for a row.
type Case = (&'static str, Build, fn(&[f64]) -> Vec<f64>);

const ROWS: &[Case] = &[
    ("sum_rows", |c, a| c.sum_rows(a), |r| vec![sum(r)]),
    ("mean", |c, a| c.mean(a), |r| vec![mean(r)]),
    ("cumsum", |c, a| c.cumsum(a), cumulated),
    ("norm", |c, a| c.norm(a, EPS), normalised),
    ("rms_norm", |c, a| c.rms_norm(a, EPS), by_root_of_mean_square),
    ("l2_norm", |c, a| c.l2_norm(a, EPS), by_length),
];

const SHAPES: [[usize; 4]; 4] = [[1, 1, 1, 1], [37, 1, 1, 1], [5, 3, 2, 2], [64, 1, 4, 1]];

/// Whether the function takes rows that are not contiguous.
fn takes_any_layout(name: &str) -> bool {
    matches!(name, "norm" | "l2_norm")
}

#[test]
fn row_functions_equal_plain_rust() {
    for layout in Layout::ALL {
        for shape in SHAPES {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -2.0, 3.0), DType::F32, layout);
            let rows = Layout::ROWS.contains(&layout);
            let able = || ROWS.iter().filter(|(name, ..)| rows || takes_any_layout(name));
            let outputs: Vec<_> = able().map(|(_, build, _)| build(&ctx, x).unwrap()).collect();
            for ((name, _, f), got) in able().zip(lab.run_all(&outputs).unwrap()) {
                assert_close(&got, &values.rows(f), 2e-5, &format!("{name} {shape:?} {layout:?}"));
            }
        }
    }
}

/// A row of zeros is divided by `eps`, not by zero.
#[test]
fn norms_of_zero_rows_are_zero() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::of(ne([8, 2]), |_| 0.0));
    let outputs = [ctx.norm(x, EPS), ctx.rms_norm(x, EPS), ctx.l2_norm(x, EPS)].map(Result::unwrap);
    for got in lab.run_all(&outputs).unwrap() {
        assert_close(&got, &values, 0.0, "zeros");
    }
}

#[test]
fn sum_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for layout in Layout::ALL {
            for shape in SHAPES {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, values) = lab.operand(&Array::sample(shape, 4, -1.0, 2.0), dtype, layout);
                // Since 0.28, the kernel of f32 uses all strides.
                let any = dtype == DType::F32 && cfg!(ggml_0_28);
                if !any && x.nb()[0] != dtype.type_size() {
                    assert!(ctx.sum(x).and_then(|y| lab.accepted(y)).is_err(), "{dtype} {shape:?} {layout:?}");
                    continue;
                }
                let y = ctx.sum(x).unwrap();
                assert_eq!((y.elements(), y.dtype()), (1, dtype));
                let want = Array { ne: ne([1]), data: vec![sum(&values.data)] };
                assert_close(&lab.run(y).unwrap(), &want, precision(dtype), &format!("{dtype} {shape:?} {layout:?}"));
            }
        }
    }
}

#[test]
fn argmax_finds_the_largest_of_each_row() {
    for layout in [Layout::Plain, Layout::Gaps] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.operand(&Array::sample(ne([33, 7]), 4, -1.0, 2.0), DType::F32, layout);
        let y = ctx.argmax(x).unwrap();
        assert_eq!(y.dtype(), DType::I32);
        let place = |r: &[f64]| r.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as f64;
        let want = Array { ne: ne([7]), data: values.data.chunks(33).map(place).collect() };
        assert_close(&lab.run(y).unwrap(), &want, 0.0, &format!("{layout:?}"));
    }
    let ctx = Context::new();
    refused!(Shape, ctx.argmax(ctx.input("x", DType::F32, [4, 3, 2]).unwrap()));
    refused!(Shape, ctx.argmax(ctx.input("x", DType::F32, [4, 3, 1, 2]).unwrap()));
}

#[test]
fn group_norm_equals_plain_rust() {
    for layout in Layout::ROWS {
        for (shape, groups) in [(ne([4, 3, 6, 2]), 3), (ne([4, 3, 6, 2]), 1), (ne([5, 1, 4]), 4)] {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -2.0, 3.0), DType::F32, layout);
            // A group's elements are contiguous in a plain array.
            let size = shape[0] * shape[1] * shape[2] / groups;
            let want = Array { ne: shape, data: values.data.chunks(size).flat_map(normalised).collect() };
            let got = lab.run(ctx.group_norm(x, groups as i32, EPS).unwrap()).unwrap();
            assert_close(&got, &want, 2e-5, &format!("{shape:?} {groups} {layout:?}"));
        }
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3, 6]).unwrap();
    for groups in [0, -1, 4, 7, i32::MIN, i32::MAX] {
        refused!(Param, ctx.group_norm(x, groups, EPS), "{groups}");
    }
}

#[test]
fn row_functions_refuse_operands_without_a_kernel() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2, 2]).unwrap();
    let half = ctx.input("half", DType::F16, [4, 2, 2]).unwrap();
    let ints = ctx.input("ints", DType::I32, [4, 2]).unwrap();
    let turned = ctx.transpose(x).unwrap();
    let matrix = ctx.transpose(ctx.input("m", DType::F32, [4, 2]).unwrap()).unwrap();
    for (name, build, _) in ROWS {
        refused!(DType, build(&ctx, half), "{name}");
        if !takes_any_layout(name) {
            refused!(Shape, build(&ctx, turned), "{name}");
        }
    }
    refused!(DType, ctx.sum(ints));
    refused!(Shape, ctx.sum(ctx.transpose(half).unwrap()));
    refused!(DType, ctx.argmax(ints));
    refused!(Shape, ctx.argmax(matrix));
    refused!(DType, ctx.group_norm(half, 1, EPS));
    refused!(Shape, ctx.group_norm(turned, 1, EPS));
    for eps in [-1e-3, f32::NAN, f32::INFINITY] {
        refused!(Param, ctx.norm(x, eps), "{eps}");
        refused!(Param, ctx.rms_norm(x, eps), "{eps}");
        refused!(Param, ctx.l2_norm(x, eps), "{eps}");
        refused!(Param, ctx.group_norm(x, 1, eps), "{eps}");
    }
}

/// The CPU fuses `rms_norm` with the product after it, but must not if the norm has other uses.
#[test]
fn rms_norm_fused_with_mul_equals_plain_rust() {
    for weights in [ne([16]), ne([16, 3]), ne([16, 1, 2]), ne([1]), ne([8, 3])] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.operand(&Array::sample(ne([16, 3, 2]), 4, -2.0, 3.0), DType::F32, Layout::Gaps);
        let (w, rw) = lab.plain(&Array::sample(weights, 5, -2.0, 3.0));
        let norm = values.rows(by_root_of_mean_square);
        let weighted = Array::of(norm.ne, |i| norm.at(i) * rw.wrapped(i));
        let alone = ctx.mul(ctx.rms_norm(x, EPS).unwrap(), w).unwrap();
        assert_close(&lab.run(alone).unwrap(), &weighted, 2e-5, &format!("fused {weights:?}"));
        // Used twice, multiplied by itself, and kept.
        let n = ctx.rms_norm(x, EPS).unwrap();
        let outputs = [ctx.mul(n, n).unwrap(), ctx.mul(n, w).unwrap(), n];
        let got = lab.run_all(&outputs).unwrap();
        assert_close(&got[0], &norm.map(|x| x * x), 2e-5, "squared");
        assert_close(&got[1], &weighted, 2e-5, "weighted");
        assert_close(&got[2], &norm, 2e-5, "kept");
        // As the second factor, of a larger one.
        let (large, rl) = lab.plain(&Array::sample(ne([32, 6, 2, 2]), 6, -2.0, 3.0));
        let n = ctx.rms_norm(x, EPS).unwrap();
        let want = Array::of(rl.ne, |i| rl.at(i) * norm.wrapped(i));
        assert_close(&lab.run(ctx.mul(large, n).unwrap()).unwrap(), &want, 2e-5, "second");
    }
}

#[test]
fn count_equal_equals_plain_rust() {
    for shape in [ne([1]), ne([37]), ne([5, 6]), ne([3, 17])] {
        for layout in Layout::ALL {
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let numbers = |seed| Array::sample(shape, seed, 0.0, 3.0).map(f64::floor);
                let (a, of_a) = lab.operand(&numbers(4), DType::I32, layout);
                let (b, of_b) = lab.operand(&numbers(5), DType::I32, Layout::Plain);
                let y = ctx.count_equal(a, b).unwrap();
                assert_eq!(y.dtype(), DType::I64);
                let count = of_a.data.iter().zip(&of_b.data).filter(|(a, b)| a == b).count();
                let want = Array { ne: ne([1]), data: vec![count as f64] };
                assert_close(&lab.run(y).unwrap(), &want, 0.0, &format!("{shape:?} {layout:?}"));
            }
        }
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::I32, [4, 3, 1]);
    refused!(Shape, ctx.count_equal(a, of(DType::I32, [3, 4, 1])));
    refused!(DType, ctx.count_equal(a, of(DType::F32, [4, 3, 1])));
    refused!(DType, ctx.count_equal(of(DType::I64, [4, 3, 1]), a));
}

/// With several planes, the CPU kernel computes the offsets of rows wrongly, and reads out of bounds (H61).
#[test]
fn count_equal_refuses_several_planes() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    for shape in [[4, 3, 2, 1], [4, 1, 1, 2], [4, 3, 2, 2]] {
        let a = ctx.input("a", DType::I32, shape).unwrap();
        refused!(Unsupported, lab.accepted(ctx.count_equal(a, a).unwrap()), "{shape:?}");
    }
}
