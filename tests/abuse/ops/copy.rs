//! Copies, repetitions and concatenations.

use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
use crate::draw::build;
use crate::model::Model;

const CASTS: &[DType] =
    &[DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::I32, DType::Q4_0, DType::Q5_1, DType::IQ4_NL];

pub(super) const OPS: &[Op] = &[
    op("cont", |p| {
        let a = p.any();
        let t = build!(p, cont(a.t));
        Ok(p.made(t, a.model.as_ref().map(Model::contiguous)))
    }),
    op("dup", |p| {
        let a = p.any();
        let t = build!(p, dup(a.t));
        Ok(p.made(t, a.model.as_ref().map(Model::contiguous)))
    }),
    op("cast", |p| {
        let (a, to) = (p.any(), p.dtype(CASTS));
        let t = build!(p, cast(a.t, to));
        // Integers are cut, and what is too large for them may become anything.
        let whole = matches!(to, DType::I8 | DType::I16 | DType::I32 | DType::I64) && a.dtype() != to;
        let model = a.model.as_ref().filter(|_| !whole).and_then(|m| Model::new(&m.array(), to, m.error));
        Ok(p.made(t, model))
    }),
    op("cpy", |p| {
        let b = p.writable();
        let (n, ne) = (b.t.elements(), b.ne());
        let a = match p.rng.u32(..3) {
            0 => p.pick(|k| k.ne() == ne),
            1 => p.pick(|k| k.t.elements() == n),
            _ => p.operand(DType::F32, ne)?,
        };
        let t = build!(p, cpy(a.t, b.t));
        let whole = matches!(b.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64) && a.dtype() != b.dtype();
        let values = a.model.as_ref().filter(|_| !whole).map(|m| (m.array(), m.error));
        Ok(p.wrote(t, &b, values))
    }),
    op("repeat", |p| {
        let a = p.any();
        let (dtype, ne) = (a.dtype(), a.ne());
        let found = p.find(|k| super::binary::repeats(ne, k.ne())).filter(|_| p.rng.bool());
        let like = if let Some(like) = found {
            like
        } else {
            let times = [(); 4].map(|()| if p.chance(3) { p.rng.i64(2..4) } else { 1 });
            let dtype = if dtype.block_size() == 1 { dtype } else { DType::F32 };
            p.operand(dtype, [0, 1, 2, 3].map(|i: usize| ne[i].saturating_mul(times[i])))?
        };
        let t = build!(p, repeat(a.t, like.t));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            Model::new(&Array::of(t.ne().map(|n| n as usize), |i| values.wrapped(i)), t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
    op("repeat_back", |p| {
        let a = p.f32();
        let ne = a.ne();
        let like = p.pick(|k| super::binary::repeats(k.ne(), ne));
        let t = build!(p, repeat_back(a.t, like.t));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let mut sums = Array::of(t.ne().map(|n| n as usize), |_| 0.0);
            Array::of(values.ne, |i| {
                let at = sums.position([0, 1, 2, 3].map(|d| i[d] % sums.ne[d]));
                sums.data[at] += values.at(i);
                0.0
            });
            let times = m.elements() as f64 / sums.data.len() as f64;
            // Each of so many additions rounds a sum of up to so many values.
            let rounding = 1e-6 + times * f64::from(f32::EPSILON) / 2.0;
            Model::new(&sums, t.dtype(), times * (m.error + rounding * m.largest()))
        });
        Ok(p.made(t, model))
    }),
    op("concat", |p| {
        let a = p.any();
        let dim = p.count(0, 3);
        let (dtype, ne) = (a.dtype(), a.ne());
        let mut other = ne;
        if let Some(n) = other.get_mut(dim) {
            *n = p.dim();
        }
        let b = if p.rng.bool() { p.pick(|k| k.dtype() == dtype && k.ne() == ne) } else { p.operand(dtype, other)? };
        let t = build!(p, concat(a.t, b.t, dim));
        let model = a.model.as_ref().zip(b.model.as_ref()).and_then(|(a, b)| {
            let (x, y) = (a.array(), b.array());
            let joined = Array::of(t.ne().map(|n| n as usize), |mut i| {
                if i[dim] < x.ne[dim] {
                    return x.at(i);
                }
                i[dim] -= x.ne[dim];
                y.at(i)
            });
            Model::new(&joined, t.dtype(), a.error.max(b.error))
        });
        Ok(p.made(t, model))
    }),
    op("dup_inplace", |p| {
        let a = p.writable();
        let t = build!(p, dup_inplace(a.t));
        Ok(p.look(t, &a, a.model.clone()))
    }),
    op("cont_4d", |p| {
        let a = p.any();
        let n = i64::try_from(a.t.elements()).unwrap_or(i64::MAX);
        let by = p.rng.i64(1..4);
        let block = a.dtype().block_size();
        let wild = [p.dim(), p.dim(), 1, 1];
        let shape = if p.chance(4) {
            wild
        } else if n % (by * block) == 0 {
            [n / by, by, 1, 1]
        } else {
            [n, 1, 1, 1]
        };
        let t = build!(p, cont_4d(a.t, shape));
        let ne = t.ne().map(|n| n as usize);
        let model = a.model.as_ref().map(Model::contiguous);
        Ok(p.made(t, model.map(|m| m.view(ne, crate::model::packed(m.dtype, ne), 0))))
    }),
    op("repeat_4d", |p| {
        let a = p.any();
        let times = [(); 4].map(|()| if p.chance(3) { p.rng.i64(2..4) } else { 1 });
        let mut shape = [0, 1, 2, 3].map(|i: usize| a.ne()[i].saturating_mul(times[i]));
        if p.wild() {
            shape[p.rng.usize(..4)] = p.dim();
        }
        let t = build!(p, repeat_4d(a.t, shape));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            Model::new(&Array::of(t.ne().map(|n| n as usize), |i| values.wrapped(i)), t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
];
