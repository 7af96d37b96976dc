//! Normalisation of rows.

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};
use crate::model::Model;
use crate::results::rowed;

/// The error of a row that was divided by its own size, where that is not tiny.
fn error(m: &Model) -> f64 {
    let least = m.array().data.chunks(m.ne[0]).map(size).fold(f64::MAX, f64::min);
    if least < 0.1 + 8.0 * m.error {
        f64::INFINITY
    } else {
        (8.0 * m.error + 1e-5) * (1.0 + m.largest()) / least / least.min(1.0)
    }
}

/// The least of a row's measures: the root of its mean square, or of its variance.
fn size(row: &[f64]) -> f64 {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    (row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt()
}

macro_rules! norm {
    ($($name:ident, $inplace:ident $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let (a, eps) = (p.f32(), p.float(0.0, 0.1));
                let t = build!(p, $name(a.t, eps));
                let f: fn(&[f64], f64) -> Vec<f64> = $f;
                Ok(p.rows(t, &a, error, |row| f(row, eps.into())))
            }),
            op(stringify!($inplace), |p| {
                let (a, eps) = (p.writable(), p.float(0.0, 0.1));
                let t = build!(p, $inplace(a.t, eps));
                let f: fn(&[f64], f64) -> Vec<f64> = $f;
                Ok(p.wrote(t, &a, rowed(&a, error, |row| f(row, eps.into()))))
            }),
        )*]
    };
}

pub(super) const TABLE: &[Op] = norm! {
    norm, norm_inplace |row, eps| {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        row.iter().map(|x| (x - mean) / (variance + eps).sqrt()).collect()
    };
    rms_norm, rms_norm_inplace |row, eps| {
        let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        row.iter().map(|x| x / (square + eps).sqrt()).collect()
    };
    l2_norm, l2_norm_inplace |row, eps| {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(eps);
        row.iter().map(|x| x / length).collect()
    };
};

fn groups<'c>(p: &mut Draw<'_, 'c>, a: &Known<'c>) -> i32 {
    let groups = p.int(1, 4);
    if p.rng.bool() { i32::try_from(a.ne()[2]).unwrap_or(groups) } else { groups }
}

pub(super) const OPS: &[Op] = &[
    op("group_norm", |p| {
        let (a, eps) = (p.f32(), p.float(0.0, 0.1));
        let groups = groups(p, &a);
        let t = build!(p, group_norm(a.t, groups, eps));
        Ok(p.only(t))
    }),
    op("group_norm_inplace", |p| {
        let (a, eps) = (p.writable(), p.float(0.0, 0.1));
        let groups = groups(p, &a);
        let t = build!(p, group_norm_inplace(a.t, groups, eps));
        Ok(p.wrote(t, &a, None))
    }),
    op("rms_norm_back", |p| {
        let (a, eps) = (p.f32(), p.float(0.0, 0.1));
        let b = p.operand(a.dtype(), a.ne())?;
        let t = build!(p, rms_norm_back(a.t, b.t, eps));
        Ok(p.only(t))
    }),
];
