//! Convolutions and pooling.

use ggml::prelude::*;
use ggml::{Conv2d, Pool, Pool2d};

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

fn how(stride: [i32; 2], padding: [i32; 2], dilation: [i32; 2]) -> Conv2d {
    let mut how = Conv2d::default();
    (how.stride, how.padding, how.dilation) = (stride, padding, dilation);
    how
}

fn output(input: usize, kernel: usize, stride: i32, padding: i32, dilation: i32) -> usize {
    (input + 2 * padding as usize - dilation as usize * (kernel - 1) - 1) / stride as usize + 1
}

/// The element of `x` at a place that may be beyond its borders.
fn padded(x: &Array, at: [i64; 2], channel: usize, batch: usize) -> Option<f64> {
    let [i0, i1] = at.map(usize::try_from);
    let (i0, i1) = (i0.ok()?, i1.ok()?);
    (i0 < x.ne[0] && i1 < x.ne[1]).then(|| x.at([i0, i1, channel, batch]))
}

fn place(out: [usize; 2], kernel: [usize; 2], how: Conv2d) -> [i64; 2] {
    [0, 1].map(|d| {
        out[d] as i64 * i64::from(how.stride[d]) + kernel[d] as i64 * i64::from(how.dilation[d])
            - i64::from(how.padding[d])
    })
}

fn convolved(kernel: &Array, x: &Array, how: Conv2d) -> Array {
    let size = |d: usize| output(x.ne[d], kernel.ne[d], how.stride[d], how.padding[d], how.dilation[d]);
    Array::of([size(0), size(1), kernel.ne[3], x.ne[3]], |[ox, oy, channel, batch]| {
        let mut sum = 0.0;
        Array::of([kernel.ne[0], kernel.ne[1], kernel.ne[2], 1], |[kx, ky, input, _]| {
            let pixel = padded(x, place([ox, oy], [kx, ky], how), input, batch);
            sum += kernel.at([kx, ky, input, channel]) * pixel.unwrap_or(0.0);
            0.0
        });
        sum
    })
}

const HOWS: [([i32; 2], [i32; 2], [i32; 2]); 5] = [
    ([1, 1], [0, 0], [1, 1]),
    ([1, 1], [1, 1], [1, 1]),
    ([2, 1], [0, 2], [1, 1]),
    ([1, 2], [3, 1], [2, 1]),
    ([3, 3], [2, 2], [1, 2]),
];

#[test]
fn convolutions_are_those_of_plain_rust() {
    let shapes =
        [(ne([3, 3, 2, 4]), ne([8, 7, 2, 2])), (ne([1, 1, 3, 2]), ne([5, 4, 3])), (ne([2, 3, 1, 1]), ne([6, 9]))];
    let types =
        [(DType::F32, DType::F32), (DType::F16, DType::F32), (DType::F16, DType::F16), (DType::BF16, DType::F32)];
    for (kernel_type, image_type) in types {
        for (kernel_shape, image_shape) in shapes {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (kernel, rk) = lab.operand(&Array::sample(kernel_shape, 1, -1.0, 1.0), kernel_type, Layout::Plain);
            let (x, rx) = lab.operand(&Array::sample(image_shape, 2, -1.0, 1.0), image_type, Layout::Plain);
            let hows = HOWS.map(|(s, p, d)| how(s, p, d));
            let outputs = hows.map(|how| ctx.conv_2d(kernel, x, how).unwrap());
            for (how, got) in hows.iter().zip(lab.run_all(&outputs).unwrap()) {
                let tolerance = if kernel_type == DType::F16 { 5e-3 } else { 1e-5 };
                let context = format!("{kernel_type} {kernel_shape:?} {image_type} {image_shape:?} {how:?}");
                assert_close(&got, &convolved(&rk, &rx, *how), tolerance, &context);
            }
        }
    }
}

