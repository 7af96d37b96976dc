//! Hyper-connections. What they compute is in the table.

use ggml::prelude::*;

use crate::support::refused;

#[test]
fn dsv4_hc_comb_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let comb = |mixes, scale, base, eps, n| ctx.dsv4_hc_comb(mixes, scale, base, eps, n);
    let (mixes, scale, base) = (f32s([24, 5, 1, 1]), f32s([3, 1, 1, 1]), f32s([24, 1, 1, 1]));
    assert!(comb(mixes, scale, base, 0.0, 1).is_ok());
    for shape in [[23, 5, 1, 1], [15, 5, 1, 1], [24, 5, 2, 1], [24, 5, 1, 2]] {
        refused!(Shape, comb(f32s(shape), scale, base, 0.0, 1), "{shape:?}");
    }
    for shape in [[2, 1, 1, 1], [3, 2, 1, 1], [3, 1, 2, 1]] {
        refused!(Shape, comb(mixes, f32s(shape), base, 0.0, 1), "{shape:?}");
    }
    for shape in [[23, 1, 1, 1], [25, 1, 1, 1], [24, 2, 1, 1]] {
        refused!(Shape, comb(mixes, scale, f32s(shape), 0.0, 1), "{shape:?}");
    }
    refused!(Param, comb(mixes, scale, base, f32::NAN, 1));
    refused!(Param, comb(mixes, scale, base, 0.0, 0));
    refused!(Param, comb(mixes, scale, base, 0.0, -1));
    refused!(DType, comb(of(DType::F16, [24, 5, 1, 1]), scale, base, 0.0, 1));
    refused!(DType, comb(mixes, of(DType::F16, [3, 1, 1, 1]), base, 0.0, 1));
    refused!(DType, comb(mixes, scale, of(DType::F16, [24, 1, 1, 1]), 0.0, 1));
}

#[test]
fn dsv4_hc_pre_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (x, weights) = (f32s([7, 4, 5, 1]), f32s([4, 5, 1, 1]));
    assert!(ctx.dsv4_hc_pre(x, weights).is_ok());
    refused!(Shape, ctx.dsv4_hc_pre(f32s([7, 4, 5, 2]), weights));
    for shape in [[3, 5, 1, 1], [4, 4, 1, 1], [4, 6, 1, 1], [4, 5, 2, 1], [4, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_pre(x, f32s(shape)), "{shape:?}");
    }
    refused!(DType, ctx.dsv4_hc_pre(of(DType::F16, [7, 4, 5, 1]), weights));
    refused!(DType, ctx.dsv4_hc_pre(x, of(DType::F16, [4, 5, 1, 1])));

    assert!(ctx.dsv4_hc_pre_gated(x, x, 1.0).is_ok());
    for shape in [[6, 4, 5, 1], [7, 3, 5, 1], [7, 4, 4, 1], [7, 4, 5, 2]] {
        refused!(Shape, ctx.dsv4_hc_pre_gated(x, f32s(shape), 1.0), "{shape:?}");
    }
    refused!(Shape, ctx.dsv4_hc_pre_gated(f32s([7, 4, 5, 2]), f32s([7, 4, 5, 2]), 1.0));
    refused!(Param, ctx.dsv4_hc_pre_gated(x, x, f32::INFINITY));
    refused!(DType, ctx.dsv4_hc_pre_gated(x, of(DType::F16, [7, 4, 5, 1]), 1.0));
}

#[test]
fn dsv4_hc_post_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (one, comb) = (f32s([7, 5, 1, 1]), f32s([4, 4, 5, 1]));
    let (x, weights) = (f32s([7, 4, 5, 1]), f32s([4, 5, 1, 1]));
    assert!(ctx.dsv4_hc_post(one, x, weights, Some(comb)).is_ok());
    for shape in [[6, 5, 1, 1], [7, 4, 1, 1], [7, 5, 2, 1], [7, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(f32s(shape), x, weights, None), "{shape:?}");
    }
    refused!(Shape, ctx.dsv4_hc_post(one, f32s([7, 4, 5, 2]), weights, None));
    refused!(Shape, ctx.dsv4_hc_post(one, f32s([7, 3, 5, 1]), weights, None));
    for shape in [[3, 5, 1, 1], [4, 4, 1, 1], [4, 5, 2, 1], [4, 5, 1, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(one, x, f32s(shape), None), "{shape:?}");
    }
    for shape in [[3, 4, 5, 1], [4, 3, 5, 1], [4, 4, 4, 1], [4, 4, 5, 2]] {
        refused!(Shape, ctx.dsv4_hc_post(one, x, weights, Some(f32s(shape))), "{shape:?}");
    }
    for [a, b, c, d] in [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
        let of = |half, shape| of(if half == 1 { DType::F16 } else { DType::F32 }, shape);
        let (one, x) = (of(a, [7, 5, 1, 1]), of(b, [7, 4, 5, 1]));
        let (weights, comb) = (of(c, [4, 5, 1, 1]), of(d, [4, 4, 5, 1]));
        refused!(DType, ctx.dsv4_hc_post(one, x, weights, Some(comb)));
    }
}
