//! Gated linear units.

use ggml::ops::GluOp;
use ggml::prelude::*;
use testkit::cases::unary::{gelu, gelu_quick, relu, silu};
use testkit::gelu_erf;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

/// A unit, the function of its gate, and its tolerance where ggml uses a table of 16-bit floats.
type Case = (GluOp, fn(f64) -> f64, f64);

const GATES: [Case; 5] = [
    (GluOp::Reglu, relu, 0.0),
    (GluOp::Geglu, gelu, 4e-3),
    (GluOp::Swiglu, silu, 0.0),
    (GluOp::GegluErf, gelu_erf, 0.0),
    (GluOp::GegluQuick, gelu_quick, 4e-3),
];

#[test]
fn glu_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for shape in [ne([2]), ne([3]), ne([34, 3]), ne([35, 3]), ne([6, 3, 2, 2]), ne([5, 3, 2, 2])] {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -2.0, 2.0), dtype, Layout::Plain);
            let (a, ra) = lab.operand(&Array::sample(shape, 5, -2.0, 2.0), dtype, Layout::Plain);
            // Evenly spaced rows, with gaps.
            let (wide, rw) = lab.operand(&Array::sample(ne([40, 5]), 6, -2.0, 2.0), dtype, Layout::Plain);
            let spaced = ctx.view(wide, [10, 5], [wide.nb()[1], 0, 0], 3 * wide.nb()[0]).unwrap();
            let of_spaced = Array::of(ne([10, 5]), |[i0, i1, ..]| rw.at([i0 + 3, i1, 0, 0]));
            for &op in GluOp::ALL {
                let &(_, f, inexact) = GATES.iter().find(|(gate, ..)| *gate == op).unwrap();
                let outputs = [
                    ctx.glu(x, op, false).unwrap(),
                    ctx.glu(x, op, true).unwrap(),
                    ctx.glu_split(x, a, op).unwrap(),
                    ctx.glu(spaced, op, false).unwrap(),
                    ctx.glu_split(spaced, spaced, op).unwrap(),
                ];
                let halves = |gate: usize, values: &Array| {
                    values.rows(|r| {
                        // The last element of an odd row is not used.
                        let (first, second) = r[..r.len() / 2 * 2].split_at(r.len() / 2);
                        let pair = if gate == 0 { (first, second) } else { (second, first) };
                        pair.0.iter().zip(pair.1).map(|(g, v)| f(*g) * v).collect()
                    })
                };
                let want = [
                    halves(0, &values),
                    halves(1, &values),
                    Array::of(shape, |i| f(values.at(i)) * ra.at(i)),
                    halves(0, &of_spaced),
                    of_spaced.map(|x| f(x) * x),
                ];
                for (n, (got, want)) in lab.run_all(&outputs).unwrap().iter().zip(&want).enumerate() {
                    let tolerance = (2.0 * precision(dtype)).max(inexact);
                    assert_close(got, want, tolerance, &format!("{op:?} {dtype} {shape:?}, case {n}"));
                }
            }
        }
    }
}

#[test]
fn swiglu_oai_and_swiglu_clamp_equal_plain_rust() {
    for (shape, threads) in [(ne([1]), 2), (ne([37, 3]), 1), (ne([6, 3, 2, 2]), 3)] {
        for (alpha, limit) in [(1.702_f32, 7.0_f32), (0.5, 1.25), (-1.0, 0.0), (1.0, f32::INFINITY)] {
            for dtype in [DType::F32, DType::F16] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (a, ra) = lab.operand(&Array::sample(shape, 4, -9.0, 9.0), dtype, Layout::Plain);
                let (b, rb) = lab.operand(&Array::sample(shape, 5, -9.0, 9.0), dtype, Layout::Plain);
                let most = f64::from(limit);
                let each = |f: &dyn Fn(f64, f64) -> f64| {
                    Array::of(shape, |i| f(ra.at(i).min(most), rb.at(i).clamp(-most, most)))
                };
                let context = format!("{shape:?} {alpha} {limit} {dtype}");
                let y = ctx.swiglu_clamp(a, b, limit).unwrap();
                let want = each(&|x, y| silu(x) * y);
                assert_close(&lab.run(y).unwrap(), &want, precision(dtype), &context);
                let y = ctx.swiglu_oai(a, b, alpha, limit).unwrap();
                if dtype == DType::F16 && cfg!(not(ggml_0_28)) {
                    refused!(Unsupported, lab.accepted(y));
                    continue;
                }
                let want = each(&|x, y| x / (1.0 + (-f64::from(alpha) * x).exp()) * (y + 1.0));
                assert_close(&lab.run(y).unwrap(), &want, precision(dtype), &context);
            }
        }
    }
    let ctx = Context::new();
    let half = ctx.input("x", DType::BF16, [4]).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(ctx.swiglu_clamp(half, half, 1.0).unwrap()));
    refused!(Unsupported, Lab::new(&ctx).accepted(ctx.swiglu_oai(half, half, 1.0, 1.0).unwrap()));
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    // The kernel clamps to `-limit` and `limit`, which C++ requires to be in order.
    for limit in [-1.0, f32::NAN, f32::NEG_INFINITY] {
        refused!(Param, ctx.swiglu_oai(x, x, 1.0, limit));
        refused!(Param, ctx.swiglu_clamp(x, x, limit));
    }
}

#[test]
fn glu_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [8, 3, 2]);
    let swapped = ctx.permute(of(DType::F32, [8, 2, 3]), [0, 2, 1, 3]).unwrap();
    let turned = ctx.transpose(of(DType::F32, [3, 8, 2])).unwrap();
    for (op, ..) in GATES {
        refused!(Shape, ctx.glu(of(DType::F32, [1, 3, 2]), op, false), "nothing to multiply");
        refused!(DType, ctx.glu(of(DType::I32, [8, 3, 2]), op, false));
        refused!(Shape, ctx.glu(swapped, op, false));
        refused!(Shape, ctx.glu(turned, op, false));
        refused!(Shape, ctx.glu_split(x, of(DType::F32, [8, 2, 3]), op));
        refused!(Shape, ctx.glu_split(x, swapped, op));
        refused!(Shape, ctx.glu_split(swapped, x, op));
        refused!(DType, ctx.glu_split(x, of(DType::F16, [8, 3, 2]), op));
        refused!(DType, ctx.glu_split(of(DType::I32, [8, 3, 2]), x, op));
    }
}
