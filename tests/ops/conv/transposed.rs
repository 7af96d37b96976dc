//! Transposed convolutions.

use ggml::prelude::*;

use super::KERNELS;
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

#[test]
fn conv_transpose_equals_plain_rust() {
    for (dtype, tolerance) in KERNELS.into_iter().take(2) {
        for stride in [1, 2, 5] {
            for (size, outputs, inputs, batch) in [([3, 2], 4, 3, 2), ([1, 1], 1, 1, 1), ([2, 4], 5, 19, 1)] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, 3);
                let shape = [size[0], size[1], outputs, inputs];
                let (k, rk) = lab.operand(&Array::sample(shape, 1, -1.0, 1.0), dtype, Layout::Plain);
                let (x, rx) = lab.plain(&Array::sample([5, 4, inputs, batch], 2, -1.0, 1.0));
                let got = lab.run(ctx.conv_transpose_2d_p0(k, x, stride as i32).unwrap()).unwrap();
                let mut want = Array::of([4 * stride + size[0], 3 * stride + size[1], outputs, batch], |_| 0.0);
                Array::of(rx.ne, |[i, j, input, n]| {
                    Array::of([size[0], size[1], outputs, 1], |[a, b, output, _]| {
                        let at = want.position([i * stride + a, j * stride + b, output, n]);
                        want.data[at] += rx.at([i, j, input, n]) * rk.at([a, b, output, input]);
                        0.0
                    });
                    0.0
                });
                let context = format!("{dtype} {stride} {shape:?} {batch}");
                assert_close(&got, &want, tolerance, &context);

                let shape = ne([size[0], outputs, inputs]);
                let (k, rk) = lab.operand(&Array::sample(shape, 3, -1.0, 1.0), dtype, Layout::Plain);
                let (x, rx) = lab.plain(&Array::sample(ne([6, inputs]), 4, -1.0, 1.0));
                let got = lab.run(ctx.conv_transpose_1d(k, x, stride as i32).unwrap()).unwrap();
                let mut want = Array::of(ne([5 * stride + size[0], outputs]), |_| 0.0);
                Array::of(rx.ne, |[i, input, ..]| {
                    Array::of(ne([size[0], outputs]), |[a, output, ..]| {
                        let at = want.position([i * stride + a, output, 0, 0]);
                        want.data[at] += rx.at([i, input, 0, 0]) * rk.at([a, output, input, 0]);
                        0.0
                    });
                    0.0
                });
                assert_close(&got, &want, tolerance, &context);
            }
        }
    }
}

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
