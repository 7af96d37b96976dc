//! Functions of pairs of elements.

use ggml::Result;
use ggml::prelude::*;

use super::case::{Case, Known, Operand, below, f32, input, ints, of, sized};
use super::draw::{Source, part};
use super::row::{Refused, Row};
use super::{BF16, F16, F32, I32, PLAIN, ROWS};
use crate::array::Array;

type OfPair = for<'c> fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>>;

const F64: DType = DType::F64;
const I8: DType = DType::I8;

const SHAPE: [usize; 4] = [6, 4, 3, 2];

fn pair(a: DType, b: DType, ne: [usize; 4]) -> [Operand; 2] {
    [of(a, SHAPE), of(b, ne).within(0.5, 2.0).free()]
}

/// A function of an element and one of the second operand, which is repeated over the first.
#[derive(Clone, Copy)]
struct Pair {
    make: OfPair,
    in_place: OfPair,
    f: fn(f64, f64) -> f64,
    /// How far its value may be off, of operands that are.
    error: fn(&Known, &Known) -> f64,
}

const ADD: Pair = Pair {
    make: |c, t| c.add(t[0], t[1]),
    in_place: |c, t| c.add_inplace(t[0], t[1]),
    f: |x, y| x + y,
    error: |x, y| x.error + y.error + 1e-6 * (x.largest() + y.largest()),
};
const SUB: Pair =
    Pair { make: |c, t| c.sub(t[0], t[1]), in_place: |c, t| c.sub_inplace(t[0], t[1]), f: |x, y| x - y, ..ADD };
const MUL: Pair = Pair {
    make: |c, t| c.mul(t[0], t[1]),
    in_place: |c, t| c.mul_inplace(t[0], t[1]),
    f: |x, y| x * y,
    error: |x, y| x.error * (y.largest() + y.error) + x.largest() * (y.error + 1e-6 * y.largest()),
};
const DIV: Pair = Pair {
    make: |c, t| c.div(t[0], t[1]),
    in_place: |c, t| c.div_inplace(t[0], t[1]),
    f: |x, y| x / y,
    error: |x, y| {
        let least = y.values.data.iter().fold(f64::MAX, |m, y| m.min(y.abs()));
        // No divisor may be near 0.
        if least < 4.0 * y.error + 1e-3 {
            return f64::INFINITY;
        }
        let most = x.largest() / least;
        (x.error + most * y.error) / (least - y.error) + 1e-6 * most
    },
};
const ADD_1: Pair = Pair { make: |c, t| c.add1(t[0], t[1]), in_place: |c, t| c.add1_inplace(t[0], t[1]), ..ADD };

impl Pair {
    fn case(self, operands: [Operand; 2]) -> Case {
        Case::new(operands, self.make)
            .is(move |x| Array::of(x[0].ne, |i| (self.f)(x[0].at(i), x[1].wrapped(i))))
            .in_place(self.in_place)
            .laid(ROWS)
            .near(2e-3)
            .spreads(move |k| (self.error)(&k[0], &k[1]))
    }
}

/// An operand, and one that is repeated over it.
fn drawn(s: &mut dyn Source) -> [Operand; 2] {
    let x = s.real();
    let dtype = if s.chance(4) && x.dtype != F32 { F32 } else { x.dtype };
    let ne = x.shape().map(|n| part(s, n));
    [x, sized(dtype, ne)]
}

