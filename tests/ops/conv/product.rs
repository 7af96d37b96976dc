//! Convolutions by `im2col` and a matrix product.

use ggml::ops::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};
use ggml::prelude::*;

use super::{bad_moves, how};
use crate::support::{Lab, refused};

#[test]
fn conv_options_are_made_from_a_kernel() {
    let ctx = Context::new();
    let kernel = ctx.input("k", DType::F32, [3, 4, 2, 1]).unwrap();
    assert_eq!(Conv1dOptions::half(kernel), how([1], [1], [1]));
    assert_eq!(Conv2dOptions::half(kernel), how([1, 1], [1, 2], [1, 1]));
    assert_eq!(Conv3dOptions::half(kernel), how([1; 3], [1, 2, 1], [1; 3]));
    assert_eq!(Conv2dOptions::patches(kernel), how([3, 4], [0, 0], [1, 1]));
    let long = ctx.input("k", DType::F32, [1_i64 << 40, 4]).unwrap();
    assert_eq!(Conv2dOptions::patches(long), how([i32::MAX, 4], [0, 0], [1, 1]));
    refused!(Param, ctx.im2col(long, long, ConvOptions::half(long), DType::F32));
}

#[test]
fn conv_2d_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (kernel, x) = (of(DType::F32, [3, 3, 2, 4]), of(DType::F32, [8, 8, 2, 1]));
    let plain = Conv2dOptions::new();
    for bad in bad_moves() {
        refused!(Param, ctx.conv_2d(kernel, x, bad), "{bad:?}");
    }
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [8, 8, 3, 1]), plain), "another depth");
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [2, 8, 2, 1]), plain), "too narrow");
    refused!(Shape, ctx.conv_2d(kernel, of(DType::F32, [8, 2, 2, 1]), plain), "too low");
    refused!(Shape, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [4, 1])), "dilated past the image");
    refused!(Shape, ctx.conv_2d(kernel, x, how([1, 1], [0, 0], [i32::MAX, i32::MAX])));
    refused!(DType, ctx.conv_2d(kernel, of(DType::F16, [8, 8, 2, 1]), plain));
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

#[test]
fn conv_1d_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let plain = Conv1dOptions::new();
    let (kernel, x) = (of([3, 2, 4, 1]), of([8, 2, 3, 1]));
    for bad in bad_moves() {
        refused!(Param, ctx.conv_1d(kernel, x, bad), "{bad:?}");
    }
    refused!(Shape, ctx.conv_1d(kernel, of([8, 3, 3, 1]), plain), "another depth");
    refused!(Shape, ctx.conv_1d(kernel, of([8, 2, 1, 3]), plain), "four dimensions");
    refused!(Shape, ctx.conv_1d(of([3, 2, 4, 2]), x, plain), "a kernel of four dimensions");
    refused!(Shape, ctx.conv_1d(kernel, of([2, 2, 3, 1]), plain), "too short");
    refused!(Shape, ctx.conv_1d(ctx.transpose(of([2, 3, 4, 1])).unwrap(), x, plain));
    refused!(Shape, ctx.conv_1d(kernel, ctx.transpose(of([2, 8, 3, 1])).unwrap(), plain));
}

#[test]
fn conv_dw_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let plain = Conv1dOptions::new();
    let x = of([8, 2, 3, 1]);
    for bad in bad_moves() {
        refused!(Param, ctx.conv_1d_dw(of([3, 1, 2, 1]), x, bad), "{bad:?}");
    }
    for shape in [[3, 2, 2, 1], [3, 1, 3, 1], [3, 1, 2, 2]] {
        refused!(Shape, ctx.conv_1d_dw(of(shape), x, plain), "{shape:?}");
    }
    refused!(Shape, ctx.conv_1d_dw(of([3, 1, 2, 1]), of([8, 2, 1, 3]), plain));
    let rows = ctx.permute(of([3, 2, 1, 1]), [0, 2, 1, 3]).unwrap();
    assert!(ctx.conv_1d_dw(rows, x, plain).is_ok(), "contiguous all the same");
    refused!(Shape, ctx.conv_1d_dw(ctx.permute(of([1, 2, 3, 1]), [1, 2, 0, 3]).unwrap(), x, plain), "kernel");
    refused!(Shape, ctx.conv_1d_dw(of([3, 1, 2, 1]), ctx.transpose(of([2, 8, 3, 1])).unwrap(), plain));

    let plain = Conv2dOptions::new();
    let x = of([8, 8, 2, 3]);
    for shape in [[3, 3, 2, 1], [3, 3, 2, 2], [3, 3, 1, 3]] {
        refused!(Shape, ctx.conv_2d_dw(of(shape), x, plain), "{shape:?}");
    }
    for bad in bad_moves() {
        refused!(Param, ctx.conv_2d_dw(of([3, 3, 1, 2]), x, bad), "{bad:?}");
    }
    refused!(Shape, ctx.conv_2d_dw(ctx.transpose(of([3, 3, 1, 2])).unwrap(), x, plain));
    refused!(Shape, ctx.conv_2d_dw(of([3, 3, 1, 2]), ctx.transpose(x).unwrap(), plain));
}

#[test]
fn conv_3d_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let (kernel, x) = (of([3, 2, 2, 6]), of([6, 5, 4, 4]));
    for bad in bad_moves() {
        refused!(Param, ctx.conv_3d(kernel, x, 2, bad), "{bad:?}");
    }
    for bad in [0, -1, i32::MIN] {
        refused!(Param, ctx.conv_3d(kernel, x, bad, Conv3dOptions::new()), "{bad}");
    }
    for bad in [3, 4, 6, i32::MAX] {
        refused!(Shape, ctx.conv_3d(kernel, x, bad, Conv3dOptions::new()), "{bad}");
    }
    for small in [[2, 5, 4, 4], [6, 1, 4, 4], [6, 5, 1, 4]] {
        refused!(Shape, ctx.conv_3d(kernel, of(small), 2, Conv3dOptions::new()), "{small:?}");
    }
    refused!(Shape, ctx.conv_3d(ctx.transpose(of([2, 3, 2, 6])).unwrap(), x, 2, Conv3dOptions::new()));
}

/// An error says what to do, not which inner operation failed.
#[test]
fn conv_errors_name_the_operation_and_the_reason() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let (kernel, x) = (of([3, 3, 2, 4]), of([8, 8, 2, 1]));
    let message = ctx.conv_2d(ctx.transpose(kernel).unwrap(), x, Conv2dOptions::new()).unwrap_err().to_string();
    assert!(message.contains("conv_2d") && message.contains("the kernel must be contiguous"), "{message}");
    for small in [of([2, 8, 2, 1]), of([8, 2, 2, 1])] {
        let message = ctx.conv_2d(kernel, small, Conv2dOptions::new()).unwrap_err().to_string();
        assert!(message.contains("smaller than the kernel"), "{message}");
    }
}
