//! `im2col`, its gradient, and `col2im`.

use ggml::ops::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};
use ggml::prelude::*;

use super::{bad_moves, how};
use crate::support::{Lab, refused};

#[test]
fn im2col_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (kernel, x) = (of(DType::F32, [3, 3, 2, 4]), of(DType::F32, [8, 8, 2, 1]));
    refused!(DType, ctx.im2col(kernel, x, Conv2dOptions::new(), DType::BF16));
    refused!(DType, ctx.im2col(kernel, of(DType::I32, [8, 8, 2, 1]), Conv2dOptions::new(), DType::F32));
    let (kernel, x) = (of(DType::F32, [3, 2, 4, 1]), of(DType::F32, [8, 2, 3, 1]));
    refused!(DType, ctx.im2col_1d(kernel, x, Conv1dOptions::new(), DType::BF16));
    refused!(DType, ctx.im2col_1d(kernel, of(DType::F16, [8, 2, 3, 1]), Conv1dOptions::new(), DType::F32));
    refused!(Shape, ctx.im2col_1d(kernel, of(DType::F32, [1 << 29, 2, 3, 1]), Conv1dOptions::new(), DType::F16));
    let (kernel, x) = (of(DType::F32, [3, 2, 2, 6]), of(DType::F32, [6, 5, 4, 4]));
    refused!(DType, ctx.im2col_3d(kernel, x, 2, Conv3dOptions::new(), DType::BF16));
    refused!(DType, ctx.im2col_3d(kernel, of(DType::F16, [6, 5, 4, 4]), 2, Conv3dOptions::new(), DType::F16));
    let turned = ctx.transpose(of(DType::F32, [5, 6, 4, 4])).unwrap();
    let y = ctx.im2col_3d(kernel, turned, 2, Conv3dOptions::new(), DType::F32).unwrap();
    refused!(Unsupported, lab.accepted(y));
    // Small operands with paddings that make the result too large, by both ways of overflowing.
    let wide = how([1; 3], [(1 << 30) - 1; 3], [1; 3]);
    refused!(Shape, ctx.im2col_3d(kernel, x, 2, wide, DType::F32));
    let many = of(DType::F32, [3, 3, 3, 1 << 40]);
    refused!(Shape, ctx.im2col_3d(of(DType::F32, [1, 1, 1, 1]), many, 1, Conv3dOptions::new(), DType::F32));
    refused!(Shape, ctx.conv_3d(of(DType::F32, [1, 1, 1, 1 << 40]), x, 1, Conv3dOptions::new()));
    // A column of 2^64 + 4 elements, or of 4 in 64 bits.
    let [w, h, d] = [48_448_661, 49_477, 384_773];
    let (vast, image) = (of(DType::I8, [w, h, d, 1]), of(DType::F32, [1, 1, 1, 20]));
    let padded = how([1; 3], [w, h, d].map(|n| (n / 2).try_into().unwrap()), [1; 3]);
    refused!(Shape, ctx.im2col_3d(vast, image, 20, padded, DType::F32));
    refused!(Shape, ctx.im2col_3d(kernel, of(DType::F32, [6, 5, 4, 3]), 2, Conv3dOptions::new(), DType::F32));
    let wide = how([1; 2], [(1 << 30) - 1; 2], [1; 2]);
    refused!(Shape, ctx.im2col(of(DType::F32, [3, 3, 2, 1]), of(DType::F32, [8, 8, 2, 1]), wide, DType::F32));
}

