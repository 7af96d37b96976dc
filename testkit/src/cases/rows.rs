//! Rows picked and written by index.

use ggml::prelude::*;

use super::case::{Case, Operand, below, f32, input, ints, of, sized};
use super::row::{Refused, Row};
use super::{BF16, F16, F32, I32, ROWS};
use crate::array::Array;

/// Types that the references can decode.
const KNOWN: [DType; 6] = [F32, F16, BF16, I32, DType::Q8_0, DType::Q4_0];
/// Types whose kernels are only compared with each other.
const OTHERS: [DType; 4] = [DType::Q5_0, DType::Q5_1, DType::Q4_K, DType::Q6_K];

fn table(dtype: DType) -> [Operand; 2] {
    [of(dtype, [256, 9, 2]).within(-9.0, 9.0), ints([6, 2], (0..12).map(|i| i * 5 % 9))]
}

fn picked(operands: [Operand; 2]) -> Case {
    let to = if operands[0].dtype == I32 { I32 } else { F32 };
    let reference = |x: &[Array]| {
        let ([n0, ..], [n1, n2, n3, _]) = (x[0].ne, x[1].ne);
        Array::of([n0, n1, n2, n3], |[i0, i1, i2, i3]| x[0].at([i0, x[1].at([i1, i2, i3, 0]) as usize, i2, i3]))
    };
    let case = Case::new(operands, |c, t| c.get_rows(t[0], t[1])).is(reference);
    case.laid(ROWS).makes(to).near(2e-3).moves()
}

/// Rows added to others by index.
fn added(operands: [Operand; 3]) -> Case {
    let reference = |x: &[Array]| {
        let mut all = Array::of(x[2].ne, |_| 0.0);
        for (i, &row) in x[1].data.iter().enumerate() {
            for i0 in 0..all.ne[0] {
                let at = all.position([i0, row as usize, 0, 0]);
                all.data[at] += x[0].at([i0, i, 0, 0]);
            }
        }
        all
    };
    let case = Case::new(operands, |c, t| c.get_rows_back(t[0], t[1], t[2])).is(reference);
    case.laid(super::PLAIN).makes(F32).sums()
}

fn get_rows() -> Row {
    let row = Row::new("get_rows", "GET_ROWS").all(KNOWN, |row, dtype| {
        let row = row.with(picked(table(dtype)));
        if matches!(dtype, DType::F32 | DType::F16 | DType::Q4_0 | DType::Q8_0) { row.must() } else { row }
    });
    let row = row.drawn(|s| {
        let x = s.any(&KNOWN);
        let [_, n, n2, n3] = x.shape();
        let rows = below(I32, [s.dim(), n2, n3, 1], n);
        picked([x, rows])
    });
    row.all(OTHERS, |row, dtype| {
        let row = row.case(table(dtype), |c, t| c.get_rows(t[0], t[1])).near(2e-3);
        if dtype == DType::Q5_1 { row.must() } else { row }
    })
    .refuses(Refused::DType, |c| c.get_rows(input(c, F32, [4, 5]), input(c, F32, [6])))
    .refuses(Refused::DType, |c| c.get_rows(input(c, F32, [4, 5]), input(c, DType::I64, [6])))
    .refuses(Refused::Shape, |c| c.get_rows(input(c, F32, [4, 5, 3, 2]), input(c, I32, [6, 2, 2])))
    .refuses(Refused::Shape, |c| c.get_rows(c.transpose(input(c, F32, [5, 4]))?, input(c, I32, [6])))
    .learns()
}

pub(super) fn rows() -> Vec<Row> {
    let set_rows = Row::new("set_rows", "SET_ROWS").all([F32, F16, BF16, DType::Q4_0, DType::Q8_0], |row, dtype| {
        // An input is not written to.
        row.case([of(dtype, [64, 9]), f32([64, 4]), ints([4], [3, 0, 7, 1])], |c, t| {
            c.set_rows(c.dup(t[0])?, t[1], t[2])
        })
        .near(2e-3)
    });
    vec![
        get_rows(),
        Row::new("get_rows_back", "GET_ROWS_BACK")
            .with(added([f32([67, 4]), ints([4], [3, 0, 3, 1]), f32([67, 9])]))
            .drawn(|s| {
                let (n, picked, all) = (s.dim(), s.dim(), s.dim());
                let indices = if s.bool() { picked } else { s.long(1, picked.clamp(1, 8)) };
                let x = sized(s.one(&[F32, F32, F16]), [n, picked, 1, 1]);
                added([x, below(I32, [indices, 1, 1, 1], all), sized(F32, [n, all, 1, 1])])
            })
            .no_meta(),
        set_rows.call(|c, t| c.set_rows(t[0], t[1], t[2])).no_meta(),
    ]
}
