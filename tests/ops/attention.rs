//! The indexer of sparse attention, and relative positions. What they compute is in the table.

use ggml::prelude::*;

use crate::support::{Lab, refused};

#[test]
fn lightning_indexer_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (q, k, w) = (f32s([8, 3, 5, 4]), f32s([8, 1, 7, 4]), f32s([3, 5, 1, 4]));
    let mask = of(DType::F16, [7, 5, 1, 2]);
    assert!(ctx.lightning_indexer(q, k, w, mask).is_ok());
    for shape in [[7, 1, 7, 4], [8, 2, 7, 4], [8, 1, 7, 2], [8, 1, 6, 4]] {
        refused!(Shape, ctx.lightning_indexer(q, f32s(shape), w, mask), "{shape:?}");
    }
    for shape in [[2, 5, 1, 4], [3, 4, 1, 4], [3, 6, 1, 4], [3, 5, 2, 4], [3, 5, 1, 2]] {
        refused!(Shape, ctx.lightning_indexer(q, k, f32s(shape), mask), "{shape:?}");
    }
    for shape in [[6, 5, 1, 2], [8, 5, 1, 2], [7, 4, 1, 2], [7, 6, 1, 2], [7, 5, 2, 2], [7, 5, 1, 3], [7, 5, 1, 8]] {
        refused!(Shape, ctx.lightning_indexer(q, k, w, of(DType::F16, shape)), "{shape:?}");
    }
    let (many, ones) = (f32s([1, 1, 1 << 30, 1]), f32s([1, 1 << 30, 1, 1]));
    refused!(Shape, ctx.lightning_indexer(many, many, ones, of(DType::F16, [1 << 30, 1 << 30, 1, 1])), "too large");
    refused!(DType, ctx.lightning_indexer(of(DType::F16, [8, 3, 5, 4]), k, w, mask));
    refused!(DType, ctx.lightning_indexer(q, k, of(DType::F16, [3, 5, 1, 4]), mask));
    refused!(DType, ctx.lightning_indexer(q, k, w, f32s([7, 5, 1, 2])));

    let lab = Lab::new(&ctx);
    let accepted = |q, k, w, m| lab.accepted(ctx.lightning_indexer(q, k, w, m).unwrap());
    for dtype in [DType::I32, DType::F64, DType::I8] {
        refused!(Unsupported, accepted(q, of(dtype, [8, 1, 7, 4]), w, mask), "{dtype}");
    }
    let across = |dtype, [n0, n1, n2, n3]: [i64; 4]| ctx.transpose(of(dtype, [n1, n0, n2, n3])).unwrap();
    refused!(Unsupported, accepted(across(DType::F32, [8, 3, 5, 4]), k, w, mask));
    refused!(Unsupported, accepted(q, ctx.permute(f32s([7, 1, 8, 4]), [2, 1, 0, 3]).unwrap(), w, mask));
    refused!(Unsupported, accepted(q, k, across(DType::F32, [3, 5, 1, 4]), mask));
    refused!(Unsupported, accepted(q, k, w, across(DType::F16, [7, 5, 1, 2])));
}

#[test]
fn get_rel_pos_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F16, [6, 7, 1, 1]);
    assert!(ctx.get_rel_pos(a, 4, 4).is_ok());
    for (qh, kh) in [(4, 3), (3, 4), (0, 0), (-3, -3)] {
        refused!(Param, ctx.get_rel_pos(a, qh, kh), "{qh} {kh}");
    }
    refused!(Shape, ctx.get_rel_pos(a, 3, 3));
    refused!(Shape, ctx.get_rel_pos(a, 5, 5));
    refused!(Shape, ctx.get_rel_pos(of(DType::F16, [6, 7, 2, 1]), 4, 4));
    refused!(Param, ctx.get_rel_pos(of(DType::F16, [1, (1 << 31) - 1, 1, 1]), 1 << 30, 1 << 30));
    refused!(Shape, ctx.get_rel_pos(of(DType::F16, [1 << 31, (1 << 30) - 1, 1, 1]), 1 << 29, 1 << 29));
    for dtype in [DType::F32, DType::BF16] {
        refused!(DType, ctx.get_rel_pos(of(dtype, [6, 7, 1, 1]), 4, 4), "{dtype}");
    }
    let across = ctx.transpose(of(DType::F16, [7, 6, 1, 1])).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(ctx.get_rel_pos(across, 4, 4).unwrap()));
}

#[test]
fn add_rel_pos_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (a, p) = (ctx.dup(f32s([9, 10, 4, 1])).unwrap(), f32s([3, 2, 5, 4]));
    assert!(ctx.add_rel_pos_inplace(a, p, p).is_ok());
    for add in [Context::add_rel_pos, Context::add_rel_pos_inplace] {
        for shape in [[8, 10, 4, 1], [10, 10, 4, 1], [9, 9, 4, 1], [9, 10, 3, 1], [9, 10, 4, 2], [9, 10, 5, 1]] {
            refused!(Shape, add(&ctx, ctx.dup(f32s(shape)).unwrap(), p, p), "{shape:?}");
        }
        for shape in [[2, 2, 5, 4], [3, 1, 5, 4], [3, 2, 5, 1], [3, 5, 2, 4]] {
            refused!(Shape, add(&ctx, a, p, f32s(shape)), "{shape:?}");
            refused!(Shape, add(&ctx, a, f32s(shape), p), "{shape:?}");
        }
        refused!(DType, add(&ctx, a, of(DType::F16, [3, 2, 5, 4]), p));
        refused!(DType, add(&ctx, a, p, of(DType::F16, [3, 2, 5, 4])));
        let across = ctx.transpose(ctx.dup(f32s([10, 9, 4, 1])).unwrap()).unwrap();
        refused!(Shape, add(&ctx, across, p, p));
        let swapped = ctx.permute(f32s([3, 5, 2, 4]), [0, 2, 1, 3]).unwrap();
        refused!(Shape, add(&ctx, a, swapped, p));
        refused!(Shape, add(&ctx, a, p, swapped));
    }
    refused!(Shape, ctx.add_rel_pos_inplace(f32s([9, 10, 4, 1]), p, p), "into an input");
    // Positions that share memory with the target.
    let whole = ctx.dup(f32s([9, 10, 4, 1])).unwrap();
    let part = ctx.view(whole, [3, 2, 5, 4], [12, 24, 120], 0).unwrap();
    refused!(Shape, ctx.add_rel_pos_inplace(whole, part, p));
    refused!(Shape, ctx.add_rel_pos_inplace(whole, p, part));
    let halves = ctx.add_rel_pos(ctx.cast(f32s([9, 10, 4, 1]), DType::F16).unwrap(), p, p).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(halves));

    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [9, 10, 4]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    refused!(Frozen, ctx.add_rel_pos_inplace(weights.tensor("w").unwrap(), p, p));
}
