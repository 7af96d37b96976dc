//! Gated linear units.

use ggml::Result;
use ggml::ops::GluOp;
use ggml::prelude::*;

use super::case::{Case, Known, Operand, input, of};
use super::draw::{REALS, Source};
use super::row::{Refused, Row};
use super::unary::{gelu, gelu_quick, relu, silu};
use super::{BF16, F16, F32, PLAIN};
use crate::array::Array;
use crate::encode::precision;
use crate::erf::gelu_erf;

type Halves = for<'c> fn(&'c Context, Tensor<'c>, GluOp, bool) -> Result<Tensor<'c>>;
type Split = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>, GluOp) -> Result<Tensor<'c>>;

/// A unit: its gate, the function of that, and how far kernels with a table of 16-bit floats may be off.
#[derive(Clone, Copy)]
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

const FLOATS: [DType; 3] = [F32, F16, BF16];

impl Unit {
    fn off(self, dtype: DType) -> f64 {
        // 16-bit floats round the gate, too.
        self.off.max(if dtype == F32 { precision(dtype) } else { 2.0 * precision(dtype) })
    }
}

/// How far `f(x) * y` may be off, where `f` is of a unit: it is no steeper than 1.2, and no further from 0 than `x`.
fn spread(x: &Known, y: &Known, off: f64) -> f64 {
    let [a, b] = [x, y].map(|k| k.largest() + k.error);
    1.2 * x.error * b + a * y.error + off * (1.0 + a) * (1.0 + b)
}

/// Products of the gate's half of each row with the other half, of which the last element of an odd row is none.
fn halves(x: Operand, unit: Unit, swapped: bool, make: Halves) -> Case {
    let off = unit.off(x.dtype);
    let reference = move |x: &[Array]| {
        x[0].rows(|row| {
            let (first, second) = row[..row.len() / 2 * 2].split_at(row.len() / 2);
            let (gates, values) = if swapped { (second, first) } else { (first, second) };
            gates.iter().zip(values).map(|(&g, v)| (unit.f)(g) * v).collect()
        })
    };
    let case = Case::new([x], move |c, t| make(c, t[0], unit.op, swapped)).with((unit.op, swapped)).is(reference);
    case.laid(PLAIN).off(off).near(2e-3).spreads(move |k| spread(&k[0], &k[0], off))
}

fn split([x, y]: [Operand; 2], unit: Unit, make: Split) -> Case {
    let off = unit.off(x.dtype);
    Case::new([x, y], move |c, t| make(c, t[0], t[1], unit.op))
        .with(unit.op)
        .is(move |x| Array::of(x[0].ne, |i| (unit.f)(x[0].at(i)) * x[1].at(i)))
        .laid(PLAIN)
        .off(off)
        .near(2e-3)
        .spreads(move |k| spread(&k[0], &k[1], off))
}

/// An operand whose rows have halves.
fn whole(s: &mut dyn Source) -> Operand {
    s.pick(&REALS, &|ne| ne[0] > 1)
}

fn of_halves(name: &'static str, make: Halves, swapped: bool, unit: Unit) -> Row {
    let row = Row::new(name, "GLU")
        .all(FLOATS, |row, dtype| row.with(halves(of(dtype, [66, 5, 3, 2]), unit, swapped, make)))
        .drawn(move |s| halves(whole(s), unit, swapped, make));
    row.refuses(Refused::Shape, move |c| make(c, input(c, F32, [1, 3, 2]), unit.op, swapped))
        .refuses(Refused::DType, move |c| make(c, input(c, DType::I32, [8, 3, 2]), unit.op, swapped))
}

fn of_two(name: &'static str, make: Split, unit: Unit) -> Row {
    let row = Row::new(name, "GLU")
        .all(FLOATS, |row, dtype| row.with(split(of(dtype, [33, 7, 3]).twice(), unit, make)))
        .drawn(move |s| split(s.real().twice(), unit, make));
    refuses(row, make, unit.op)
}

/// What all units of two operands refuse.
fn refuses(row: Row, make: Split, unit: GluOp) -> Row {
    row.refuses(Refused::Shape, move |c| make(c, input(c, F32, [8, 3, 2]), input(c, F32, [8, 2, 3]), unit))
        .refuses(Refused::DType, move |c| make(c, input(c, F32, [8, 3]), input(c, F16, [8, 3]), unit))
        .refuses(Refused::DType, move |c| make(c, input(c, DType::I32, [8, 3]), input(c, F32, [8, 3]), unit))
}

