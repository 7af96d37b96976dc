//! Matrix products. References for other types than `f32` are in `tests/ops/matmul.rs` and `experts.rs`.

use ggml::ops::MulMatOptions;
use ggml::prelude::*;

use super::case::{f32, ints, of};
use super::row::Row;
use super::{BF16, F16, F32, PLAIN};
use crate::array::Array;
use crate::encode::BLOCKS;
use crate::layout::Layout;

/// Types that not every device supports.
const RARE: [DType; 5] = [BF16, DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4, DType::Q1_0];

fn product(a: &Array, b: &Array) -> Array {
    Array::of([a.ne[1], b.ne[1], b.ne[2], b.ne[3]], |[m, n, i2, i3]| {
        let (a2, a3) = (i2 * a.ne[2] / b.ne[2], i3 * a.ne[3] / b.ne[3]);
        (0..a.ne[0]).map(|k| a.at([k, m, a2, a3]) * b.at([k, n, i2, i3])).sum()
    })
}

/// A product of matrices of these shapes, the first of this type.
fn case<const A: usize, const B: usize>(row: Row, dtype: DType, a: [usize; A], b: [usize; B]) -> Row {
    let (a, b) = (of(dtype, a).within(-1.0, 1.0), f32(b).within(-1.0, 1.0));
    row.case([a, b], |c, t| c.mul_mat(t[0], t[1])).makes(F32).near(1e-2)
}

fn mul_mat() -> Row {
    let row =
        Row::new("mul_mat", "MUL_MAT").all([([32, 20, 4], [32, 12, 8]), ([64, 17, 1], [64, 16, 1])], |row, (a, b)| {
            case(row, F32, a, b)
                .is(|x| product(&x[0], &x[1]))
                .laid(&[Layout::Plain, Layout::Gaps, Layout::Swapped])
                .off(1e-4)
        });
    let types = || [F32, F16].into_iter().chain(BLOCKS);
    let row = row.all(types().map(|d| (d, true)).chain(RARE.map(|d| (d, false))), |row, (dtype, must)| {
        // One column, a few, as many as there are special kernels for, and more.
        row.all([1, 2, 8, 9, 33, 130], |row, n| {
            let row = case(row, dtype, [256, 48], [256, n]);
            if must { row.must() } else { row }
        })
    });
    let row = row.all([F32, F16, BF16, DType::Q4_0, DType::Q8_0, DType::Q4_K], |row, dtype| {
        row.all([1, 5, 40], |row, n| {
            let row = case(row, dtype, [256, 33, 2], [256, n, 6, 3]);
            if dtype == BF16 { row } else { row.must() }
        })
    });
    let row = row.all([F32, F16], |row, dtype| {
        let heads = [of(dtype, [64, 4, 40]).within(-1.0, 1.0), f32([64, 8, 5]).within(-1.0, 1.0)];
        row.case(heads, |c, t| {
            let k = c.permute(t[0], [0, 2, 1, 3])?;
            c.mul_mat(k, c.permute(t[1], [0, 2, 1, 3])?)
        })
        .near(1e-2)
        .must()
    });
    let row = case(row, F16, [512, 700], [512, 300]).must();
    case(row, F16, [77, 5], [77, 3]).must().learns()
}

fn mul_mat_id() -> Row {
    let cases = [F32, F16, DType::Q4_0, DType::Q8_0, DType::Q4_K].into_iter().flat_map(|d| [1, 4, 33].map(|n| (d, n)));
    let row = Row::new("mul_mat_id", "MUL_MAT_ID").all(cases, |row, (dtype, tokens)| {
        let ids = ints([2, tokens], (0..).map(|i| i % 2 * 3 + i / 2 % 3));
        let operands = [of(dtype, [256, 40, 8]).within(-1.0, 1.0), f32([256, 2, tokens]).within(-1.0, 1.0), ids];
        row.case(operands, |c, t| c.mul_mat_id(t[0], t[1], t[2])).near(1e-2).must()
    });
    row.no_meta()
}

pub(super) fn rows() -> Vec<Row> {
    let outer = |x: &[Array]| {
        Array::of([x[0].ne[0], x[1].ne[0], x[1].ne[2], x[1].ne[3]], |[i, j, i2, i3]| {
            (0..x[0].ne[1]).map(|k| x[0].at([i, k, i2, i3]) * x[1].at([j, k, i2, i3])).sum()
        })
    };
    vec![
        mul_mat(),
        Row::new("mul_mat_ext", "MUL_MAT").call(|c, t| c.mul_mat_ext(t[0], t[1], MulMatOptions::new())),
        mul_mat_id(),
        Row::new("mul_mat_id_ext", "MUL_MAT_ID").call(|c, t| c.mul_mat_id_ext(t[0], t[1], t[2], MulMatOptions::new())),
        Row::new("out_prod", "OUT_PROD")
            .case([f32([17, 9, 2]), f32([5, 9, 2]).still()], |c, t| c.out_prod(t[0], t[1]))
            .is(outer)
            .laid(&Layout::ROWS)
            .learns(),
        Row::new("solve_tri", "SOLVE_TRI")
            .case([f32([8, 8, 2]).within(-0.2, 0.2), f32([8, 1, 2]).within(2.0, 3.0), f32([5, 8, 2])], |c, t| {
                c.solve_tri(c.add(t[0], c.diag(t[1])?)?, t[2])
            })
            .laid(PLAIN)
            .call(|c, t| c.solve_tri(t[0], t[1]))
            .no_meta(),
    ]
}