/// Channels and images may be anywhere as long as each plane is whole.
#[test]
fn columns_are_taken_from_planes_that_lie_apart() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (kernel, _) = lab.plain(&Array::sample(ne([2, 2, 3, 1]), 1, -1.0, 1.0));
    let (images, values) = lab.plain(&Array::sample(ne([5, 4, 2, 3]), 2, -1.0, 1.0));
    let x = ctx.permute(images, [0, 1, 3, 2]).unwrap();
    let values = values.permuted([0, 1, 3, 2]);
    let how = how([2, 1], [1, 0], [1, 1]);
    for dtype in [DType::F32, DType::F16] {
        let got = lab.run(ctx.im2col(kernel, x, how, dtype).unwrap()).unwrap();
        let want = Array::of([12, 3, 3, 2], |[k, ox, oy, n]| {
            padded(&values, place([ox, oy], [k % 2, k / 2 % 2], how), k / 4, n).unwrap_or(0.0)
        });
        assert_close(&got, &want, 1e-3, &format!("{dtype}"));
    }
}

#[test]
fn convolutions_refuse_what_does_not_fit() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (kernel, x) = (of(DType::F32, [3, 3, 2, 4]), of(DType::F32, [8, 8, 2, 1]));
    let plain = Conv2d::default();
    for bad in [0, -1, i32::MIN] {
        refused!(Param, ctx.conv_2d(kernel, x, how([bad, 1], [0, 0], [1, 1])), "{bad}");
        refused!(Param, ctx.conv_2d(kernel, x, how([1, bad], [0, 0], [1, 1])), "{bad}");
        refused!(Param, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [bad, 1])), "{bad}");
        refused!(Param, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [1, bad])), "{bad}");
    }
    for bad in [-1, i32::MIN, i32::MAX, 1 << 30] {
        refused!(Param, ctx.conv_2d(kernel, x, how([1, 1], [bad, 0], [1, 1])), "{bad}");
        refused!(Param, ctx.conv_2d(kernel, x, how([1, 1], [0, bad], [1, 1])), "{bad}");
    }
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [8, 8, 3, 1]), plain), "another depth");
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [2, 8, 2, 1]), plain), "too narrow");
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [8, 2, 2, 1]), plain), "too low");
    refused!(Shape, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [4, 1])), "dilated beyond the image");
    refused!(Shape, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [i32::MAX, i32::MAX])));
    refused!(DType, ctx.conv_2d(kernel, of(DType::F16, [8, 8, 2, 1]), plain));
    refused!(DType, ctx.im2col(kernel, x, plain, DType::BF16));
    refused!(DType, ctx.im2col(kernel, of(DType::I32, [8, 8, 2, 1]), plain, DType::F32));
    refused!(Shape, ctx.conv_2d(ctx.transpose(kernel).unwrap(), x, plain));
    refused!(Shape, ctx.conv_2d(kernel, ctx.transpose(x).unwrap(), plain));
    let wide = of(DType::F32, [9, 9, 2, 1]);
    let [_, nb1, nb2, nb3] = wide.nb();
    refused!(Shape, ctx.conv_2d(kernel, ctx.view(wide, [8, 8, 2, 1], [nb1, nb2, nb3], 0).unwrap(), plain));
    let far = ctx.input("far", DType::F32, [1 << 15, 1 << 15, 2, 1]).unwrap();
    refused!(Shape, ctx.conv_2d(kernel, far, plain), "planes 4 GiB apart");
    for dtype in [DType::Q8_0, DType::BF16, DType::I32] {
        let kernel = of(dtype, [32, 1, 2, 4]);
        let y = ctx.conv_2d(kernel, of(DType::F32, [40, 8, 2, 1]), plain);
        let result = y.and_then(|y| Lab::new(&ctx).accepted(y));
        match dtype {
            DType::BF16 => result.unwrap(),
            _ => refused!(Unsupported, result, "{dtype}"),
        }
    }
}

/// A refusal says what to do about it, rather than what went wrong inside.
#[test]
fn refusals_of_convolutions_name_the_reason() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let (kernel, x) = (of([3, 3, 2, 4]), of([8, 8, 2, 1]));
    let message = ctx.conv_2d(ctx.transpose(kernel).unwrap(), x, Conv2d::default()).unwrap_err().to_string();
    assert!(message.contains("conv_2d") && message.contains("the kernel must be contiguous"), "{message}");
    for small in [of([2, 8, 2, 1]), of([8, 2, 2, 1])] {
        let message = ctx.conv_2d(kernel, small, Conv2d::default()).unwrap_err().to_string();
        assert!(message.contains("smaller than the kernel"), "{message}");
    }
}

