//! Copies, conversions, repetitions, concatenations, and writes to a part. More references are in `tests/ops/copy.rs`.

use ggml::ops::SetOptions;
use ggml::prelude::*;

use super::case::{Case, Operand, f32, of, sized};
use super::draw::{Source, part};
use super::each::Each;
use super::row::Row;
use super::{BF16, F16, F32, I32, ROWS};
use crate::array::Array;
use crate::layout::Layout;

const SHAPE: [usize; 4] = [67, 5, 3, 2];
const FLOATS: [DType; 2] = [F32, F16];

fn copies() -> Vec<Row> {
    let dup = Each {
        in_place: Some(("dup_inplace", |c, t, _| c.dup_inplace(t[0]))),
        layouts: &Layout::ALL,
        error: 0.0,
        slope: Some(0.1),
        ..Each::new(|c, t, _| c.dup(t[0]), |x, _| x[0])
    };
    let mut dup = dup.row("dup", "DUP").no_meta();
    // It takes any type.
    dup.refused.clear();
    let cont = Row::new("cont", "CONT").all([F32, F16, BF16, I32], |row, dtype| {
        let row = row.case([of(dtype, SHAPE)], |c, t| c.cont(t[0])).is(|x| x[0].clone());
        if matches!(dtype, DType::F32 | DType::F16) { row.must() } else { row }
    });
    let cont = cont.all([[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [3, 2, 1, 0]], |row, axes| {
        row.all([F32, F16], |row, dtype| {
            row.case([of(dtype, SHAPE)], move |c, t| c.cont(c.permute(t[0], axes)?)).must()
        })
    });
    let conversions = [(F32, F16), (F16, F32), (F32, BF16), (BF16, F32), (F16, F16), (I32, F32), (F32, I32)];
    let cast = Row::new("cast", "CPY").all(conversions, |row, (from, to)| {
        row.case([of(from, SHAPE).within(-9.0, 9.0)], move |c, t| c.cast(t[0], to))
            .is(move |x| if to == I32 { x[0].map(f64::trunc) } else { x[0].clone() })
            .makes(to)
            .near(2e-3)
    });
    let blocks = [DType::Q4_0, DType::Q5_1, DType::Q8_0, DType::IQ4_NL];
    let cast = cast.all(blocks, |row, dtype| {
        let row = row.case([f32([64, 6, 3])], move |c, t| c.cast(t[0], dtype)).near(2.5e-2);
        let row = if dtype == DType::IQ4_NL { row } else { row.must() };
        row.case([of(dtype, [64, 6, 3])], |c, t| c.cast(t[0], F32)).near(2e-3)
    });
    let cast =
        cast.all([F16, BF16], |row, to| row.case([f32([64, 5, 3])], move |c, t| c.cast(t[0], to)).near(2.5e-2).must());
    vec![
        dup,
        cont.call(|c, t| c.cont(t[0])).learns(),
        Row::new("cont_4d", "CONT").call(|c, t| c.cont_4d(t[0], [4])),
        cast,
        Row::new("cpy", "CPY").call(|c, t| c.cpy(t[0], t[1])).learns(),
    ]
}

fn joined(operands: [Operand; 2], dim: usize) -> Case {
    let reference = move |x: &[Array]| {
        let mut ne = x[0].ne;
        ne[dim] += x[1].ne[dim];
        Array::of(ne, |mut i| {
            if i[dim] < x[0].ne[dim] {
                return x[0].at(i);
            }
            i[dim] -= x[0].ne[dim];
            x[1].at(i)
        })
    };
    Case::new(operands, move |c, t| c.concat(t[0], t[1], dim)).with(dim).is(reference).near(1e-6).moves()
}

fn repeated_4d(x: Operand, to: [i64; 4]) -> Case {
    let reference = move |x: &[Array]| Array::of(to.map(|n| n as usize), |i| x[0].wrapped(i));
    Case::new([x], move |c, t| c.repeat_4d(t[0], to)).with(to).is(reference).laid(ROWS).moves()
}

fn repeated(x: Operand, like: Operand) -> Case {
    let case = Case::new([x, like], |c, t| c.repeat(t[0], t[1]));
    case.is(|x| Array::of(x[1].ne, |i| x[0].wrapped(i))).laid(ROWS).moves()
}

/// The sums of what repetitions of the second operand's shape would have made.
fn folded(x: Operand, like: Operand) -> Case {
    let reference = |x: &[Array]| {
        let mut sums = Array::of(x[1].ne, |_| 0.0);
        Array::of(x[0].ne, |i| {
            let at = sums.position([0, 1, 2, 3].map(|d| i[d] % x[1].ne[d]));
            sums.data[at] += x[0].at(i);
            0.0
        });
        sums
    };
    Case::new([x, like], |c, t| c.repeat_back(t[0], t[1])).is(reference).laid(ROWS).sums()
}

/// A shape, some dimensions of which are a few times as long.
fn times(s: &mut dyn Source, ne: [i64; 4]) -> [i64; 4] {
    ne.map(|n| n.saturating_mul(if s.chance(3) { s.size(2, 3) } else { 1 }))
}

fn together() -> Vec<Row> {
    let concat = Row::new("concat", "CONCAT").all(0..4, |row, dim| {
        row.all([F32, F16], |row, dtype| {
            let mut other = SHAPE;
            other[dim] = 4;
            let row = row.with(joined([of(dtype, SHAPE), of(dtype, other)], dim));
            if dtype == F32 { row.must() } else { row }
        })
    });
    let concat = concat.drawn(|s| {
        let (x, dim) = (s.any(&FLOATS), s.long(0, 3) as usize);
        let mut other = x.shape();
        if let Some(n) = other.get_mut(dim) {
            *n = s.dim();
        }
        let other = sized(x.dtype, other);
        joined([x, other], dim)
    });
    let repeat_4d = Row::new("repeat_4d", "REPEAT")
        .all([F32, F16], |row, dtype| row.with(repeated_4d(of(dtype, SHAPE), [134, 5, 6, 2])))
        .with(repeated_4d(f32([3, 5, 1, 2]), [9, 10, 4, 2]))
        .must()
        .drawn(|s| {
            let x = s.any(&FLOATS);
            let mut to = times(s, x.shape());
            if s.chance(24) {
                to[s.size(0, 3) as usize] = s.dim();
            }
            repeated_4d(x, to)
        });
    let repeat = Row::new("repeat", "REPEAT").with(repeated(f32([3, 5, 1, 2]), f32([9, 10, 4, 2]))).drawn(|s| {
        let x = s.any(&FLOATS);
        let dtype = if x.dtype.block_size() == 1 { x.dtype } else { F32 };
        let like = sized(dtype, times(s, x.shape()));
        repeated(x, like)
    });
    let repeat_back =
        Row::new("repeat_back", "REPEAT_BACK").with(folded(f32([64, 6, 4, 2]), f32([32, 6, 1, 2]))).drawn(|s| {
            let x = s.first(&[F32]);
            let ne = x.shape().map(|n| part(s, n));
            folded(x, sized(F32, ne))
        });
    vec![concat.learns(), repeat_4d, repeat.learns(), repeat_back.no_meta().learns()]
}

/// `b` written or added to a part of `a`, whose planes and rows are those of `[20, 6, 3]`.
fn parts(name: &'static str, op: &'static str, add: bool) -> Row {
    Row::new(name, op)
        .case([f32([20, 6, 3]), f32([5, 4, 2])], move |c, t| {
            let at = SetOptions::new(4 * 21);
            if add { c.acc(t[0], t[1], at) } else { c.set(t[0], t[1], at) }
        })
        .is(move |x| {
            Array::of(x[0].ne, |[i0, i1, i2, _]| {
                let old = x[0].at([i0, i1, i2, 0]);
                let inside = (1..6).contains(&i0) && (1..5).contains(&i1) && i2 < 2;
                match inside.then(|| x[1].at([i0 - 1, i1 - 1, i2, 0])) {
                    Some(new) => {
                        if add {
                            old + new
                        } else {
                            new
                        }
                    }
                    None => old,
                }
            })
        })
        .laid(super::PLAIN)
        .no_meta()
        .learns()
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = copies();
    rows.extend(together());
    rows.extend([
        parts("acc", "ACC", true).in_place("acc_inplace", |c, t| c.acc_inplace(t[0], t[1], SetOptions::new(0))),
        parts("set", "SET", false).in_place("set_inplace", |c, t| c.set_inplace(t[0], t[1], SetOptions::new(0))),
        Row::new("set_1d", "SET")
            .call(|c, t| c.set_1d(t[0], t[1], 0))
            .in_place("set_1d_inplace", |c, t| c.set_1d_inplace(t[0], t[1], 0)),
        Row::new("set_2d", "SET")
            .call(|c, t| c.set_2d(t[0], t[1], 16, 0))
            .in_place("set_2d_inplace", |c, t| c.set_2d_inplace(t[0], t[1], 16, 0)),
    ]);
    rows
}