#[test]
fn h12_im2col_back_requires_the_shape_of_its_image() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (kernel, plain) = (of(DType::F32, [3, 3, 2, 4]), Conv2dOptions::new());
    let (grad, image) = (of(DType::F32, [18, 6, 4, 3]), [8, 6, 2, 3]);
    let back = |grad, image: [i64; 4], how| ctx.im2col_back(grad, kernel, image, how);
    assert!(back(grad, image, plain).is_ok());
    for other in [[9, 6, 2, 3], [8, 7, 2, 3], [8, 6, 3, 3], [8, 6, 2, 4], [8, 6, 2, 2], [2, 6, 2, 3]] {
        refused!(Shape, back(grad, other, plain), "{other:?}");
    }
    for bad in [[0, 6, 2, 3], [8, -1, 2, 3], [8, 6, 2, i64::MIN], [i64::MAX, 6, 2, 3], [1 << 40, 1 << 40, 2, 3]] {
        refused!(Param, back(grad, bad, plain), "{bad:?}");
    }
    for other in [[17, 6, 4, 3], [18, 5, 4, 3], [18, 6, 3, 3], [18, 6, 4, 2]] {
        refused!(Shape, back(of(DType::F32, other), image, plain), "{other:?}");
    }
    for bad in bad_moves() {
        refused!(Param, back(grad, image, bad), "{bad:?}");
    }
    refused!(DType, back(of(DType::F16, [18, 6, 4, 3]), image, plain));
    let swapped = ctx.permute(of(DType::F32, [18, 4, 6, 3]), [0, 2, 1, 3]).unwrap();
    refused!(Shape, back(swapped, image, plain));
    for dtype in [DType::BF16, DType::I32] {
        let y = ctx.im2col_back(grad, of(dtype, [3, 3, 2, 4]), image, plain).unwrap();
        refused!(Unsupported, Lab::new(&ctx).accepted(y), "{dtype}");
    }
    let far = ctx.im2col_back(
        of(DType::F32, [1, 1 << 15, 1 << 15, 2]),
        of(DType::F32, [1; 4]),
        [1 << 15, 1 << 15, 1, 2],
        plain,
    );
    refused!(Unsupported, Lab::new(&ctx).accepted(far.unwrap()), "4 GiB apart");

    let (kernel, plain) = (of(DType::F32, [3, 2, 4, 1]), ConvOptions::new());
    let (grad, image) = (of(DType::F32, [6, 5, 3, 1]), [7, 2, 3, 1]);
    let back = |grad, image: [i64; 4], how| ctx.im2col_1d_back(grad, kernel, image, how);
    assert!(back(grad, image, plain).is_ok());
    for other in [[8, 2, 3, 1], [7, 3, 3, 1], [7, 2, 4, 1], [7, 2, 1, 3], [2, 2, 3, 1]] {
        refused!(Shape, back(grad, other, plain), "{other:?}");
    }
    refused!(Shape, back(of(DType::F32, [6, 5, 1, 3]), image, plain));
    refused!(Param, back(grad, [7, 0, 3, 1], plain));
    for bad in bad_moves() {
        refused!(Param, back(grad, image, bad), "{bad:?}");
    }
}

#[test]
fn col2im_1d_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F32, [12, 5, 1, 1]);
    for bad in [0, -1, i32::MIN] {
        refused!(Param, ctx.col2im_1d(a, bad, 1, 0), "{bad}");
        refused!(Param, ctx.col2im_1d(a, 3, bad, 0), "{bad}");
    }
    for bad in [-1, i32::MIN, i32::MAX, 1 << 30] {
        refused!(Param, ctx.col2im_1d(a, 3, 1, bad), "{bad}");
    }
    for bad in [5, 13, 24, i32::MAX] {
        refused!(Shape, ctx.col2im_1d(a, bad, 1, 0), "{bad}");
    }
    refused!(Shape, ctx.col2im_1d(a, 3, 1, 4), "nothing left");
    refused!(Shape, ctx.col2im_1d(ctx.transpose(a).unwrap(), 5, 1, 0));
    refused!(Shape, ctx.col2im_1d(of(DType::F32, [12, 5, 2, 1]), 3, 1, 0));
    refused!(Shape, ctx.col2im_1d(of(DType::F32, [12, 5, 1, 2]), 3, 1, 0));
    refused!(Shape, ctx.col2im_1d(of(DType::F32, [1, 1 << 50, 1, 1]), 1, i32::MAX, 0), "too long");
    for dtype in [DType::I32, DType::Q8_0] {
        refused!(DType, ctx.col2im_1d(of(dtype, [32, 5, 1, 1]), 2, 1, 0), "{dtype}");
    }
}
