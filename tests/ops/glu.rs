//! Gated units.

use ggml::Glu;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};
use crate::unary::{gelu, gelu_erf, gelu_quick, relu, silu};

/// A unit, the function of its gate, and its own inexactness where ggml uses a table of 16-bit floats.
type Case = (Glu, fn(f64) -> f64, f64);

const GATES: [Case; 5] = [
    (Glu::Reglu, relu, 0.0),
    (Glu::Geglu, gelu, 4e-3),
    (Glu::Swiglu, silu, 0.0),
    (Glu::GegluErf, gelu_erf, 0.0),
    (Glu::GegluQuick, gelu_quick, 4e-3),
];

#[test]
fn gated_units_are_those_of_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for shape in [ne([2]), ne([34, 3]), ne([6, 3, 2, 2])] {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -2.0, 2.0), dtype, Layout::Plain);
            let (a, ra) = lab.operand(&Array::sample(shape, 5, -2.0, 2.0), dtype, Layout::Plain);
            // Rows equally far apart, with gaps.
            let (wide, rw) = lab.operand(&Array::sample(ne([40, 5]), 6, -2.0, 2.0), dtype, Layout::Plain);
            let spaced = ctx.view(wide, [10, 5], [wide.nb()[1], 0, 0], 3 * wide.nb()[0]).unwrap();
            let of_spaced = Array::of(ne([10, 5]), |[i0, i1, ..]| rw.at([i0 + 3, i1, 0, 0]));
            for (op, f, inexact) in GATES {
                let outputs = [
                    ctx.glu(x, op, false).unwrap(),
                    ctx.glu(x, op, true).unwrap(),
                    ctx.glu_split(x, a, op).unwrap(),
                    ctx.glu(spaced, op, false).unwrap(),
                    ctx.glu_split(spaced, spaced, op).unwrap(),
                ];
                let halves = |gate: usize, values: &Array| {
                    values.rows(|r| {
                        let (first, second) = r.split_at(r.len() / 2);
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
fn gated_units_refuse_what_does_not_fit() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [8, 3, 2]);
    let swapped = ctx.permute(of(DType::F32, [8, 2, 3]), [0, 2, 1, 3]).unwrap();
    let turned = ctx.transpose(of(DType::F32, [3, 8, 2])).unwrap();
    for (op, ..) in GATES {
        refused!(Shape, ctx.glu(of(DType::F32, [7, 3, 2]), op, false), "odd rows");
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
