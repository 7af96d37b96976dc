//! Matrix products. References for other types than `f32` are in `tests/ops/matmul.rs` and `experts.rs`.

use ggml::ops::{MulMatOptions, Prec};
use ggml::prelude::*;

use super::case::{Case, Known, Operand, f32, ints, of, sized};
use super::draw::Source;
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

/// How far sums of `n` products may be off.
fn error(n: usize, [a, b]: [DType; 2], x: &Known, y: &Known) -> f64 {
    let rounding = match (a, b) {
        (DType::F32, DType::F32) => 1e-6,
        (DType::F32 | DType::F16, DType::F32 | DType::F16) => 1e-3,
        (DType::BF16, _) | (_, DType::BF16) => 1e-2,
        _ => 2e-2,
    };
    // Kernels turn the second operand into a type in which small numbers may be 0.
    let lost = if rounding > 1e-6 { 1e-7 } else { 0.0 };
    let [x_most, y_most] = [x, y].map(|k| k.largest() + k.error);
    n as f64 * (x_most * y.error + y_most * x.error + rounding * x_most * y_most + lost * (x_most + y_most))
}

fn multiplied(operands: [Operand; 2]) -> Case {
    let types = [0, 1].map(|i: usize| operands[i].dtype);
    Case::new(operands, |c, t| c.mul_mat(t[0], t[1]))
        .is(|x| product(&x[0], &x[1]))
        .laid(&[Layout::Plain, Layout::Gaps, Layout::Swapped])
        .makes(F32)
        .off(1e-4)
        .near(1e-2)
        .spreads(move |k| error(k[0].values.ne[0], types, &k[0], &k[1]))
}

/// A product of matrices of these shapes, the first of this type.
fn case<const A: usize, const B: usize>(row: Row, dtype: DType, a: [usize; A], b: [usize; B]) -> Row {
    let case = multiplied([of(dtype, a).within(-1.0, 1.0), f32(b).within(-1.0, 1.0)]);
    // Errors of other types are relative to the terms.
    row.with(if dtype == F32 { case } else { Case { reference: None, ..case }.laid(PLAIN) })
}

fn drawn(s: &mut dyn Source) -> Case {
    let x = s.any(&[F32, F16, BF16, DType::Q8_0, DType::Q4_0]);
    let ([n, _, n2, n3], dtype) = (x.shape(), s.one(&[F32, F32, F32, x.dtype]));
    let ne = [n, s.dim(), n2.saturating_mul(s.size(1, 2)), n3.saturating_mul(s.size(1, 2))];
    multiplied([x, sized(dtype, ne)])
}

const PRECISIONS: [Prec; 5] = [Prec::F32, Prec::BF16, Prec::F16, Prec::Q8, Prec::Q4];

/// Options say what the values are: where that is not true, others are multiplied.
fn drawn_ext(s: &mut dyn Source) -> Case {
    let square = s.chance(3);
    let x = if square {
        let n = s.one(&[1, 2, 4, 8]);
        sized(F32, [n, n, 1, 1])
    } else {
        s.real()
    };
    let [n, _, n2, n3] = x.shape();
    let other = sized(F32, [n, s.dim(), n2, n3]);
    let acc = s.bool().then(|| s.one(&PRECISIONS[..3]));
    let acc = if s.chance(24) { Some(s.one(&PRECISIONS)) } else { acc };
    let src = s.chance(3).then(|| s.one(&PRECISIONS));
    let hadamard = square && s.bool() || s.chance(24);
    let how = MulMatOptions::new().with_acc(acc).with_src(src).with_hadamard(hadamard);
    Case::new([x, other], move |c, t| c.mul_mat_ext(t[0], t[1], how)).with(how)
}

fn mul_mat() -> Row {
    let row = Row::new("mul_mat", "MUL_MAT")
        .all([([32, 20, 4], [32, 12, 8]), ([64, 17, 1], [64, 16, 1])], |row, (a, b)| case(row, F32, a, b));
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
    case(row, F16, [77, 5], [77, 3]).must().drawn(drawn).learns()
}

/// Products with the experts of indices.
fn of_experts(operands: [Operand; 3]) -> Case {
    let types = [0, 1].map(|i: usize| operands[i].dtype);
    let reference = |x: &[Array]| {
        Array::of([x[0].ne[1], x[2].ne[0], x[1].ne[2], 1], |[i, j, k, _]| {
            let expert = x[2].at([j, k, 0, 0]) as usize;
            (0..x[0].ne[0]).map(|n| x[0].at([n, i, expert, 0]) * x[1].at([n, j % x[1].ne[1], k, 0])).sum()
        })
    };
    let case = Case::new(operands, |c, t| c.mul_mat_id(t[0], t[1], t[2])).is(reference).laid(PLAIN).makes(F32);
    case.near(1e-2).spreads(move |k| error(k[0].values.ne[0], types, &k[0], &k[1]))
}

