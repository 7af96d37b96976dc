//! Windows of images. What they compute is in the table.

use ggml::prelude::*;

use crate::support::refused;

#[test]
fn h17_windows_refuse_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let floats = |shape| of(DType::F32, shape);
    let image = floats([3, 6, 5, 1]);
    for bad in [0, -1, i32::MIN, i32::MAX] {
        refused!(Param, ctx.win_part(image, bad), "{bad}");
    }
    refused!(Shape, ctx.win_part(floats([3, 6, 5, 2]), 2));
    refused!(Shape, ctx.win_part(ctx.permute(image, [0, 2, 1, 3]).unwrap(), 2));
    refused!(DType, ctx.win_part(of(DType::F16, [3, 6, 5, 1]), 2));
    refused!(Param, ctx.win_part(floats([1, i64::from(i32::MAX), 1, 1]), 1), "positions of 32 bits");
    refused!(Param, ctx.win_part(floats([1, 1, 1 << 40, 1]), 1), "positions of 32 bits");
    refused!(Shape, ctx.win_part(floats([1, 1 << 20, 1 << 20, 1]), 1), "too many windows");
    refused!(Shape, ctx.win_part(floats([1 << 40, 1, 1, 1]), 1 << 20), "too large");

    let parts = floats([3, 2, 2, 9]);
    assert!(ctx.win_unpart(parts, 6, 5).is_ok());
    for (width, height) in [(0, 5), (6, 0), (-1, 5), (6, i32::MIN), (i32::MAX, 5), (6, i32::MAX)] {
        refused!(Param, ctx.win_unpart(parts, width, height), "{width} {height}");
    }
    for (width, height) in [(7, 5), (6, 7), (4, 5), (1, 1), (20, 1)] {
        refused!(Shape, ctx.win_unpart(parts, width, height), "{width} {height}");
    }
    for shape in [[3, 2, 3, 9], [3, 3, 2, 9], [3, 2, 2, 8], [3, 2, 2, 10]] {
        refused!(Shape, ctx.win_unpart(floats(shape), 6, 5), "{shape:?}");
    }
    refused!(Shape, ctx.win_unpart(ctx.transpose(floats([2, 3, 2, 9])).unwrap(), 6, 5));
    refused!(DType, ctx.win_unpart(of(DType::F16, [3, 2, 2, 9]), 6, 5));
    refused!(Shape, ctx.win_unpart(floats([1, 1, 1, 1]), 1 << 16, 1 << 16), "too many windows");
}
