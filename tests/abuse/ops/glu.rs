//! Gated units.

use ggml::ops::GluOp;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};

pub(super) const OPS: &[Op] = &[
    op("glu", |p| {
        let types = [p.real().dtype()];
        let a = p.pick(|k| types.contains(&k.dtype()) && k.ne()[0] > 1);
        let (gate, swapped) = (p.one(GluOp::ALL), p.rng.bool());
        let t = build!(p, glu(a.t, gate, swapped));
        if gate != GluOp::Reglu {
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
        let gate = p.one(GluOp::ALL);
        let t = build!(p, glu_split(a.t, b.t, gate));
        if gate != GluOp::Reglu {
            return Ok(p.only(t));
        }
        Ok(p.zip(t, &a, &b, 1e-6, |x, g| x.max(0.0) * g))
    }),
    op("swiglu_oai", |p| {
        let a = p.f32();
        let b = p.operand(a.dtype(), a.ne())?;
        let (alpha, limit) = (p.float(0.5, 2.0), p.float(0.5, 7.0));
        let t = build!(p, swiglu_oai(a.t, b.t, alpha, limit));
        Ok(p.only(t))
    }),
    op("swiglu_clamp", |p| {
        let a = p.f32();
        let b = p.operand(a.dtype(), a.ne())?;
        let limit = p.float(0.5, 7.0);
        let t = build!(p, swiglu_clamp(a.t, b.t, limit));
        Ok(p.only(t))
    }),
];

/// A gate's three forms: of the halves of rows, of the halves exchanged, of two operands.
macro_rules! gates {
    ($($halves:ident, $swapped:ident, $split:ident, $tolerance:literal $f:expr;)*) => {
        &[$(
            op(stringify!($halves), |p| {
                let a = halves(p);
                let t = build!(p, $halves(a.t));
                Ok(p.only(t))
            }),
            op(stringify!($swapped), |p| {
                let a = halves(p);
                let t = build!(p, $swapped(a.t));
                Ok(p.only(t))
            }),
            op(stringify!($split), |p| {
                let a = p.real();
                let b = p.operand(a.dtype(), a.ne())?;
                let t = build!(p, $split(a.t, b.t));
                let f: fn(f64) -> f64 = $f;
                Ok(p.zip(t, &a, &b, $tolerance, |x, g| f(x) * g))
            }),
        )*]
    };
}

pub(super) const GATED: &[Op] = gates! {
    reglu, reglu_swapped, reglu_split, 1e-6 |x| x.max(0.0);
    geglu, geglu_swapped, geglu_split, 8e-3
        |x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh());
    swiglu, swiglu_swapped, swiglu_split, 1e-4 |x| x / (1.0 + (-x).exp());
    geglu_erf, geglu_erf_swapped, geglu_erf_split, 8e-3 testkit::gelu_erf;
    geglu_quick, geglu_quick_swapped, geglu_quick_split, 8e-3 |x| x / (1.0 + (-1.702 * x).exp());
};

fn halves<'c>(p: &mut Draw<'_, 'c>) -> Known<'c> {
    let dtype = p.real().dtype();
    p.pick(|k| k.dtype() == dtype && k.ne()[0] % 2 == 0)
}
