//! Gated linear units.

use ggml::Result;
use ggml::ops::GluOp;
use ggml::prelude::*;

use super::case::{input, of};
use super::row::{Refused, Row};
use super::unary::{gelu, gelu_quick, relu, silu};
use super::{BF16, F16, F32, PLAIN};
use crate::array::Array;
use crate::erf::gelu_erf;

type Halves = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;
type Split = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

/// A unit: its gate, the function of that, and how far kernels with a table of 16-bit floats may be off.
struct Unit {
    op: GluOp,
    f: fn(f64) -> f64,
    off: f64,
}

const UNITS: [Unit; 5] = [
    Unit { op: GluOp::Reglu, f: relu, off: 0.0 },
    Unit { op: GluOp::Geglu, f: gelu, off: 4e-3 },
    Unit { op: GluOp::Swiglu, f: silu, off: 0.0 },
    Unit { op: GluOp::GegluErf, f: gelu_erf, off: 0.0 },
    Unit { op: GluOp::GegluQuick, f: gelu_quick, off: 4e-3 },
];

const FLOATS: [(DType, f64); 3] = [(F32, 0.0), (F16, 3e-3), (BF16, 1.6e-2)];

/// Products of the gate's half of each row with the other half, of which the last element of an odd row is none.
fn halves(f: fn(f64) -> f64, swapped: bool, a: &Array) -> Array {
    a.rows(|row| {
        let (first, second) = row[..row.len() / 2 * 2].split_at(row.len() / 2);
        let (gates, values) = if swapped { (second, first) } else { (first, second) };
        gates.iter().zip(values).map(|(&g, v)| f(g) * v).collect()
    })
}

fn of_halves(name: &'static str, make: Halves, swapped: bool, unit: &Unit) -> Row {
    let f = unit.f;
    let row = Row::new(name, "GLU").all(FLOATS, |row, (dtype, off)| {
        row.case([of(dtype, [66, 5, 3, 2])], move |c, t| make(c, t[0]))
            .is(move |x| halves(f, swapped, &x[0]))
            .laid(PLAIN)
            .off(unit.off.max(off))
            .near(2e-3)
    });
    row.refuses(Refused::Shape, move |c| make(c, input(c, F32, [1, 3, 2])))
        .refuses(Refused::DType, move |c| make(c, input(c, DType::I32, [8, 3, 2])))
}

fn of_two(name: &'static str, make: Split, unit: &Unit) -> Row {
    let f = unit.f;
    let row = Row::new(name, "GLU").all(FLOATS, |row, (dtype, off)| {
        row.case([of(dtype, [33, 7, 3]), of(dtype, [33, 7, 3])], move |c, t| make(c, t[0], t[1]))
            .is(move |x| Array::of(x[0].ne, |i| f(x[0].at(i)) * x[1].at(i)))
            .laid(PLAIN)
            .off(unit.off.max(off))
            .near(2e-3)
    });
    refuses(row, make)
}

/// What all units of two operands refuse.
fn refuses(row: Row, make: Split) -> Row {
    row.refuses(Refused::Shape, move |c| make(c, input(c, F32, [8, 3, 2]), input(c, F32, [8, 2, 3])))
        .refuses(Refused::DType, move |c| make(c, input(c, F32, [8, 3]), input(c, F16, [8, 3])))
        .refuses(Refused::DType, move |c| make(c, input(c, DType::I32, [8, 3]), input(c, F32, [8, 3])))
}

/// `x` limited above, and `y` on both sides.
fn limited(x: &[Array], f: impl Fn(f64, f64) -> f64) -> Array {
    Array::of(x[0].ne, |i| f(x[0].at(i).min(1.2), x[1].at(i).clamp(-1.2, 1.2)))
}

fn any() -> [Row; 4] {
    let units = || UNITS.iter().flat_map(|unit| [F32, F16].map(|dtype| (unit, dtype)));
    let both = || [of(F32, [67, 5, 3, 2]), of(F32, [67, 5, 3, 2])];
    let oai: Split = |c, a, b| c.swiglu_oai(a, b, 1.7, 1.2);
    let clamp: Split = |c, a, b| c.swiglu_clamp(a, b, 1.2);
    [
        Row::new("glu", "GLU")
            .all(units(), |row, (unit, dtype)| {
                let (op, f) = (unit.op, unit.f);
                let row = row.all([false, true], |row, swapped| {
                    row.case([of(dtype, [64, 7, 3])], move |c, t| c.glu(t[0], op, swapped))
                        .is(move |x| halves(f, swapped, &x[0]))
                        .laid(PLAIN)
                        .off(unit.off.max(3e-3))
                        .near(2e-3)
                });
                if dtype == F32 { row.must() } else { row }
            })
            .learns(),
        Row::new("glu_split", "GLU").all(units(), |row, (unit, dtype)| {
            let (op, f) = (unit.op, unit.f);
            let row = row
                .case([of(dtype, [33, 7, 3]), of(dtype, [33, 7, 3])], move |c, t| c.glu_split(t[0], t[1], op))
                .is(move |x| Array::of(x[0].ne, |i| f(x[0].at(i)) * x[1].at(i)))
                .laid(PLAIN)
                .off(unit.off.max(3e-3))
                .near(2e-3);
            if dtype == F32 { row.must() } else { row }
        }),
        refuses(Row::new("swiglu_oai", "GLU").case(both(), move |c, t| oai(c, t[0], t[1])), oai)
            .is(|x| limited(x, |x, y| x / (1.0 + (-f64::from(1.7_f32) * x).exp()) * (y + 1.0)))
            .laid(PLAIN)
            .off(1e-4)
            .near(2e-3),
        refuses(Row::new("swiglu_clamp", "GLU").case(both(), move |c, t| clamp(c, t[0], t[1])), clamp)
            .is(|x| limited(x, |x, y| silu(x) * y))
            .laid(PLAIN)
            .off(1e-4)
            .near(2e-3),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::from(any());
    let [re, ge, swi, erf, quick] = &UNITS;
    rows.extend([
        of_halves("reglu", Context::reglu, false, re),
        of_halves("geglu", Context::geglu, false, ge),
        of_halves("swiglu", Context::swiglu, false, swi),
        of_halves("geglu_erf", Context::geglu_erf, false, erf),
        of_halves("geglu_quick", Context::geglu_quick, false, quick),
        of_halves("reglu_swapped", Context::reglu_swapped, true, re),
        of_halves("geglu_swapped", Context::geglu_swapped, true, ge),
        of_halves("swiglu_swapped", Context::swiglu_swapped, true, swi),
        of_halves("geglu_erf_swapped", Context::geglu_erf_swapped, true, erf),
        of_halves("geglu_quick_swapped", Context::geglu_quick_swapped, true, quick),
        of_two("reglu_split", Context::reglu_split, re),
        of_two("geglu_split", Context::geglu_split, ge),
        of_two("swiglu_split", Context::swiglu_split, swi),
        of_two("geglu_erf_split", Context::geglu_erf_split, erf),
        of_two("geglu_quick_split", Context::geglu_quick_split, quick),
    ]);
    rows
}
