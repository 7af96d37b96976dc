//! Element-wise functions of two operands.

use ggml::Result;
use ggml::prelude::*;

use crate::in_place::{held, state};
use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

/// A method and its reference.
type Case = (&'static str, Build, fn(f64, f64) -> f64);

const TYPES: [(DType, DType); 5] = [
    (DType::F32, DType::F32),
    (DType::F16, DType::F16),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F32),
    (DType::BF16, DType::F32),
];

const IN_PLACE: &[Case] = &[
    ("add", |c, a, b| c.add_inplace(a, b), |a, b| a + b),
    ("sub", |c, a, b| c.sub_inplace(a, b), |a, b| a - b),
    ("mul", |c, a, b| c.mul_inplace(a, b), |a, b| a * b),
    ("div", |c, a, b| c.div_inplace(a, b), |a, b| a / b),
];

/// In place on a result and on a state: on all of it, and on rows 1 and 2.
#[test]
fn binary_inplace_writes_only_the_first_operand() {
    for (a_type, b_type) in TYPES {
        for (name, build, f) in IN_PLACE {
            for (rows, b_shape) in
                [(0..4, ne([6])), (0..4, ne([3, 4, 1, 2])), (1..3, ne([6, 2, 3, 2])), (1..3, ne([1]))]
            {
                let context = format!("{name} {a_type} {b_type} {rows:?} {b_shape:?}");
                let values = Array::sample(ne([6, 4, 3, 2]), 1, -2.0, 2.0);
                let (state, before) = state(&values, a_type);
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, _) = lab.operand(&values, a_type, Layout::Plain);
                let (b, rb) = lab.operand(&Array::sample(b_shape, 2, 0.5, 2.0), b_type, Layout::Plain);
                let result = ctx.cont(x).unwrap();
                let outputs = [result, state.tensor("s").unwrap()].map(|t| {
                    let [_, nb1, nb2, nb3] = t.nb();
                    let n = (rows.end - rows.start) as i64;
                    let part = ctx.view(t, [6, n, 3, 2], [nb1, nb2, nb3], rows.start * nb1).unwrap();
                    let y = build(&ctx, part, b).unwrap();
                    assert!(y.is_view() && y.dtype() == a_type);
                    ctx.cont(y).unwrap()
                });
                let got = lab.run_all(&[outputs[0], outputs[1], result]).unwrap();
                let want = Array::of(values.ne, |[i0, i1, i2, i3]| {
                    let old = before.at([i0, i1, i2, i3]);
                    if rows.contains(&i1) { f(old, rb.wrapped([i0, i1 - rows.start, i2, i3])) } else { old }
                });
                assert_close(&got[2], &want, precision(a_type), &format!("{context}, a result"));
                assert_close(&held(&state), &want, precision(a_type), &format!("{context}, a state"));
            }
        }
    }
}

/// An operand that overlaps the target would be read while threads write to it.
#[test]
fn binary_inplace_refuses_overlapping_operands() {
    let (state, _) = state(&Array::sample(ne([8, 4]), 1, -2.0, 2.0), DType::F32);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 4]).unwrap();
    for t in [state.tensor("s").unwrap(), ctx.cont(x).unwrap()] {
        let rows = |first: usize| ctx.view(t, [8, 3], [32, 96, 96], 32 * first).unwrap();
        let one = ctx.view(t, [1], [4, 4, 4], 4).unwrap();
        for (name, build, _) in IN_PLACE {
            refused!(Shape, build(&ctx, rows(0), rows(1)), "{name}");
            refused!(Shape, build(&ctx, rows(1), rows(0)), "{name}");
            refused!(Shape, build(&ctx, t, one), "{name}");
            refused!(Shape, build(&ctx, t, ctx.view(t, [8], [32, 32, 32], 32).unwrap()), "{name}");
            assert!(build(&ctx, rows(0), rows(0)).is_ok(), "{name}: the very same elements");
            assert!(build(&ctx, rows(0), ctx.dup(rows(1)).unwrap()).is_ok(), "{name}");
        }
        refused!(Shape, ctx.add1_inplace(t, one));
        assert!(ctx.add1_inplace(one, one).is_ok());
        // The CPU fuses the norm with the product.
        let norm = |first| ctx.rms_norm(rows(first), 1e-6).unwrap();
        refused!(Shape, ctx.mul_inplace(rows(1), norm(0)));
        assert!(ctx.mul_inplace(rows(0), norm(0)).is_ok());
        assert!(ctx.mul_inplace(rows(1), ctx.dup(norm(0)).unwrap()).is_ok());
    }
}