fn window(window: [i32; 2], stride: [i32; 2], padding: [i32; 2]) -> Pool2d {
    let mut how = Pool2d::square(1);
    (how.window, how.stride, how.padding) = (window, stride, padding);
    how
}

#[test]
fn pooling_is_that_of_plain_rust() {
    for dtype in [DType::F32, DType::F16] {
        for shape in [ne([8, 6, 2, 3]), ne([5, 5]), ne([9, 4, 1, 2])] {
            for how in [
                Pool2d::square(2),
                Pool2d::square(3),
                window([3, 2], [1, 2], [1, 1]),
                window([2, 4], [3, 1], [1, 0]),
                window([1, 1], [1, 1], [0, 0]),
            ] {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, values) = lab.operand(&Array::sample(shape, 2, -1.0, 1.0), dtype, Layout::Plain);
                let size = |d: usize| output(shape[d], how.window[d] as usize, how.stride[d], how.padding[d], 1);
                let seen = |[ox, oy, c, n]: [usize; 4]| {
                    let moves = self::how(how.stride, how.padding, [1, 1]);
                    let mut all = Vec::new();
                    for ky in 0..how.window[1] as usize {
                        for kx in 0..how.window[0] as usize {
                            all.extend(padded(&values, place([ox, oy], [kx, ky], moves), c, n));
                        }
                    }
                    all
                };
                let whole = [size(0), size(1), shape[2], shape[3]];
                let area = f64::from(how.window[0] * how.window[1]);
                let largest = Array::of(whole, |i| seen(i).into_iter().fold(f64::MIN, f64::max));
                let mean = Array::of(whole, |i| seen(i).iter().sum::<f64>() / area);
                let outputs = [Pool::Max, Pool::Avg].map(|pool| ctx.pool_2d(x, pool, how).unwrap());
                let got = lab.run_all(&outputs).unwrap();
                assert_close(&got[0], &largest, 1e-6, &format!("max {dtype} {shape:?} {how:?}"));
                assert_close(&got[1], &mean, 1e-5, &format!("avg {dtype} {shape:?} {how:?}"));
            }
        }
    }
}

#[test]
fn h11_pooling_gets_planes_that_lie_as_its_kernel_walks() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 4, 3, 2]).unwrap();
    let pool = |x| ctx.pool_2d(x, Pool::Max, Pool2d::square(2));
    for axes in [[1, 0, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3], [2, 1, 0, 3]] {
        refused!(Shape, pool(ctx.permute(x, axes).unwrap()), "{axes:?}");
    }
    // One plane: ggml calls it contiguous whatever the third stride is, and its kernel steps by that until the end.
    for stride in [0, 4, 1 << 20] {
        let plane = ctx.view(x, [4, 4], [16, stride, stride], 0).unwrap();
        assert!(plane.is_contiguous());
        refused!(Shape, pool(plane), "{stride}");
    }
    assert!(pool(ctx.view(x, [4, 4], [16, 64, 64], 64).unwrap()).is_ok());
}

#[test]
fn pooling_refuses_what_does_not_fit() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 6]).unwrap();
    let pool = |how| ctx.pool_2d(x, Pool::Avg, how);
    for bad in [0, -1, i32::MIN, i32::MAX] {
        refused!(Param, pool(window([bad, 2], [1, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, bad], [1, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [bad, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [1, bad], [0, 0])), "{bad}");
    }
    for bad in [-1, 2, i32::MAX, i32::MIN] {
        refused!(Param, pool(window([2, 2], [1, 1], [bad, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [1, 1], [0, bad])), "{bad}");
    }
    refused!(Shape, pool(window([9, 2], [1, 1], [0, 0])));
    refused!(Shape, pool(window([2, 7], [1, 1], [0, 0])));
    for dtype in [DType::BF16, DType::I32, DType::F64] {
        let x = ctx.input("x", dtype, [8, 6]).unwrap();
        refused!(DType, ctx.pool_2d(x, Pool::Max, Pool2d::square(2)), "{dtype}");
    }
    let long = ctx.input("long", DType::F32, [1 << 25, 2]).unwrap();
    refused!(Shape, ctx.pool_2d(long, Pool::Max, Pool2d::square(2)));
}