/// A row of the first operand and of the second, repeated over it.
fn repeated(name: &'static str, op: &'static str, in_place: &'static str, pair_of: Pair) -> Row {
    let make = pair_of.make;
    let types = [(F32, F32), (F16, F16), (BF16, BF16), (F16, F32), (BF16, F32)];
    let shapes = [SHAPE, [6, 1, 1, 1], [3, 1, 3, 1], [1, 4, 1, 2], [1, 1, 1, 1]];
    let cases = types.into_iter().flat_map(|t| shapes.map(|ne| (t, ne)));
    let row = Row::new(name, op)
        .all(cases, |row, ((a, b), ne)| row.with(pair_of.case(pair(a, b, ne))))
        .drawn(move |s| pair_of.case(drawn(s)))
        .in_place(in_place, pair_of.in_place);
    let long: [[usize; 4]; 5] = [[67, 5, 3, 2], [67, 1, 1, 1], [67, 5, 1, 1], [1, 5, 3, 2], [1, 1, 1, 1]];
    let row =
        row.all(long, |row, ne| row.with(pair_of.case([f32([67, 5, 3, 2]), f32(ne).within(0.5, 2.0).free()])).must());
    let row = row.all([[4, 1], [12, 1], [6, 3], [6, 8]], |row, ne| {
        row.refuses(Refused::Shape, move |c| make(c, &[input(c, F32, [6, 4]), input(c, F32, ne)]))
    });
    let without = [(F32, F16), (F32, BF16), (F16, BF16), (I32, I32), (F64, F64), (I8, I8), (F32, I32)];
    let row = row.all(without, |row, (a, b)| {
        row.refuses(Refused::Unsupported, move |c| make(c, &[input(c, a, [4, 2]), input(c, b, [4, 1])]))
    });
    row.learns()
}

pub(super) fn rows() -> Vec<Row> {
    let add_id = |operands: [Operand; 3]| {
        let reference = |x: &[Array]| {
            Array::of(x[0].ne, |[i, expert, token, _]| {
                let row = x[2].at([expert, token, 0, 0]) as usize;
                x[0].at([i, expert, token, 0]) + x[1].at([i, row, 0, 0])
            })
        };
        Case::new(operands, |c, t| c.add_id(t[0], t[1], t[2])).is(reference).laid(ROWS).sums()
    };
    // Quantised sums are rounded in other ways.
    let add_cast = |operands, to: DType| {
        let case = Case { in_place: None, ..ADD.case(operands) }.with(to).makes(to);
        let case = Case { build: Box::new(move |c, t| c.add_cast(t[0], t[1], to)), ..case };
        if to.is_quantized() { Case { reference: None, ..case } } else { case }
    };
    vec![
        repeated("add", "ADD", "add_inplace", ADD),
        repeated("sub", "SUB", "sub_inplace", SUB),
        repeated("mul", "MUL", "mul_inplace", MUL),
        repeated("div", "DIV", "div_inplace", DIV),
        Row::new("add1", "ADD1")
            .with(ADD_1.case([f32([67, 5, 3, 2]), f32([1]).still()]).laid(PLAIN))
            .drawn(|s| {
                let x = s.real();
                let dtype = if s.bool() { F32 } else { x.dtype };
                ADD_1.case([x, of(dtype, [1])]).laid(PLAIN)
            })
            .in_place("add1_inplace", ADD_1.in_place)
            .no_meta()
            .learns(),
        Row::new("add_cast", "ADD").with(add_cast([of(F16, [64, 3, 2]), f32([64])], F32)).drawn(move |s| {
            let x = s.first(&[F16, BF16, DType::Q8_0, DType::Q4_0]);
            let (other, to) = (sized(F32, x.shape()), s.dtype(&[F32, x.dtype]));
            add_cast([x, other], to)
        }),
        Row::new("add_id", "ADD_ID")
            .with(add_id([f32([67, 4, 3]), f32([67, 7]), ints([4, 3], [0, 5, 2, 6, 1, 1, 3, 4, 0, 6, 6, 2])]))
            .drawn(move |s| {
                let (x, all) = (s.pick(&[F32], &|ne| ne[3] == 1), s.size(1, 4));
                let [n, used, tokens, _] = x.shape();
                add_id([x, sized(F32, [n, all, 1, 1]), below(I32, [used, tokens, 1, 1], all)])
            })
            .no_meta(),
    ]
}
