//! Padding and rolling.

use ggml::ops::PadOptions;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

fn with(left: [i32; 4], right: [i32; 4], circular: bool) -> PadOptions {
    PadOptions::new().with_left(left).with_right(right).with_circular(circular)
}

const SHAPE: [usize; 4] = [5, 4, 3, 2];

#[test]
fn pad_equals_plain_rust() {
    for layout in Layout::ALL {
        for (left, right) in
            [([0; 4], [0; 4]), ([0; 4], [1, 2, 3, 4]), ([2, 1, 3, 2], [0, 3, 1, 0]), ([5, 4, 3, 2], [11, 9, 0, 5])]
        {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let (a, values) = lab.operand(&Array::sample(SHAPE, 1, 1.0, 2.0), DType::F32, layout);
            let outputs = [false, true].map(|circular| ctx.pad(a, with(left, right, circular)).unwrap());
            let ne = std::array::from_fn(|d| SHAPE[d] + left[d] as usize + right[d] as usize);
            let from = |i: [usize; 4]| -> [i64; 4] { std::array::from_fn(|d| i[d] as i64 - i64::from(left[d])) };
            let zeros = Array::of(ne, |i| {
                let inside = from(i).iter().zip(SHAPE).all(|(&i, n)| (0..n as i64).contains(&i));
                if inside { values.at(from(i).map(|i| i as usize)) } else { 0.0 }
            });
            let round = Array::of(ne, |i| {
                let i = from(i);
                values.at(std::array::from_fn(|d| i[d].rem_euclid(SHAPE[d] as i64) as usize))
            });
            let got = lab.run_all(&outputs).unwrap();
            assert_close(&got[0], &zeros, 0.0, &format!("{layout:?} {left:?} {right:?}"));
            assert_close(&got[1], &round, 0.0, &format!("circular {layout:?} {left:?} {right:?}"));
        }
    }
    assert_eq!(PadOptions::new().with_right([1, 2, 3, 4]), with([0; 4], [1, 2, 3, 4], false));
    assert_eq!(PadOptions::new().with_right([1, 2, 3, 4]).with_circular(true), with([0; 4], [1, 2, 3, 4], true));
}

#[test]
fn pad_reflect_1d_equals_plain_rust() {
    for shape in [SHAPE, ne([1]), ne([7, 1, 2])] {
        for (left, right) in [(0, 0), (1, 0), (0, 2), (4, 4), (3, 1)] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let (a, values) = lab.plain(&Array::sample(shape, 1, 1.0, 2.0));
            let y = ctx.pad_reflect_1d(a, left, right);
            if shape[0] == 1 && (left, right) != (0, 0) {
                refused!(Param, y, "{left} {right}");
                continue;
            }
            let [n0, n1, n2, n3] = shape;
            let want = Array::of([n0 + (left + right) as usize, n1, n2, n3], |[i, i1, i2, i3]| {
                let i = (i as i32 - left).unsigned_abs() as usize;
                values.at([if i < n0 { i } else { 2 * (n0 - 1) - i }, i1, i2, i3])
            });
            assert_close(&lab.run(y.unwrap()).unwrap(), &want, 0.0, &format!("{shape:?} {left} {right}"));
        }
    }
}

#[test]
fn roll_equals_plain_rust() {
    for layout in Layout::ROWS {
        for shifts in [[0; 4], [1, 0, 0, 0], [-1, 2, -2, 1], [4, -3, 1, 0], [0, 0, 0, -1]] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let (a, values) = lab.operand(&Array::sample(SHAPE, 1, 1.0, 2.0), DType::F32, layout);
            let want = Array::of(SHAPE, |i| {
                let from = |d: usize| (i[d] as i32 - shifts[d]).rem_euclid(SHAPE[d] as i32) as usize;
                values.at([from(0), from(1), from(2), from(3)])
            });
            let got = lab.run(ctx.roll(a, shifts).unwrap()).unwrap();
            assert_close(&got, &want, 0.0, &format!("{layout:?} {shifts:?}"));
        }
    }
}

#[test]
fn h16_circular_pad_wraps_at_most_once() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [5, 4, 3, 2]).unwrap();
    for axis in 0..4 {
        let mut left = [5, 4, 3, 2];
        assert!(ctx.pad(a, with(left, [0; 4], true)).is_ok());
        left[axis] += 1;
        refused!(Param, ctx.pad(a, with(left, [0; 4], true)), "{axis}");
        assert!(ctx.pad(a, with(left, [0; 4], false)).is_ok(), "zeros have no end");
        left[axis] = i32::MAX;
        refused!(Param, ctx.pad(a, with(left, [0; 4], true)), "{axis}");
    }
}

#[test]
fn pad_roll_and_reflect_refuse_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F32, [5, 4, 3, 2]);
    for bad in [-1, -5, i32::MIN] {
        for axis in 0..4 {
            let mut n = [0; 4];
            n[axis] = bad;
            for circular in [false, true] {
                refused!(Param, ctx.pad(a, with(n, [0; 4], circular)), "{bad} {axis}");
                refused!(Param, ctx.pad(a, with([0; 4], n, circular)), "{bad} {axis}");
            }
        }
    }
    refused!(Shape, ctx.pad(a, PadOptions::new().with_right([i32::MAX; 4])), "too large");
    for dtype in [DType::F16, DType::I32] {
        refused!(DType, ctx.pad(of(dtype, [5, 4, 3, 2]), PadOptions::new()), "{dtype}");
        refused!(DType, ctx.pad_reflect_1d(of(dtype, [5, 4, 3, 2]), 1, 1), "{dtype}");
        let y = ctx.roll(of(dtype, [5, 4, 3, 2]), [1, 0, 0, 0]).unwrap();
        refused!(Unsupported, Lab::new(&ctx).accepted(y), "{dtype}");
    }
    for bad in [-1, 5, 6, i32::MIN, i32::MAX] {
        refused!(Param, ctx.pad_reflect_1d(a, bad, 0), "{bad}");
        refused!(Param, ctx.pad_reflect_1d(a, 0, bad), "{bad}");
    }
    refused!(Shape, ctx.pad_reflect_1d(ctx.transpose(a).unwrap(), 1, 1));
    for (axis, n) in [5, 4, 3, 2].into_iter().enumerate() {
        for bad in [n, -n, i32::MAX, i32::MIN] {
            let mut shifts = [0; 4];
            shifts[axis] = bad;
            refused!(Param, ctx.roll(a, shifts), "{axis} {bad}");
        }
    }
    refused!(Shape, ctx.roll(ctx.transpose(a).unwrap(), [0; 4]));
}
