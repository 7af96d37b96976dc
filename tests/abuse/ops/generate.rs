//! Tensors whose values come from numbers.

use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
use crate::draw::build;

pub(super) const OPS: &[Op] = &[
    op("fill", |p| {
        let (a, value) = (p.of(&[DType::F32, DType::F32, DType::F16]), p.float(-2.0, 2.0));
        let t = build!(p, fill(a.t, value));
        let ne = t.ne().map(|n| n as usize);
        Ok(p.values(t, &Array::of(ne, |_| value.into()), 0.0))
    }),
    op("fill_inplace", |p| {
        let (a, value) = (p.writable(), p.float(-2.0, 2.0));
        let t = build!(p, fill_inplace(a.t, value));
        let ne = t.ne().map(|n| n as usize);
        Ok(p.wrote(t, &a, Some((Array::of(ne, |_| value.into()), 0.0))))
    }),
    op("arange", |p| {
        let (start, step) = (p.float(-4.0, 4.0), p.float(0.1, 2.0));
        let stop = start + p.float(0.1, 20.0);
        let t = build!(p, arange(start, stop, step));
        let ne = t.ne().map(|n| n as usize);
        Ok(p.values(t, &Array::of(ne, |i| f64::from(start) + i[0] as f64 * f64::from(step)), 1e-4))
    }),
    op("timestep_embedding", |p| {
        let n = p.dim();
        let steps = p.operand(DType::F32, [n, 1, 1, 1])?;
        let (dim, period) = (p.int(1, 40), p.int(1, 10000));
        let t = build!(p, timestep_embedding(steps.t, dim, period));
        Ok(p.only(t))
    }),
];
