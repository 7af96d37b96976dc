//! Transposed convolutions.

use ggml::prelude::*;

use crate::support::{Lab, refused};

#[test]
fn conv_transpose_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let floats = |shape| of(DType::F32, shape);
    let (k1, x1) = (floats([3, 4, 2, 1]), floats([8, 2, 1, 1]));
    let (k2, x2) = (floats([3, 3, 4, 2]), floats([8, 8, 2, 3]));
    for bad in [0, -1, i32::MIN] {
        refused!(Param, ctx.conv_transpose_1d(k1, x1, bad), "{bad}");
        refused!(Param, ctx.conv_transpose_2d_p0(k2, x2, bad), "{bad}");
    }
    for shape in [[8, 3, 1, 1], [8, 2, 2, 1], [8, 2, 1, 2]] {
        refused!(Shape, ctx.conv_transpose_1d(k1, floats(shape), 1), "{shape:?}");
    }
    refused!(Shape, ctx.conv_transpose_1d(floats([3, 4, 2, 2]), x1, 1));
    refused!(Shape, ctx.conv_transpose_2d_p0(k2, floats([8, 8, 3, 3]), 1));
    for dtype in [DType::BF16, DType::I32] {
        refused!(DType, ctx.conv_transpose_1d(of(dtype, [3, 4, 2, 1]), x1, 1), "{dtype}");
        refused!(DType, ctx.conv_transpose_2d_p0(of(dtype, [3, 3, 4, 2]), x2, 1), "{dtype}");
    }
    refused!(DType, ctx.conv_transpose_1d(k1, of(DType::F16, [8, 2, 1, 1]), 1));
    refused!(DType, ctx.conv_transpose_2d_p0(k2, of(DType::F16, [8, 8, 2, 3]), 1));
    // The CPU kernel assumes contiguous planes and rows of the convolution kernel.
    for axes in [[1, 0, 2, 3], [0, 1, 3, 2], [2, 1, 0, 3]] {
        let turned = |t| ctx.cont(ctx.permute(t, axes).unwrap()).and_then(|t| ctx.permute(t, axes)).unwrap();
        refused!(Shape, ctx.conv_transpose_2d_p0(turned(k2), x2, 1), "{axes:?}");
        refused!(Shape, ctx.conv_transpose_2d_p0(k2, turned(x2), 1), "{axes:?}");
    }
    refused!(Shape, ctx.conv_transpose_1d(k1, ctx.transpose(floats([2, 8, 1, 1])).unwrap(), 1));
    refused!(Shape, ctx.conv_transpose_1d(ctx.transpose(floats([4, 3, 2, 1])).unwrap(), x1, 1));
    // One element per row: ggml calls it contiguous for any first stride, but the kernel uses that.
    let column = ctx.permute(floats([2, 1, 1, 1]), [1, 0, 2, 3]).unwrap();
    refused!(Shape, ctx.conv_transpose_1d(k1, column, 1));
    refused!(Shape, ctx.conv_transpose_1d(floats([1, 1, 1, 1]), floats([1 << 40, 1, 1, 1]), i32::MAX), "too long");
    refused!(Shape, ctx.conv_transpose_2d_p0(floats([1; 4]), floats([1 << 20, 1 << 20, 1, 1]), i32::MAX), "too large");
}

/// The kernels count elements in 32 bits.
#[test]
fn conv_transpose_refuses_sizes_beyond_32_bits() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let small = of(DType::F16, [1, 1, 1 << 11, 1]);
    let long = of(DType::F32, [1 << 20, 1 << 11, 1, 1]);
    refused!(Unsupported, lab.accepted(ctx.conv_transpose_1d(small, long, 1).unwrap()));
    let large = of(DType::F16, [1 << 10, 1 << 10, 1 << 11, 1]);
    refused!(Unsupported, lab.accepted(ctx.conv_transpose_1d(large, of(DType::F32, [2, 1 << 11, 1, 1]), 1).unwrap()));
    let k = of(DType::F16, [1, 1, 1, 1 << 11]);
    let x = of(DType::F32, [1 << 10, 1 << 10, 1 << 11, 1]);
    refused!(Unsupported, lab.accepted(ctx.conv_transpose_2d_p0(k, x, 1).unwrap()));
    let large = of(DType::F16, [1 << 10, 1, 1 << 10, 1 << 11]);
    let x = of(DType::F32, [1, 1, 1 << 11, 1]);
    refused!(Unsupported, lab.accepted(ctx.conv_transpose_2d_p0(large, x, 1).unwrap()));
}
