//! Sums, means and largest elements.

use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
use crate::draw::build;
use crate::model::Model;

fn sum_error(m: &Model) -> f64 {
    m.row() * (m.error + 2e-6 * m.largest())
}

pub(super) const OPS: &[Op] = &[
    op("sum", |p| {
        let a = p.real();
        let t = build!(p, sum(a.t));
        let model = a.model.as_ref().and_then(|m| {
            let n = m.elements() as f64;
            let error = n * (m.error + 2e-6 * m.largest());
            Model::new(&Array { ne: [1; 4], data: vec![m.array().data.iter().sum()] }, t.dtype(), error)
        });
        Ok(p.made(t, model))
    }),
    op("sum_rows", |p| {
        let a = p.f32();
        let t = build!(p, sum_rows(a.t));
        Ok(p.rows(t, &a, sum_error, |row| vec![row.iter().sum()]))
    }),
    op("mean", |p| {
        let a = p.f32();
        let t = build!(p, mean(a.t));
        Ok(p.rows(
            t,
            &a,
            |m| m.error + 2e-6 * m.row() * m.largest(),
            |row| vec![row.iter().sum::<f64>() / row.len() as f64],
        ))
    }),
    op("argmax", |p| {
        let a = p.pick(|k| k.dtype() == DType::F32 && k.ne()[2] == 1 && k.ne()[3] == 1);
        let t = build!(p, argmax(a.t));
        Ok(p.only(t))
    }),
    op("cumsum", |p| {
        let a = p.f32();
        let t = build!(p, cumsum(a.t));
        Ok(p.rows(t, &a, sum_error, |row| {
            let mut sum = 0.0;
            row.iter()
                .map(|x| {
                    sum += x;
                    sum
                })
                .collect()
        }))
    }),
    op("count_equal", |p| {
        let a = p.of(&[DType::I32]);
        let b = p.operand(DType::I32, a.ne())?;
        let t = build!(p, count_equal(a.t, b.t));
        let model = a.model.as_ref().zip(b.model.as_ref()).and_then(|(a, b)| {
            let n = a.array().data.iter().zip(&b.array().data).filter(|(x, y)| x == y).count();
            Model::new(&Array { ne: [1; 4], data: vec![n as f64] }, t.dtype(), 0.0)
        });
        Ok(p.made(t, model))
    }),
];
