//! Writing and adding to a part of a tensor.

use ggml::prelude::*;
use ggml::{Result, ops::SetOptions};

use crate::in_place::{held, state};
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

fn part(strides: [usize; 3], offset: usize) -> SetOptions {
    SetOptions::new(offset).with_strides(strides)
}

/// For a tensor of `[6, 4, 3, 2]` and four bytes per element: the second operand's shape, and its part.
const PARTS: [([usize; 4], Option<[usize; 3]>, usize); 8] = [
    ([6, 4, 3, 2], None, 0),
    ([1, 1, 1, 1], None, 4 * 143),
    ([5, 1, 1, 1], None, 4 * 139),
    ([3, 2, 2, 2], None, 4 * 8),
    ([2, 3, 1, 1], Some([48, 4, 4]), 4),
    // Planes closer together than rows.
    ([2, 3, 2, 1], Some([32, 12, 4]), 0),
    ([6, 24, 1, 1], Some([24, 576, 576]), 0),
    ([1, 36, 1, 1], Some([16, 4, 4]), 12),
];

/// Reference: `a` after element `i` of `b` has changed its target.
fn expected(a: &Array, b: &Array, strides: [usize; 3], offset: usize, f: fn(f64, f64) -> f64) -> Array {
    let mut left = a.clone();
    Array::of(b.ne, |i| {
        let at = (offset + 4 * i[0] + strides[0] * i[1] + strides[1] * i[2] + strides[2] * i[3]) / 4;
        left.data[at] = f(left.data[at], b.at(i));
        0.0
    });
    left
}

type Build = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>, SetOptions) -> Result<Tensor<'c>>;

/// A method, its in-place variant, and its reference for an element.
type Case = (&'static str, Build, Build, fn(f64, f64) -> f64);

const CASES: [Case; 2] = [
    ("set", |c, a, b, p| c.set(a, b, p), |c, a, b, p| c.set_inplace(a, b, p), |_, b| b),
    ("acc", |c, a, b, p| c.acc(a, b, p), |c, a, b, p| c.acc_inplace(a, b, p), |a, b| a + b),
];

const SHAPE: [usize; 4] = [6, 4, 3, 2];

#[test]
fn acc_and_set_write_only_their_part() {
    for (name, beside, in_place, f) in CASES {
        for dtype in [DType::F32, DType::I32] {
            if (name, dtype) == ("acc", DType::I32) {
                continue;
            }
            for (b_shape, strides, offset) in PARTS {
                for (layout, threads) in Layout::ROWS.into_iter().zip([1, 2, 5]) {
                    let context = format!("{name} {dtype} {b_shape:?} {strides:?} {layout:?}");
                    let values = Array::sample(SHAPE, 3, -90.0, 90.0);
                    let (state, _) = state(&values, dtype);
                    let ctx = Context::new();
                    let lab = Lab::with_threads(&ctx, threads);
                    let (a, ra) = lab.operand(&values, dtype, Layout::Plain);
                    let (b, rb) = lab.operand(&Array::sample(b_shape, 4, -90.0, 90.0), dtype, layout);
                    let at = SetOptions::new(offset).with_strides(strides);
                    let result = ctx.cont(a).unwrap();
                    let y = beside(&ctx, a, b, at).unwrap();
                    assert!(!y.is_view());
                    let of_result = ctx.cont(in_place(&ctx, result, b, at).unwrap()).unwrap();
                    let of_state = in_place(&ctx, state.tensor("s").unwrap(), b, at).unwrap();
                    assert!(of_state.is_view());
                    let got = lab.run_all(&[y, of_result, result, ctx.cont(of_state).unwrap(), a]).unwrap();
                    let want = expected(&ra, &rb, strides.unwrap_or([24, 96, 288]), offset, f);
                    for (got, what) in got.iter().zip(["a copy", "a view", "a result", "a state"]) {
                        assert_close(got, &want, 1e-5, &format!("{context}, {what}"));
                    }
                    assert_close(&got[4], &ra, 0.0, "the operand keeps its values");
                    assert_close(&held(&state), &want, 1e-5, &context);
                }
            }
        }
    }
}

#[test]
fn set_1d_and_set_2d_write_rows() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (a, ra) = lab.plain(&Array::sample(SHAPE, 3, -9.0, 9.0));
    let (row, r1) = lab.plain(&Array::sample(ne([7]), 4, -9.0, 9.0));
    let (rows, r2) = lab.plain(&Array::sample(ne([2, 3, 2]), 5, -9.0, 9.0));
    let whole = || ctx.cont(a).unwrap();
    let outputs = [
        ctx.set_1d(a, row, 20).unwrap(),
        ctx.cont(ctx.set_1d_inplace(whole(), row, 20).unwrap()).unwrap(),
        ctx.set_1d(a, rows, 20).unwrap(),
        ctx.set_2d(a, rows, 12, 8).unwrap(),
        ctx.cont(ctx.set_2d_inplace(whole(), rows, 12, 8).unwrap()).unwrap(),
    ];
    let one = expected(&ra, &r1, [24, 96, 288], 20, |_, b| b);
    let spread = expected(&ra, &r2, [24, 96, 288], 20, |_, b| b);
    let two = expected(&ra, &r2, [12, 96, 288], 8, |_, b| b);
    for (n, (got, want)) in lab.run_all(&outputs).unwrap().iter().zip([&one, &one, &spread, &two, &two]).enumerate() {
        assert_close(got, want, 0.0, &format!("case {n}"));
    }
}

