//! Copies, which keep what is in memory.

use ggml::prelude::*;

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
];
