//! Functions of each element that are chosen by a parameter; all others are drawn as their rows say.

use ggml::ops::UnaryOp;

use super::{Op, op};
use crate::draw::build;

pub(super) const OPS: &[Op] = &[
    op("unary", |p| {
        let (a, kind) = (p.real(), p.one(UnaryOp::ALL));
        let t = build!(p, unary(a.t, kind));
        Ok(p.only(t))
    }),
    op("unary_inplace", |p| {
        let (a, kind) = (p.writable(), p.one(UnaryOp::ALL));
        let t = build!(p, unary_inplace(a.t, kind));
        Ok(p.wrote(t, &a, None))
    }),
];
