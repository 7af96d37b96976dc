//! Resizing images. What it computes is in the table.

use ggml::ops::{InterpolateMode, InterpolateOptions};
use ggml::prelude::*;

use crate::support::{Array, Lab, ne, refused};

fn by(mode: InterpolateMode, align_corners: bool, antialias: bool) -> InterpolateOptions {
    InterpolateOptions::new(mode).with_align_corners(align_corners).with_antialias(antialias)
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