/// Experts of this type, operands for each of those used, and their indices.
fn experts(s: &mut dyn Source, types: &[DType], used: i64) -> [Operand; 3] {
    let (dtype, n, tokens, first) = (s.one(types), s.size(used, 4), s.size(1, 3), s.int(0, 3));
    let k = if dtype.block_size() > 1 { dtype.block_size() } else { s.size(1, 8) };
    let each = if s.bool() { used } else { 1 };
    // Those of a token differ.
    let small = |n: i64| i32::try_from(n).unwrap();
    let (below, shape) = (small(n), [used, tokens].map(|n| usize::try_from(n).unwrap()));
    let ids = ints(shape, (0..small(used * tokens)).map(|i| i.wrapping_add(first).rem_euclid(below)));
    [sized(dtype, [k, s.dim(), n, 1]), sized(F32, [k, each, tokens, 1]), ids]
}

fn drawn_experts(s: &mut dyn Source) -> Case {
    let operands = experts(s, &[F32], 2);
    let [acc, src] = [(); 2].map(|()| s.bool().then(|| s.one(&PRECISIONS)));
    let how = MulMatOptions::new().with_acc(acc).with_src(src).with_hadamard(s.chance(24));
    Case::new(operands, move |c, t| c.mul_mat_id_ext(t[0], t[1], t[2], how)).with(how)
}

fn mul_mat_id() -> Row {
    let cases = [F32, F16, DType::Q4_0, DType::Q8_0, DType::Q4_K].into_iter().flat_map(|d| [1, 4, 33].map(|n| (d, n)));
    let row = Row::new("mul_mat_id", "MUL_MAT_ID").all(cases, |row, (dtype, tokens)| {
        let ids = ints([2, tokens], (0..).map(|i| i % 2 * 3 + i / 2 % 3));
        let operands = [of(dtype, [256, 40, 8]).within(-1.0, 1.0), f32([256, 2, tokens]).within(-1.0, 1.0), ids];
        row.with(Case { reference: None, ..of_experts(operands) }).must()
    });
    let row = row.drawn(|s| {
        let used = s.size(1, 3);
        of_experts(experts(s, &[F32, F32, F16, DType::Q8_0, DType::Q4_0], used))
    });
    row.no_meta()
}

pub(super) fn rows() -> Vec<Row> {
    let outer = |operands: [Operand; 2]| {
        let types = [0, 1].map(|i: usize| operands[i].dtype);
        let reference = |x: &[Array]| {
            Array::of([x[0].ne[0], x[1].ne[0], x[1].ne[2], x[1].ne[3]], |[i, j, i2, i3]| {
                (0..x[0].ne[1]).map(|k| x[0].at([i, k, i2, i3]) * x[1].at([j, k, i2, i3])).sum()
            })
        };
        let case = Case::new(operands, |c, t| c.out_prod(t[0], t[1])).is(reference).laid(&Layout::ROWS).makes(F32);
        case.spreads(move |k| error(k[0].values.ne[1], types, &k[0], &k[1]))
    };
    vec![
        mul_mat(),
        Row::new("mul_mat_ext", "MUL_MAT")
            .call(|c, t| c.mul_mat_ext(t[0], t[1], MulMatOptions::new()))
            .drawn(drawn_ext),
        mul_mat_id(),
        Row::new("mul_mat_id_ext", "MUL_MAT_ID")
            .call(|c, t| c.mul_mat_id_ext(t[0], t[1], t[2], MulMatOptions::new()))
            .drawn(drawn_experts),
        Row::new("out_prod", "OUT_PROD")
            .with(outer([f32([17, 9, 2]), f32([5, 9, 2]).still()]))
            .drawn(move |s| {
                let x = s.any(&[F32, F16, DType::Q8_0]);
                let [_, n, n2, n3] = x.shape();
                outer([x, sized(F32, [s.dim(), n, n2, n3])])
            })
            .learns(),
        Row::new("solve_tri", "SOLVE_TRI")
            .case([f32([8, 8, 2]).within(-0.2, 0.2), f32([8, 1, 2]).within(2.0, 3.0), f32([5, 8, 2])], |c, t| {
                c.solve_tri(c.add(t[0], c.diag(t[1])?)?, t[2])
            })
            .laid(PLAIN)
            .call(|c, t| c.solve_tri(t[0], t[1]))
            .drawn(|s| {
                let (n, n2) = (s.dim(), s.size(1, 2));
                let operands = [sized(F32, [n, n, n2, 1]), sized(F32, [s.dim(), n, n2, 1])];
                Case::new(operands, |c, t| c.solve_tri(t[0], t[1]))
            })
            .no_meta(),
    ]
}