/// C accepts a part that is one element too long, whose last row is out of bounds, or that is misaligned.
#[test]
fn h05_acc_and_set_refuse_parts_out_of_bounds() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [6, 4]).unwrap();
    let of = |shape: [i64; 4]| ctx.input("b", DType::F32, shape).unwrap();
    for (shape, strides, offset) in [
        ([1, 1, 1, 1], [24, 96, 96], 96),
        ([2, 1, 1, 1], [24, 96, 96], 92),
        ([6, 4, 1, 1], [24, 96, 96], 4),
        ([3, 2, 1, 1], [88, 96, 96], 0),
        ([1, 2, 1, 1], [96, 96, 96], 0),
        ([1, 1, 2, 1], [24, 96, 96], 0),
        ([1, 1, 1, 2], [24, 96, 96], 0),
        ([24, 1, 1, 1], [24, 96, 96], 4),
        ([1, 1, 1, 1], [24, 96, 96], 1 << 20),
    ] {
        for (name, beside, in_place, _) in CASES {
            refused!(Param, beside(&ctx, a, of(shape), part(strides, offset)), "{name} {shape:?}");
            let written = ctx.cont(a).unwrap();
            refused!(Param, in_place(&ctx, written, of(shape), part(strides, offset)), "{name} {shape:?}");
        }
    }
    refused!(Param, ctx.set_1d(a, of([2, 1, 1, 1]), 92));
    refused!(Param, ctx.set_1d(a, of([1, 2, 1, 1]), 72));
    refused!(Param, ctx.set_1d_inplace(ctx.cont(a).unwrap(), of([1, 1, 1, 1]), 96));
    refused!(Param, ctx.set_2d(a, of([2, 3, 1, 1]), 48, 0));
    refused!(Param, ctx.set_2d_inplace(ctx.cont(a).unwrap(), of([2, 3, 1, 1]), 48, 0));
    // The last element, still in bounds.
    assert!(ctx.set_1d(a, of([1, 1, 1, 1]), 92).is_ok());
    assert!(ctx.set_2d(a, of([2, 3, 1, 1]), 44, 0).is_ok());
}