#[test]
fn mul_inplace_with_the_norm_of_its_operand_equals_plain_rust() {
    let values = Array::sample(ne([37, 5]), 1, -2.0, 2.0);
    for threads in [1, 3] {
        let (state, before) = state(&values, DType::F32);
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, threads);
        let t = state.tensor("s").unwrap();
        let y = ctx.mul_inplace(t, ctx.rms_norm(t, 1e-6).unwrap()).unwrap();
        lab.run_all(&[ctx.neg(y).unwrap()]).unwrap();
        let want = before.rows(|r| {
            let mean = r.iter().map(|x| x * x).sum::<f64>() / r.len() as f64;
            r.iter().map(|x| x * x / (mean + 1e-6).sqrt()).collect()
        });
        assert_close(&held(&state), &want, 2e-5, &format!("{threads} threads"));
    }
}

#[test]
fn add_cast_equals_plain_rust() {
    let floats =
        [(DType::F16, DType::F16), (DType::F16, DType::F32), (DType::BF16, DType::BF16), (DType::BF16, DType::F32)];
    let shapes = [(ne([64, 3, 2]), ne([64])), (ne([64, 3, 2]), ne([64, 3, 2])), (ne([64, 4]), ne([64, 2]))];
    for (a_type, made) in floats {
        for (a_shape, b_shape) in shapes {
            for layout in Layout::ROWS {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (a, ra) = lab.operand(&Array::sample(a_shape, 1, -2.0, 2.0), a_type, layout);
                let (b, rb) = lab.operand(&Array::sample(b_shape, 2, -2.0, 2.0), DType::F32, layout);
                let y = ctx.add_cast(a, b, made).unwrap();
                assert_eq!(y.dtype(), made);
                let want = Array::of(a_shape, |i| ra.at(i) + rb.wrapped(i));
                assert_close(&lab.run(y).unwrap(), &want, precision(made), &format!("{a_type} {made} {layout:?}"));
            }
        }
    }
    for a_type in [DType::Q8_0, DType::Q4_0] {
        // Half a quantisation step of the largest possible value.
        for (made, tolerance) in [
            (DType::F32, 2e-5),
            (DType::F16, 2e-3),
            (DType::BF16, 1.6e-2),
            (DType::Q8_0, 4.2 / 127.0),
            (DType::Q4_0, 4.2 / 7.0),
        ] {
            for (layout, threads) in Layout::ROWS.into_iter().zip([1, 2, 3]) {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let shape = ne([64, 3, 2, 2]);
                let (a, ra) = lab.operand(&Array::sample(shape, 1, -2.0, 2.0), a_type, layout);
                let (b, rb) = lab.operand(&Array::sample(shape, 2, -2.0, 2.0), DType::F32, layout);
                let mut outputs = vec![ctx.add_cast(a, b, made).unwrap()];
                if made == a_type {
                    outputs.push(ctx.add(a, b).unwrap());
                    let copy = ctx.cont(a).unwrap();
                    outputs.push(ctx.cont(ctx.add_inplace(copy, b).unwrap()).unwrap());
                }
                let want = Array::of(shape, |i| ra.at(i) + rb.at(i));
                for got in lab.run_all(&outputs).unwrap() {
                    assert_close(&got, &want, tolerance, &format!("{a_type} {made} {layout:?}"));
                }
            }
        }
    }
}

#[test]
fn add_cast_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let half = of(DType::F16, [256, 2, 1, 1]);
    let row = of(DType::F32, [256, 1, 1, 1]);
    refused!(DType, ctx.add_cast(of(DType::F32, [256, 2, 1, 1]), row, DType::F16));
    refused!(DType, ctx.add_cast(of(DType::I32, [256, 2, 1, 1]), row, DType::F16));
    refused!(Shape, ctx.add_cast(half, of(DType::F32, [128, 1, 1, 1]), DType::F32), "rows are not repeated");
    refused!(Shape, ctx.add_cast(half, of(DType::F32, [256, 3, 1, 1]), DType::F32));
    refused!(Shape, ctx.add_cast(of(DType::F16, [48, 2, 1, 1]), of(DType::F32, [48, 1, 1, 1]), DType::Q8_0));
    let accepted = |a, b, dtype| lab.accepted(ctx.add_cast(a, b, dtype).unwrap());
    for dtype in [DType::I32, DType::BF16, DType::Q8_0, DType::F64] {
        refused!(Unsupported, accepted(half, row, dtype), "{dtype}");
    }
    refused!(Unsupported, accepted(half, of(DType::F16, [256, 1, 1, 1]), DType::F32));
    // Types that rows can't be quantised to: the kernel would write floats to them.
    let blocks = of(DType::Q8_0, [256, 2, 2, 1]);
    let floats = of(DType::F32, [256, 2, 2, 1]);
    for dtype in [DType::IQ2_XXS, DType::IQ1_S, DType::IQ3_S, DType::I32, DType::F64, DType::Q8_1] {
        refused!(Unsupported, accepted(blocks, floats, dtype), "{dtype}");
    }
    for dtype in [DType::Q8_1, DType::IQ2_XXS] {
        refused!(Unsupported, lab.accepted(ctx.add(of(dtype, [256, 2, 2, 1]), floats).unwrap()), "{dtype}");
    }
    refused!(Unsupported, accepted(blocks, row, DType::F32), "nothing is repeated over blocks");
    refused!(Unsupported, accepted(blocks, of(DType::F16, [256, 2, 2, 1]), DType::F32));
    let turned = ctx.transpose(of(DType::F32, [2, 256, 2, 1])).unwrap();
    refused!(Unsupported, accepted(blocks, turned, DType::F32));
    let swapped = ctx.permute(ctx.cont(blocks).unwrap(), [0, 2, 1, 3]).unwrap();
    refused!(Unsupported, lab.accepted(ctx.add_inplace(swapped, floats).unwrap()), "not in order");
}

