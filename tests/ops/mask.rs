//! Masks, diagonals and triangles.

use ggml::Result;
use ggml::ops::TriType;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, assert_in_place, ne, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>, i32) -> Result<Tensor<'c>>;

/// A method, its in-place variant, and the value for the future.
const FUTURES: &[(&str, Build, Build, f64)] = &[
    ("inf", |c, a, n| c.diag_mask_inf(a, n), |c, a, n| c.diag_mask_inf_inplace(a, n), f64::NEG_INFINITY),
    ("zero", |c, a, n| c.diag_mask_zero(a, n), |c, a, n| c.diag_mask_zero_inplace(a, n), 0.0),
];

#[test]
fn diag_mask_hides_later_positions() {
    for &(name, build, in_place, value) in FUTURES {
        for n_past in [0, 2, 9] {
            let sample = Array::sample(ne([6, 4, 2, 2]), 4, -2.0, 2.0);
            let masked = |x: &Array| Array::of(x.ne, |i| if i[0] > i[1] + n_past as usize { value } else { x.at(i) });
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (x, values) = lab.plain(&sample);
                let got = lab.run_all(&[build(&ctx, x, n_past).unwrap(), x]).unwrap();
                assert_close(&got[0], &masked(&values), 0.0, &format!("{name} {n_past}"));
                assert_close(&got[1], &values, 0.0, "the operand keeps its value");
            }
            assert_in_place(name, &sample, &masked(&sample), 1e-6, |lab, a| in_place(lab.ctx, a, n_past));
        }
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [6, 4]).unwrap();
        let made = ctx.dup(x).unwrap();
        let half = ctx.input("h", DType::F16, [6, 4]).unwrap();
        for (build, x) in [(build, x), (in_place, made)] {
            for n_past in [-1, i32::MIN, i32::MAX, i32::MAX - 3] {
                refused!(Param, build(&ctx, x, n_past), "{n_past}");
            }
            refused!(Shape, build(&ctx, ctx.transpose(x).unwrap(), 0));
            refused!(DType, build(&ctx, ctx.cast(half, DType::F16).unwrap(), 0));
        }
    }
}

#[test]
fn diag_fills_the_diagonal_and_zeros_the_rest() {
    for shape in [ne([1]), ne([7]), ne([5, 1, 3, 2])] {
        for layout in Layout::ROWS {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -2.0, 2.0), DType::F32, layout);
            let want = Array::of([shape[0], shape[0], shape[2], shape[3]], |[i0, i1, i2, i3]| {
                if i0 == i1 { values.at([i0, 0, i2, i3]) } else { 0.0 }
            });
            assert_close(&lab.run(ctx.diag(x).unwrap()).unwrap(), &want, 0.0, &format!("{shape:?} {layout:?}"));
        }
    }
    let ctx = Context::new();
    refused!(Shape, ctx.diag(ctx.input("x", DType::F32, [4, 2]).unwrap()));
    let column = ctx.view(ctx.input("y", DType::F32, [2, 4]).unwrap(), [1, 4], [8, 32, 32], 0).unwrap();
    refused!(Shape, ctx.diag(ctx.transpose(column).unwrap()), "elements with gaps");
    refused!(DType, ctx.diag(ctx.input("x", DType::F16, [4]).unwrap()));
    refused!(Shape, ctx.diag(ctx.input("x", DType::F32, [1_i64 << 40]).unwrap()), "the result is too large");
}

/// Whether an element is kept, by column and row.
type Kept = fn(usize, usize) -> bool;

#[test]
fn tri_keeps_its_triangle() {
    let kinds: [(TriType, Kept); 4] = [
        (TriType::Lower, |column, row| column < row),
        (TriType::LowerDiag, |column, row| column <= row),
        (TriType::Upper, |column, row| column > row),
        (TriType::UpperDiag, |column, row| column >= row),
    ];
    for shape in [ne([1, 1]), ne([5, 5]), ne([4, 4, 3, 2])] {
        for (kind, kept) in kinds {
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (x, values) = lab.plain(&Array::sample(shape, 4, -2.0, 2.0));
                let want = Array::of(shape, |i| if kept(i[0], i[1]) { values.at(i) } else { 0.0 });
                let got = lab.run(ctx.tri(x, kind).unwrap()).unwrap();
                assert_close(&got, &want, 0.0, &format!("{kind:?} {shape:?}"));
            }
        }
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 4]).unwrap();
    refused!(Shape, ctx.tri(ctx.input("x", DType::F32, [4, 3]).unwrap(), TriType::Lower));
    refused!(Shape, ctx.tri(ctx.transpose(x).unwrap(), TriType::Lower));
    refused!(DType, ctx.tri(ctx.input("x", DType::F16, [4, 4]).unwrap(), TriType::Upper));
}