/// C cuts strides to signed 32 bits, and offsets of 2^30 or more end the process; threads write rows in any order.
#[test]
fn h05_acc_and_set_check_strides_and_offsets() {
    let ctx = Context::new();
    // Too large for any memory, but never allocated here.
    let a = ctx.input("a", DType::F32, [1 << 20, 1 << 20]).unwrap();
    let of = |shape: [i64; 4]| ctx.input("b", DType::F32, shape).unwrap();
    for (shape, strides, offset) in [
        ([1, 2, 1, 1], [1 << 31, 4, 4], 0),
        ([1, 2, 1, 1], [1 << 32, 4, 4], 0),
        ([1, 2, 1, 1], [(1 << 32) + 4, 4, 4], 0),
        ([1, 1, 2, 1], [4, 1 << 31, 4], 0),
        ([1, 1, 1, 2], [4, 4, usize::MAX - 3], 0),
        ([1, 1, 1, 1], [4, 4, 1 << 32], 0),
        ([1, 1, 1, 1], [4, 4, 4], 1 << 30),
        ([1, 1, 1, 1], [4, 4, 4], usize::MAX - 3),
        ([1, 1, 1, 1], [4, 4, 4], 2),
        ([1, 2, 1, 1], [6, 12, 12], 0),
        ([1, 1, 1, 1], [0, 4, 4], 0),
        // Overlapping elements, which would be written twice.
        ([2, 2, 1, 1], [4, 8, 8], 0),
        ([2, 2, 2, 1], [8, 12, 24], 0),
        ([1, 2, 2, 1], [4, 4, 4], 0),
    ] {
        for (name, beside, in_place, _) in CASES {
            refused!(Param, beside(&ctx, a, of(shape), part(strides, offset)), "{name} {shape:?} {strides:?}");
            let written = ctx.cont(a).unwrap();
            refused!(Param, in_place(&ctx, written, of(shape), part(strides, offset)), "{name} {shape:?}");
        }
    }
    refused!(Param, ctx.set(a, of([1; 4]), SetOptions::new(0)), "the strides of `a` do not fit");
    refused!(Param, ctx.set_1d(a, of([1; 4]), 0));
    refused!(Param, ctx.set_2d(a, of([1; 4]), 4, 0));
}

#[test]
fn acc_and_set_refuse_unsuitable_and_overlapping_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let (a, b) = (of(DType::F32, [6, 4]), of(DType::F32, [2, 1]));
    for (name, beside, in_place, _) in CASES {
        let at = SetOptions::new(0);
        refused!(DType, beside(&ctx, a, of(DType::F16, [2, 1]), at), "{name}");
        refused!(DType, beside(&ctx, a, of(DType::I32, [2, 1]), at), "{name}");
        refused!(DType, beside(&ctx, of(DType::Q8_0, [32, 2]), of(DType::Q8_0, [32, 1]), at), "{name}");
        refused!(Shape, beside(&ctx, ctx.transpose(a).unwrap(), b, at), "{name}");
        let gaps = ctx.view(a, [5, 4], [24, 96, 96], 0).unwrap();
        refused!(Shape, beside(&ctx, gaps, b, at), "{name}");
        let turned = ctx.transpose(of(DType::F32, [2, 3])).unwrap();
        refused!(Unsupported, lab.accepted(beside(&ctx, a, turned, at).unwrap()), "{name}");
        let t = ctx.cont(a).unwrap();
        refused!(Shape, in_place(&ctx, t, t, at), "{name}");
        let row = ctx.view(t, [6], [24, 24, 24], 24).unwrap();
        refused!(Shape, in_place(&ctx, t, row, at), "{name}");
        assert!(in_place(&ctx, t, ctx.dup(row).unwrap(), at).is_ok(), "{name}");
        assert!(beside(&ctx, t, row, at).is_ok(), "{name}");
        // A part of a result, next to the elements that are read.
        let first = ctx.view(t, [6], [24, 24, 24], 0).unwrap();
        assert!(in_place(&ctx, first, row, at).is_ok(), "{name}");
    }
    refused!(DType, ctx.acc(of(DType::I32, [6, 4]), of(DType::I32, [2, 1]), SetOptions::new(0)));
    for dtype in [DType::F16, DType::BF16, DType::I64, DType::I8] {
        let y = ctx.set(of(dtype, [6, 4]), of(dtype, [2, 1]), SetOptions::new(0)).unwrap();
        refused!(Unsupported, lab.accepted(y), "{dtype}");
    }
}
