//! Products of matrices, and rows picked from them.

use ggml::ops::{MulMatOptions, Prec};
use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
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
    // Kernels turn the second operand into a type in which small numbers may be 0.
    let lost = if rounding > 1e-6 { 1e-7 } else { 0.0 };
    let (x, y) = (a.largest() + a.error, b.largest() + b.error);
    a.row() * (x * b.error + y * a.error + rounding * x * y + lost * (x + y))
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
        let mut how = MulMatOptions::new().with_acc(p.rng.bool().then(|| p.one(&precisions[..3])));
        if p.wild() {
            how = how.with_acc(p.one(&precisions));
        }
        let src = p.chance(3).then(|| p.one(&precisions));
        // It says what the values are: where that is not true, they are multiplied by others.
        how = how.with_src(src).with_hadamard(square && p.rng.bool() || p.wild());
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
    op("get_rows_back", |p| {
        let (n, picked, all) = (p.dim(), p.dim(), p.dim());
        let dtype = p.one(&[DType::F32, DType::F32, DType::F16]);
        let a = p.operand(dtype, [n, picked, 1, 1])?;
        let indices = if p.rng.bool() { picked } else { p.long(1, picked.clamp(1, 8)) };
        let rows = p.indices(DType::I32, [indices, 1, 1, 1], all)?;
        let like = p.operand(DType::F32, [n, all, 1, 1])?;
        let t = build!(p, get_rows_back(a.t, rows.t, like.t));
        Ok(p.only(t))
    }),
    op("set_rows", |p| {
        let a = p.writable();
        let [n, all, n2, n3] = a.ne();
        let b1 = p.long(1, all.clamp(1, 8));
        let dtype = p.one(&[DType::F32, DType::F32, DType::F16]);
        let b = p.operand(dtype, [n, b1, n2, n3])?;
        let (r1, r2) = (if p.rng.bool() { n2 } else { 1 }, if p.rng.bool() { n3 } else { 1 });
        let kind = p.one(&[DType::I32, DType::I64]);
        let rows = p.distinct(kind, [b1, r1, r2, 1], all)?;
        let t = build!(p, set_rows(a.t, b.t, rows.t));
        Ok(p.wrote(t, &a, None))
    }),
    op("mul_mat_id", |p| {
        let (k, m, n, used, tokens) = (p.rng.i64(1..9), p.dim(), p.rng.i64(1..5), p.rng.i64(1..4), p.rng.i64(1..4));
        let dtype = p.one(&[DType::F32, DType::F32, DType::F16, DType::Q8_0, DType::Q4_0]);
        let k = if dtype.block_size() > 1 { dtype.block_size() } else { k };
        let experts = p.operand(dtype, [k, m, n, 1])?;
        let each = if p.rng.bool() { used } else { 1 };
        let b = p.operand(DType::F32, [k, each, tokens, 1])?;
        let ids = p.indices(DType::I32, [used, tokens, 1, 1], n)?;
        let t = build!(p, mul_mat_id(experts.t, b.t, ids.t));
        let model = experts.model.as_ref().zip(b.model.as_ref()).zip(ids.model.as_ref()).and_then(|((e, b), ids)| {
            let (x, y, ids) = (e.array(), b.array(), ids.array());
            if ids.data.iter().any(|&i| i < 0.0 || i >= x.ne[2] as f64) {
                return None;
            }
            let values = Array::of(t.ne().map(|n| n as usize), |[i, j, k, _]| {
                let expert = ids.at([j, k, 0, 0]) as usize;
                (0..x.ne[0]).map(|n| x.at([n, i, expert, 0]) * y.at([n, j % y.ne[1], k, 0])).sum()
            });
            Model::new(&values, DType::F32, product_error(e, b))
        });
        Ok(p.made(t, model))
    }),
    op("mul_mat_id_ext", |p| {
        let (k, m, n, tokens) = (p.rng.i64(1..9), p.dim(), p.rng.i64(1..5), p.rng.i64(1..4));
        let (experts, b) = (p.operand(DType::F32, [k, m, n, 1])?, p.operand(DType::F32, [k, 1, tokens, 1])?);
        let ids = p.indices(DType::I32, [2, tokens, 1, 1], n)?;
        let precisions = [Prec::F32, Prec::BF16, Prec::F16, Prec::Q8, Prec::Q4];
        let [acc, src] = [(); 2].map(|()| p.rng.bool().then(|| p.one(&precisions)));
        let how = MulMatOptions::new().with_acc(acc).with_src(src).with_hadamard(p.wild());
        let t = build!(p, mul_mat_id_ext(experts.t, b.t, ids.t, how));
        Ok(p.only(t))
    }),
    op("add_id", |p| {
        let a = p.f32();
        let [n, used, tokens, _] = a.ne();
        let all = p.rng.i64(1..5);
        let b = p.operand(DType::F32, [n, all, 1, 1])?;
        let ids = p.indices(DType::I32, [used, tokens, 1, 1], all)?;
        let t = build!(p, add_id(a.t, b.t, ids.t));
        let model = a.model.as_ref().zip(b.model.as_ref()).zip(ids.model.as_ref()).and_then(|((a, b), ids)| {
            let (x, y, ids) = (a.array(), b.array(), ids.array());
            if ids.data.iter().any(|&i| i < 0.0 || i >= y.ne[1] as f64) {
                return None;
            }
            let values = Array::of(x.ne, |i| x.at(i) + y.at([i[0], ids.at([i[1], i[2], 0, 0]) as usize, 0, 0]));
            Model::new(&values, DType::F32, a.error + b.error)
        });
        Ok(p.made(t, model))
    }),
];
