//! Functions of pairs of elements.

use ggml::Result;
use ggml::prelude::*;

use super::case::{Operand, f32, input, ints, of};
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

/// A row of the first operand and of the second, repeated over it.
fn repeated(name: &'static str, op: &'static str, make: OfPair, f: fn(f64, f64) -> f64) -> Row {
    let reference = move |x: &[Array]| Array::of(x[0].ne, |i| f(x[0].at(i), x[1].wrapped(i)));
    let types = [(F32, F32), (F16, F16), (BF16, BF16), (F16, F32), (BF16, F32)];
    let shapes = [SHAPE, [6, 1, 1, 1], [3, 1, 3, 1], [1, 4, 1, 2], [1, 1, 1, 1]];
    let cases = types.into_iter().flat_map(|t| shapes.map(|ne| (t, ne)));
    let row = Row::new(name, op)
        .all(cases, |row, ((a, b), ne)| row.case(pair(a, b, ne), make).is(reference).laid(ROWS).near(2e-3));
    let long: [[usize; 4]; 5] = [[67, 5, 3, 2], [67, 1, 1, 1], [67, 5, 1, 1], [1, 5, 3, 2], [1, 1, 1, 1]];
    let row = row.all(long, |row, ne| {
        let operands = [f32([67, 5, 3, 2]), f32(ne).within(0.5, 2.0).free()];
        row.case(operands, make).is(reference).laid(ROWS).near(2e-3).must()
    });
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
    let add_id = |x: &[Array]| {
        Array::of(x[0].ne, |[i, expert, token, _]| {
            let row = x[2].at([expert, token, 0, 0]) as usize;
            x[0].at([i, expert, token, 0]) + x[1].at([i, row, 0, 0])
        })
    };
    vec![
        repeated("add", "ADD", |c, t| c.add(t[0], t[1]), |x, y| x + y)
            .in_place("add_inplace", |c, t| c.add_inplace(t[0], t[1])),
        repeated("sub", "SUB", |c, t| c.sub(t[0], t[1]), |x, y| x - y)
            .in_place("sub_inplace", |c, t| c.sub_inplace(t[0], t[1])),
        repeated("mul", "MUL", |c, t| c.mul(t[0], t[1]), |x, y| x * y)
            .in_place("mul_inplace", |c, t| c.mul_inplace(t[0], t[1])),
        repeated("div", "DIV", |c, t| c.div(t[0], t[1]), |x, y| x / y)
            .in_place("div_inplace", |c, t| c.div_inplace(t[0], t[1])),
        Row::new("add1", "ADD1")
            .case([f32([67, 5, 3, 2]), f32([1]).still()], |c, t| c.add1(t[0], t[1]))
            .is(|x| x[0].map(|y| y + x[1].data[0]))
            .laid(PLAIN)
            .in_place("add1_inplace", |c, t| c.add1_inplace(t[0], t[1]))
            .no_meta()
            .learns(),
        Row::new("add_cast", "ADD")
            .case([of(F16, [64, 3, 2]), f32([64])], |c, t| c.add_cast(t[0], t[1], F32))
            .is(|x| Array::of(x[0].ne, |i| x[0].at(i) + x[1].wrapped(i)))
            .laid(ROWS)
            .makes(F32),
        Row::new("add_id", "ADD_ID")
            .case([f32([67, 4, 3]), f32([67, 7]), ints([4, 3], [0, 5, 2, 6, 1, 1, 3, 4, 0, 6, 6, 2])], |c, t| {
                c.add_id(t[0], t[1], t[2])
            })
            .is(add_id)
            .laid(ROWS)
            .no_meta(),
    ]
}