#[test]
fn add1_equals_plain_rust() {
    for (a_type, b_type) in TYPES.into_iter().chain([(DType::Q8_0, DType::F32), (DType::Q4_0, DType::F32)]) {
        for (layout, threads) in [(Layout::Plain, 1), (Layout::Plain, 3)] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (a, ra) = lab.operand(&Array::sample(ne([64, 3, 5]), 1, -2.0, 2.0), a_type, layout);
            let (b, rb) = lab.operand(&Array::sample(ne([1]), 2, -2.0, 2.0), b_type, Layout::Plain);
            let [_, nb1, nb2, nb3] = a.nb();
            let some = ctx.view(a, [64, 2], [nb1, 2 * nb1, 2 * nb1], nb1).unwrap();
            assert!(nb2 > nb1 && nb3 > nb2);
            let copy = ctx.cont(a).unwrap();
            let outputs = [
                ctx.add1(a, b).unwrap(),
                ctx.cont(ctx.add1_inplace(copy, b).unwrap()).unwrap(),
                ctx.add1(some, b).unwrap(),
            ];
            let tolerance = match a_type {
                DType::Q8_0 => 4.2 / 127.0,
                DType::Q4_0 => 4.2 / 7.0,
                other => precision(other),
            };
            let got = lab.run_all(&outputs).unwrap();
            let want = ra.map(|x| x + rb.data[0]);
            assert_close(&got[0], &want, tolerance, &format!("{a_type} {b_type}"));
            assert_close(&got[1], &want, tolerance, &format!("{a_type} {b_type} in place"));
            let want = Array::of(ne([64, 2]), |[i0, i1, ..]| want.at([i0, i1 + 1, 0, 0]));
            assert_close(&got[2], &want, tolerance, &format!("{a_type} {b_type} of a part"));
        }
    }
}

#[test]
fn add1_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (a, one) = (of(DType::F32, [8, 4, 2, 1]), of(DType::F32, [1; 4]));
    for shape in [[2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 1, 2]] {
        refused!(Shape, ctx.add1(a, of(DType::F32, shape)));
    }
    refused!(Shape, ctx.add1(ctx.transpose(a).unwrap(), one));
    refused!(Shape, ctx.add1(ctx.permute(a, [0, 2, 1, 3]).unwrap(), one));
    refused!(Shape, ctx.add1(ctx.view(a, [8, 3, 2], [32, 128, 256], 0).unwrap(), one), "gaps between planes");
    // The kernel would read four bytes of a two-byte scalar.
    for dtype in [DType::F16, DType::BF16, DType::I32, DType::I8] {
        refused!(Unsupported, lab.accepted(ctx.add1(a, of(dtype, [1; 4])).unwrap()), "{dtype}");
    }
    for (x, y) in
        [(DType::F16, DType::BF16), (DType::I32, DType::I32), (DType::IQ2_XXS, DType::F32), (DType::Q8_0, DType::F16)]
    {
        let y = ctx.add1(of(x, [256, 2, 1, 1]), of(y, [1; 4])).unwrap();
        refused!(Unsupported, lab.accepted(y), "{x}");
    }
    // The kernel finds batches by the wrong stride.
    refused!(Unsupported, lab.accepted(ctx.add1(of(DType::Q8_0, [32, 2, 2, 2]), one).unwrap()));
}

#[test]
fn binary_operations_require_a_broadcastable_second_operand() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [6, 4]).unwrap();
    for shape in [[4, 1], [12, 1], [6, 3], [6, 8]] {
        let b = ctx.input("b", DType::F32, shape).unwrap();
        for (name, build, _) in IN_PLACE {
            refused!(Shape, build(&ctx, a, b), "{name} {shape:?}");
        }
        refused!(Shape, ctx.add_cast(ctx.cast(a, DType::F16).unwrap(), b, DType::F16));
    }
}

#[test]
fn binary_operations_refuse_types_without_a_kernel() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let blocks = of(DType::Q4_0, [32, 2]);
    refused!(Unsupported, lab.accepted(ctx.add(blocks, of(DType::F32, [32, 1])).unwrap()));
    let transposed = ctx.transpose(of(DType::F32, [4, 2])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.add(transposed, of(DType::F32, [2, 4])).unwrap()));
}
