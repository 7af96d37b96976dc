//! Products of matrices, and rows picked from them.

use ggml::prelude::*;
use ggml::{MulMat, Prec};

use super::{Op, op};
use crate::array::Array;
use crate::draw::build;
use crate::model::Model;

/// How far the product of a row with a column may be off.
fn product_error(a: &Model, b: &Model) -> f64 {
    let rounding = match (a.dtype, b.dtype) {
        (DType::F32, DType::F32) => 1e-6,
        (DType::F32 | DType::F16, DType::F32 | DType::F16) => 1e-3,
        (DType::BF16, _) | (_, DType::BF16) => 1e-2,
        _ => 2e-2,
    };
    let (x, y) = (a.largest(), b.largest());
    a.row() * (x * b.error + y * a.error + a.error * b.error + rounding * (x + a.error) * (y + b.error))
}

pub(super) const OPS: &[Op] = &[
    op("mul_mat", |p| {
        let a = p.any();
        let [n, _, a2, a3] = a.ne();
        let second = [DType::F32, DType::F32, DType::F32, a.dtype()];
        let dtype = p.one(&second);
        let b = if p.rng.bool() {
            p.pick(|k| k.dtype() == dtype && k.ne()[0] == n)
        } else {
            let (rows, t2, t3) = (p.dim(), p.rng.i64(1..3), p.rng.i64(1..3));
            p.operand(dtype, [n, rows, a2.saturating_mul(t2), a3.saturating_mul(t3)])?
        };
        let t = build!(p, mul_mat(a.t, b.t));
        let model = a.model.as_ref().zip(b.model.as_ref()).and_then(|(a, b)| {
            let (x, y) = (a.array(), b.array());
            let (r2, r3) = (y.ne[2] / x.ne[2], y.ne[3] / x.ne[3]);
            let values = Array::of([x.ne[1], y.ne[1], y.ne[2], y.ne[3]], |[i, j, k, l]| {
                (0..x.ne[0]).map(|n| x.at([n, i, k / r2, l / r3]) * y.at([n, j, k, l])).sum()
            });
            Model::new(&values, DType::F32, product_error(a, b))
        });
        Ok(p.made(t, model))
    }),
    op("get_rows", |p| {
        let a = p.any();
        let [_, n, a2, a3] = a.ne();
        let picked = p.dim();
        let rows = p.indices(DType::I32, [picked, a2, a3, 1], n)?;
        let t = build!(p, get_rows(a.t, rows.t));
        let model = a.model.as_ref().zip(rows.model.as_ref()).and_then(|(a, rows)| {
            let (x, r) = (a.array(), rows.array());
            // Where an index is too large, the input gets other values, and nothing is compared.
            if r.data.iter().any(|&i| i < 0.0 || i >= x.ne[1] as f64) {
                return None;
            }
            let ne = t.ne().map(|n| n as usize);
            let values = Array::of(ne, |[i, j, k, l]| x.at([i, r.at([j, k, l, 0]) as usize, k, l]));
            Model::new(&values, t.dtype(), a.error)
        });
        Ok(p.made(t, model))
    }),
    op("mul_mat_ext", |p| {
        let square = p.chance(3);
        let (a, b) = if square {
            let n = p.one(&[1, 2, 4, 8]);
            let a = p.operand(DType::F32, [n, n, 1, 1])?;
            let rows = p.dim();
            (a, p.operand(DType::F32, [n, rows, 1, 1])?)
        } else {
            let a = p.real();
            let [n, _, a2, a3] = a.ne();
            let rows = p.dim();
            (a, p.operand(DType::F32, [n, rows, a2, a3])?)
        };
        let precisions = [Prec::F32, Prec::BF16, Prec::F16, Prec::Q8, Prec::Q4];
        let mut how = MulMat::default();
        how.acc = p.rng.bool().then(|| p.one(&precisions[..3]));
        if p.wild() {
            how.acc = Some(p.one(&precisions));
        }
        how.src = p.chance(3).then(|| p.one(&precisions));
        // It says what the values are: where that is not true, they are multiplied by others.
        how.hadamard = square && p.rng.bool() || p.wild();
        let t = build!(p, mul_mat_ext(a.t, b.t, how));
        Ok(p.only(t))
    }),
    op("out_prod", |p| {
        let a = p.any();
        let [_, n, a2, a3] = a.ne();
        let m = p.dim();
        let b = p.operand(DType::F32, [m, n, a2, a3])?;
        let t = build!(p, out_prod(a.t, b.t));
        let model = a.model.as_ref().zip(b.model.as_ref()).and_then(|(a, b)| {
            let (x, y) = (a.array(), b.array());
            let (r2, r3) = (y.ne[2] / x.ne[2], y.ne[3] / x.ne[3]);
            let values = Array::of([x.ne[0], y.ne[0], y.ne[2], y.ne[3]], |[i, j, k, l]| {
                (0..x.ne[1]).map(|n| x.at([i, n, k / r2, l / r3]) * y.at([j, n, k, l])).sum()
            });
            Model::new(&values, DType::F32, a.ne[1] as f64 / a.row() * product_error(a, b))
        });
        Ok(p.made(t, model))
    }),
    op("solve_tri", |p| {
        let (n, m, n2) = (p.dim(), p.dim(), p.rng.i64(1..3));
        let a = p.operand(DType::F32, [n, n, n2, 1])?;
        let b = p.operand(DType::F32, [m, n, n2, 1])?;
        let t = build!(p, solve_tri(a.t, b.t));
        Ok(p.only(t))
    }),
];
