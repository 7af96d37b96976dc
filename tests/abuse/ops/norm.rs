//! Normalisation of rows.

use super::{Op, op};
use crate::draw::build;
use crate::model::Model;

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
    ($($name:ident $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let (a, eps) = (p.f32(), p.float(0.0, 0.1));
                let t = build!(p, $name(a.t, eps));
                let f: fn(&[f64], f64) -> Vec<f64> = $f;
                Ok(p.rows(t, &a, error, |row| f(row, eps.into())))
            }),
        )*]
    };
}

pub(super) const OPS: &[Op] = norm! {
    norm |row, eps| {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        row.iter().map(|x| (x - mean) / (variance + eps).sqrt()).collect()
    };
    rms_norm |row, eps| {
        let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        row.iter().map(|x| x / (square + eps).sqrt()).collect()
    };
    l2_norm |row, eps| {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(eps);
        row.iter().map(|x| x / length).collect()
    };
};

pub(super) const GROUPS: &[Op] = &[op("group_norm", |p| {
    let (a, eps) = (p.f32(), p.float(0.0, 0.1));
    let groups = p.int(1, 4);
    let groups = if p.rng.bool() { i32::try_from(a.ne()[2]).unwrap_or(groups) } else { groups };
    let t = build!(p, group_norm(a.t, groups, eps));
    Ok(p.only(t))
})];
