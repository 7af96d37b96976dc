//! Gated units.

use ggml::Glu;

use super::{Op, op};
use crate::draw::build;

const GATES: &[Glu] = &[Glu::Reglu, Glu::Geglu, Glu::Swiglu, Glu::GegluErf, Glu::GegluQuick];

pub(super) const OPS: &[Op] = &[
    op("glu", |p| {
        let types = [p.real().dtype()];
        let a = p.pick(|k| types.contains(&k.dtype()) && k.ne()[0] % 2 == 0);
        let (gate, swapped) = (p.one(GATES), p.rng.bool());
        let t = build!(p, glu(a.t, gate, swapped));
        if gate != Glu::Reglu {
            return Ok(p.only(t));
        }
        let error = |m: &crate::model::Model| 2.0 * m.error * (m.largest() + m.error);
        Ok(p.rows(t, &a, error, |row| {
            let (x, g) = row.split_at(row.len() / 2);
            let (x, g) = if swapped { (g, x) } else { (x, g) };
            x.iter().zip(g).map(|(x, g)| x.max(0.0) * g).collect()
        }))
    }),
    op("glu_split", |p| {
        let a = p.real();
        let b = p.operand(a.dtype(), a.ne())?;
        let gate = p.one(GATES);
        let t = build!(p, glu_split(a.t, b.t, gate));
        if gate != Glu::Reglu {
            return Ok(p.only(t));
        }
        Ok(p.zip(t, &a, &b, 1e-6, |x, g| x.max(0.0) * g))
    }),
];
