//! Pooling. What it computes is in the table.

use ggml::ops::{Pool1dOptions, Pool2dOptions, PoolOp};
use ggml::prelude::*;

use crate::support::{Array, Lab, ne, refused};

fn window(window: [i32; 2], stride: [i32; 2], padding: [i32; 2]) -> Pool2dOptions {
    Pool2dOptions::new(window).with_stride(stride).with_padding(padding)
}

fn row(window: i32, stride: i32, padding: i32) -> Pool1dOptions {
    Pool1dOptions::new([window]).with_stride([stride]).with_padding([padding])
}

#[test]
fn h12_pool_2d_back_requires_the_pooled_shape() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (x, grad) = (of(DType::F32, [8, 6, 2, 3]), of(DType::F32, [4, 3, 2, 3]));
    let back = |grad, x, how| ctx.pool_2d_back(grad, x, PoolOp::Max, how);
    assert!(back(grad, x, Pool2dOptions::new([2; 2])).is_ok());
    for other in [[5, 3, 2, 3], [4, 4, 2, 3], [4, 3, 3, 3], [4, 3, 2, 2], [4, 3, 3, 2], [3, 3, 2, 3]] {
        refused!(Shape, back(of(DType::F32, other), x, Pool2dOptions::new([2; 2])), "{other:?}");
    }
    refused!(Shape, back(grad, x, Pool2dOptions::new([3; 2])));
    refused!(Shape, back(ctx.transpose(of(DType::F32, [3, 4, 2, 3])).unwrap(), x, Pool2dOptions::new([2; 2])));
    refused!(Shape, back(grad, ctx.transpose(of(DType::F32, [6, 8, 2, 3])).unwrap(), Pool2dOptions::new([2; 2])));
    refused!(DType, back(of(DType::F16, [4, 3, 2, 3]), x, Pool2dOptions::new([2; 2])));
    refused!(DType, back(grad, of(DType::F16, [8, 6, 2, 3]), Pool2dOptions::new([2; 2])));
    refused!(Param, back(grad, x, Pool2dOptions::new([0; 2])));
}

/// No gradient goes to padding, for any values.
#[test]
fn pool_2d_back_accepts_any_values() {
    for value in [f64::NAN, f64::NEG_INFINITY, f64::INFINITY] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, _) = lab.plain(&Array::of(ne([8, 6, 2, 3]), |_| value));
        let how = window([3, 2], [1, 2], [1, 1]);
        let (grad, _) = lab.plain(&Array::of([8, 4, 2, 3], |_| 1.0));
        let got = lab.run(ctx.pool_2d_back(grad, x, PoolOp::Max, how).unwrap()).unwrap();
        let total: f64 = got.data.iter().sum();
        assert!(total == 0.0 || total == f64::from(8 * 4 * 6), "{value}: {total}");
    }
}

#[test]
fn h10_pool_1d_requires_contiguous_rows() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 4, 3, 2]).unwrap();
    let pool = |x| ctx.pool_1d(x, PoolOp::Max, Pool1dOptions::new([2]));
    for axes in [[1, 0, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3], [2, 1, 0, 3]] {
        refused!(Shape, pool(ctx.permute(x, axes).unwrap()), "{axes:?}");
    }
    // One row per plane: ggml calls it contiguous for any second stride.
    let single = ctx.permute(ctx.input("y", DType::F32, [4, 3]).unwrap(), [0, 2, 1, 3]).unwrap();
    assert!(single.is_contiguous());
    refused!(Shape, pool(single));
}

#[test]
fn h11_pool_2d_requires_contiguous_planes() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 4, 3, 2]).unwrap();
    let pool = |x| ctx.pool_2d(x, PoolOp::Max, Pool2dOptions::new([2; 2]));
    for axes in [[1, 0, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3], [2, 1, 0, 3]] {
        refused!(Shape, pool(ctx.permute(x, axes).unwrap()), "{axes:?}");
    }
    // One plane: ggml calls it contiguous for any third stride, by which its kernel steps to the end.
    for stride in [0, 4, 1 << 20] {
        let plane = ctx.view(x, [4, 4], [16, stride, stride], 0).unwrap();
        assert!(plane.is_contiguous());
        refused!(Shape, pool(plane), "{stride}");
    }
    assert!(pool(ctx.view(x, [4, 4], [16, 64, 64], 64).unwrap()).is_ok());
}

#[test]
fn pool_2d_refuses_unsuitable_parameters() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 6]).unwrap();
    let pool = |how| ctx.pool_2d(x, PoolOp::Avg, how);
    for bad in [0, -1, i32::MIN, i32::MAX] {
        refused!(Param, pool(window([bad, 2], [1, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, bad], [1, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [bad, 1], [0, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [1, bad], [0, 0])), "{bad}");
    }
    for bad in [-1, (1 << 20) + 1, i32::MAX, i32::MIN] {
        refused!(Param, pool(window([2, 2], [1, 1], [bad, 0])), "{bad}");
        refused!(Param, pool(window([2, 2], [1, 1], [0, bad])), "{bad}");
    }
    refused!(Shape, pool(window([9, 2], [1, 1], [0, 0])));
    refused!(Shape, pool(window([2, 7], [1, 1], [0, 0])));
    for dtype in [DType::BF16, DType::I32, DType::F64] {
        let x = ctx.input("x", dtype, [8, 6]).unwrap();
        refused!(DType, ctx.pool_2d(x, PoolOp::Max, Pool2dOptions::new([2; 2])), "{dtype}");
    }
    assert_eq!(pool(window([2, 2], [1 << 20, 1 << 19], [1 << 20, 1 << 20])).unwrap().ne(), [3, 5, 1, 1]);
    let many = ctx.input("many", DType::F32, [1, 1, 1_i64 << 40]).unwrap();
    refused!(Shape, ctx.pool_2d(many, PoolOp::Avg, window([1, 1], [1, 1], [1 << 20, 1 << 20])), "2^82 windows");
    let long = ctx.input("long", DType::F32, [1 << 25, 2]).unwrap();
    refused!(Shape, ctx.pool_2d(long, PoolOp::Max, Pool2dOptions::new([2; 2])));
}

#[test]
fn pool_1d_refuses_unsuitable_parameters() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 6]).unwrap();
    for bad in [0, -1, i32::MIN, i32::MAX] {
        refused!(Param, ctx.pool_1d(x, PoolOp::Avg, row(bad, 1, 0)), "{bad}");
        refused!(Param, ctx.pool_1d(x, PoolOp::Avg, row(2, bad, 0)), "{bad}");
    }
    for bad in [-1, (1 << 20) + 1, i32::MAX, i32::MIN] {
        refused!(Param, ctx.pool_1d(x, PoolOp::Avg, row(2, 1, bad)), "{bad}");
    }
    refused!(Shape, ctx.pool_1d(x, PoolOp::Avg, row(9, 1, 0)));
    for dtype in [DType::BF16, DType::I32, DType::F64] {
        refused!(
            DType,
            ctx.pool_1d(ctx.input("x", dtype, [8, 6]).unwrap(), PoolOp::Max, Pool1dOptions::new([2])),
            "{dtype}"
        );
    }
    refused!(
        Shape,
        ctx.pool_1d(ctx.input("long", DType::F32, [1 << 21, 2]).unwrap(), PoolOp::Max, Pool1dOptions::new([2]))
    );
}
