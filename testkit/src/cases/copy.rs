//! Copies, conversions, repetitions, concatenations, and writes to a part. More references are in `tests/ops/copy.rs`.

use ggml::ops::SetOptions;
use ggml::prelude::*;

use super::case::{f32, of};
use super::each::Each;
use super::row::Row;
use super::{BF16, F16, F32, I32, ROWS};
use crate::array::Array;
use crate::layout::Layout;

const SHAPE: [usize; 4] = [67, 5, 3, 2];

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

fn together() -> Vec<Row> {
    let concat = Row::new("concat", "CONCAT").all(0..4, |row, dim| {
        row.all([F32, F16], |row, dtype| {
            let mut other = SHAPE;
            other[dim] = 4;
            let row = row
                .case([of(dtype, SHAPE), of(dtype, other)], move |c, t| c.concat(t[0], t[1], dim))
                .is(move |x| {
                    let mut ne = x[0].ne;
                    ne[dim] += x[1].ne[dim];
                    Array::of(ne, |mut i| {
                        if i[dim] < x[0].ne[dim] {
                            return x[0].at(i);
                        }
                        i[dim] -= x[0].ne[dim];
                        x[1].at(i)
                    })
                })
                .near(1e-6);
            if dtype == F32 { row.must() } else { row }
        })
    });
    let to = [134, 5, 6, 2];
    let repeat_4d = Row::new("repeat_4d", "REPEAT")
        .all([F32, F16], |row, dtype| {
            row.case([of(dtype, SHAPE)], move |c, t| c.repeat_4d(t[0], to))
                .is(move |x| Array::of(to.map(|n| n as usize), |i| x[0].wrapped(i)))
                .laid(ROWS)
        })
        .case([f32([3, 5, 1, 2])], |c, t| c.repeat_4d(t[0], [9, 10, 4, 2]))
        .must();
    vec![
        concat.learns(),
        repeat_4d,
        Row::new("repeat", "REPEAT")
            .case([f32([3, 5, 1, 2]), f32([9, 10, 4, 2])], |c, t| c.repeat(t[0], t[1]))
            .is(|x| Array::of(x[1].ne, |i| x[0].wrapped(i)))
            .laid(ROWS)
            .learns(),
        Row::new("repeat_back", "REPEAT_BACK")
            .case([f32([64, 6, 4, 2]), f32([32, 6, 1, 2])], |c, t| c.repeat_back(t[0], t[1]))
            .is(|x| {
                let mut sums = Array::of(x[1].ne, |_| 0.0);
                Array::of(x[0].ne, |i| {
                    let to = [0, 1, 2, 3].map(|d| i[d] % x[1].ne[d]);
                    let at = sums.position(to);
                    sums.data[at] += x[0].at(i);
                    0.0
                });
                sums
            })
            .laid(ROWS)
            .off(1e-4)
            .no_meta()
            .learns(),
    ]
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
