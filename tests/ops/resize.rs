//! Resizing images.

use ggml::ops::{InterpolateMode, InterpolateOptions};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

fn by(mode: InterpolateMode, align_corners: bool, antialias: bool) -> InterpolateOptions {
    InterpolateOptions::new(mode).with_align_corners(align_corners).with_antialias(antialias)
}

/// The position, in a row of `from` pixels, of the centre of pixel `i` of `to`; pixel `k` covers `k` to `k + 1`.
fn centre(i: usize, from: usize, to: usize, align_corners: bool) -> f64 {
    if align_corners && from > 1 && to > 1 {
        return i as f64 * (from - 1) as f64 / (to - 1) as f64 + 0.5;
    }
    // A row of one pixel has no two corners: ggml then aligns the first pixels.
    if align_corners { i as f64 * from as f64 / to as f64 + 0.5 } else { (i as f64 + 0.5) * from as f64 / to as f64 }
}

/// The weight of a pixel whose centre is `distance` away.
fn cubic(distance: f64) -> f64 {
    let (a, x) = (-0.75, distance.abs());
    match x {
        _ if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
        _ if x < 2.0 => a * x.powi(3) - 5.0 * a * x.powi(2) + 8.0 * a * x - 4.0 * a,
        _ => 0.0,
    }
}

fn triangle(distance: f64) -> f64 {
    (1.0 - distance.abs()).max(0.0)
}

/// The pixels that contribute to one of the result, with their weights.
fn weights(i: usize, from: usize, to: usize, how: InterpolateOptions) -> Vec<(usize, f64)> {
    if how.mode == InterpolateMode::Nearest {
        let ratio = if how.align_corners && from > 1 && to > 1 { (from - 1, to - 1) } else { (from, to) };
        return vec![(i * ratio.0 / ratio.1, 1.0)];
    }
    let centre = centre(i, from, to, how.align_corners);
    if how.antialias {
        let reach = (from as f64 / to as f64).max(1.0);
        let all: Vec<_> = (0..from).map(|k| (k, triangle((k as f64 + 0.5 - centre) / reach))).collect();
        let total: f64 = all.iter().map(|(_, w)| w).sum();
        return all.into_iter().map(|(k, w)| (k, w / total)).collect();
    }
    // Pixels out of bounds repeat the border.
    let around = (centre - 0.5).floor() as i64 - 1..=(centre - 0.5).floor() as i64 + 2;
    let weight = if how.mode == InterpolateMode::Bicubic { cubic } else { triangle };
    around.map(|k| (k.clamp(0, from as i64 - 1) as usize, weight(k as f64 + 0.5 - centre))).collect()
}

#[test]
fn interpolate_equals_plain_rust() {
    let hows = [
        by(InterpolateMode::Nearest, false, false),
        by(InterpolateMode::Nearest, true, false),
        by(InterpolateMode::Bilinear, false, false),
        by(InterpolateMode::Bilinear, true, false),
        by(InterpolateMode::Bilinear, false, true),
        by(InterpolateMode::Bicubic, false, false),
        by(InterpolateMode::Bicubic, true, false),
    ];
    let from = [5, 4, 3, 2];
    for to in [[10, 8, 3, 2], [7, 9, 6, 4], [3, 2, 2, 1], [13, 1, 5, 3], [1, 11, 1, 2], [5, 4, 3, 2]] {
        for layout in Layout::ALL {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, if layout == Layout::Plain { 3 } else { 1 });
            let (a, values) = lab.operand(&Array::sample(from, 1, -1.0, 1.0), DType::F32, layout);
            let outputs = hows.map(|how| ctx.interpolate(a, to.map(|n| n as i64), how).unwrap());
            for (how, got) in hows.into_iter().zip(lab.run_all(&outputs).unwrap()) {
                let want = Array::of(to, |i| {
                    let upper = [2, 3].map(|d| i[d] * from[d] / to[d]);
                    let rows = weights(i[1], from[1], to[1], how);
                    let columns = weights(i[0], from[0], to[0], how);
                    let row = |y| columns.iter().map(|(x, w)| w * values.at([*x, y, upper[0], upper[1]])).sum::<f64>();
                    rows.iter().map(|(y, w)| w * row(*y)).sum()
                });
                assert_close(&got, &want, 2e-5, &format!("{to:?} {layout:?} {how:?}"));
            }
        }
    }
}

#[test]
fn interpolate_scales_a_single_pixel() {
    for how in [
        by(InterpolateMode::Bilinear, true, false),
        by(InterpolateMode::Bicubic, false, false),
        by(InterpolateMode::Bilinear, false, true),
    ] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (a, values) = lab.plain(&Array::sample(ne([1]), 1, 1.0, 2.0));
        let got = lab.run(ctx.interpolate(a, [4, 3], how).unwrap()).unwrap();
        assert_close(&got, &Array::of(ne([4, 3]), |_| values.data[0]), 1e-5, &format!("{how:?}"));
    }
}

/// Positions are divided in 32-bit floats: none may round up to the dimension.
#[test]
fn interpolate_reads_long_rows_to_their_ends() {
    for (from, to) in [(1 << 20, (1 << 20) - 1), ((1 << 20) - 1, 1 << 20)] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (a, _) = lab.plain(&Array::of(ne([from]), |[i, ..]| i as f64));
        let got = lab
            .run(ctx.interpolate(a, [to as i64], InterpolateOptions::new(InterpolateMode::Nearest)).unwrap())
            .unwrap();
        let last = got.data[to - 1];
        assert!((from - 3..from).contains(&(last as usize)), "{from} to {to}: the last is {last}");
    }
}

#[test]
fn interpolate_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 4, 2, 1]).unwrap();
    let plain = InterpolateOptions::new(InterpolateMode::Nearest);
    for bad in [0, -1, i64::MIN, (1 << 20) + 1, i64::MAX] {
        for axis in 0..4 {
            let mut shape = [2; 4];
            shape[axis] = bad;
            refused!(Param, ctx.interpolate(a, shape, plain), "{bad} {axis}");
        }
    }
    refused!(Shape, ctx.interpolate(a, [1 << 20; 4], plain), "too large");
    for shape in [[(1 << 20) + 1, 1], [1, (1 << 20) + 1]] {
        refused!(Shape, ctx.interpolate(ctx.input("a", DType::F32, shape).unwrap(), [2, 2], plain), "{shape:?}");
    }
    for dtype in [DType::F16, DType::I32] {
        refused!(DType, ctx.interpolate(ctx.input("a", dtype, [4, 4]).unwrap(), [8, 8], plain), "{dtype}");
    }
    for how in [
        by(InterpolateMode::Nearest, false, true),
        by(InterpolateMode::Bicubic, false, true),
        by(InterpolateMode::Bilinear, true, true),
    ] {
        refused!(Param, ctx.interpolate(a, [8, 8], how), "{how:?}");
    }
}