/// A unit of `x` limited above, and of `y` on both sides; that of `alpha` scales the exponent, and adds 1 to `y`.
fn limited([x, y]: [Operand; 2], alpha: Option<f32>, limit: f32) -> Case {
    let (scale, one, most) = (f64::from(alpha.unwrap_or(1.0)), f64::from(alpha.is_some()), f64::from(limit));
    let f = move |x: f64, y: f64| {
        let x = x.min(most);
        x / (1.0 + (-scale * x).exp()) * (y.max(-most).min(most) + one)
    };
    let case = Case::new([x, y], move |c, t| match alpha {
        Some(alpha) => c.swiglu_oai(t[0], t[1], alpha, limit),
        None => c.swiglu_clamp(t[0], t[1], limit),
    });
    let case = case.with((alpha, limit)).is(move |x| Array::of(x[0].ne, |i| f(x[0].at(i), x[1].at(i))));
    // A gate is steeper than 1.2 where the exponent is negative.
    case.laid(PLAIN)
        .off(1e-4)
        .near(2e-3)
        .spreads(move |k| if scale < 0.0 { f64::INFINITY } else { spread(&k[0], &k[1], 1e-4) + 1.2 * k[0].error * one })
}

fn any() -> [Row; 4] {
    let units = || UNITS.into_iter().flat_map(|unit| [F32, F16].map(|dtype| (unit, dtype)));
    let glu: Halves = Context::glu;
    let glu_split: Split = Context::glu_split;
    let both = || of(F32, [67, 5, 3, 2]).twice();
    [
        Row::new("glu", "GLU")
            .all(units(), |row, (unit, dtype)| {
                let operand = || of(dtype, [64, 7, 3]);
                let row = row.all([false, true], |row, swapped| row.with(halves(operand(), unit, swapped, glu)));
                if dtype == F32 { row.must() } else { row }
            })
            .drawn(move |s| halves(whole(s), s.one(&UNITS), s.bool(), glu))
            .learns(),
        Row::new("glu_split", "GLU")
            .all(units(), |row, (unit, dtype)| {
                let row = row.with(split(of(dtype, [33, 7, 3]).twice(), unit, glu_split));
                if dtype == F32 { row.must() } else { row }
            })
            .drawn(move |s| split(s.real().twice(), s.one(&UNITS), glu_split)),
        refuses(Row::new("swiglu_oai", "GLU"), |c, a, b, _| c.swiglu_oai(a, b, 1.7, 1.2), GluOp::Swiglu)
            .with(limited(both(), Some(1.7), 1.2))
            .drawn(|s| limited(s.first(&[F32]).twice(), Some(s.float(0.5, 2.0)), s.float(0.5, 7.0))),
        refuses(Row::new("swiglu_clamp", "GLU"), |c, a, b, _| c.swiglu_clamp(a, b, 1.2), GluOp::Swiglu)
            .with(limited(both(), None, 1.2))
            .drawn(|s| limited(s.first(&[F32]).twice(), None, s.float(0.5, 7.0))),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::from(any());
    let [re, ge, swi, erf, quick] = UNITS;
    rows.extend([
        of_halves("reglu", |c, x, _, _| c.reglu(x), false, re),
        of_halves("geglu", |c, x, _, _| c.geglu(x), false, ge),
        of_halves("swiglu", |c, x, _, _| c.swiglu(x), false, swi),
        of_halves("geglu_erf", |c, x, _, _| c.geglu_erf(x), false, erf),
        of_halves("geglu_quick", |c, x, _, _| c.geglu_quick(x), false, quick),
        of_halves("reglu_swapped", |c, x, _, _| c.reglu_swapped(x), true, re),
        of_halves("geglu_swapped", |c, x, _, _| c.geglu_swapped(x), true, ge),
        of_halves("swiglu_swapped", |c, x, _, _| c.swiglu_swapped(x), true, swi),
        of_halves("geglu_erf_swapped", |c, x, _, _| c.geglu_erf_swapped(x), true, erf),
        of_halves("geglu_quick_swapped", |c, x, _, _| c.geglu_quick_swapped(x), true, quick),
        of_two("reglu_split", |c, x, y, _| c.reglu_split(x, y), re),
        of_two("geglu_split", |c, x, y, _| c.geglu_split(x, y), ge),
        of_two("swiglu_split", |c, x, y, _| c.swiglu_split(x, y), swi),
        of_two("geglu_erf_split", |c, x, y, _| c.geglu_erf_split(x, y), erf),
        of_two("geglu_quick_split", |c, x, y, _| c.geglu_quick_split(x, y), quick),
    ]);
    rows
}
