//! Rows picked and written by index.

use ggml::prelude::*;

use super::case::{Operand, f32, input, ints, of};
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

fn get_rows() -> Row {
    let to = |dtype| if dtype == I32 { I32 } else { F32 };
    let row = Row::new("get_rows", "GET_ROWS").all(KNOWN, |row, dtype| {
        let row = row
            .case(table(dtype), |c, t| c.get_rows(t[0], t[1]))
            .is(|x| {
                let [n0, ..] = x[0].ne;
                let [n1, n2, n3, _] = x[1].ne;
                Array::of([n0, n1, n2, n3], |[i0, i1, i2, i3]| x[0].at([i0, x[1].at([i1, i2, i3, 0]) as usize, i2, i3]))
            })
            .laid(ROWS)
            .makes(to(dtype))
            .near(2e-3);
        if matches!(dtype, DType::F32 | DType::F16 | DType::Q4_0 | DType::Q8_0) { row.must() } else { row }
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
            .case([f32([67, 4]), ints([4], [3, 0, 3, 1]), f32([67, 9])], |c, t| c.get_rows_back(t[0], t[1], t[2]))
            .is(|x| {
                let mut all = Array::of(x[2].ne, |_| 0.0);
                for (i, &row) in x[1].data.iter().enumerate() {
                    for i0 in 0..67 {
                        all.data[67 * row as usize + i0] += x[0].at([i0, i, 0, 0]);
                    }
                }
                all
            })
            .laid(super::PLAIN)
            .no_meta(),
        set_rows.call(|c, t| c.set_rows(t[0], t[1], t[2])).no_meta(),
    ]
}
