//! Resized images.

use ggml::ops::{InterpolateMode, InterpolateOptions};

use super::F32;
use super::case::{Case, Operand, f32};
use super::row::Row;
use crate::array::Array;

/// The position, in a row of `from` pixels, of the centre of pixel `i` of `to`; pixel `k` covers `k` to `k + 1`.
fn centre(i: usize, from: usize, to: usize, align_corners: bool) -> f64 {
    if align_corners && from > 1 && to > 1 {
        return i as f64 * (from - 1) as f64 / (to - 1) as f64 + 0.5;
    }
    // A row of one pixel has no two corners: ggml then aligns the first pixels.
    if align_corners { i as f64 * from as f64 / to as f64 + 0.5 } else { (i as f64 + 0.5) * from as f64 / to as f64 }
}

/// The weight of a pixel whose centre is `distance` away.
fn cubic(distance: f64) -> f64 {
    let (a, x) = (-0.75, distance.abs());
    match x {
        _ if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
        _ if x < 2.0 => a * x.powi(3) - 5.0 * a * x.powi(2) + 8.0 * a * x - 4.0 * a,
        _ => 0.0,
    }
}

fn triangle(distance: f64) -> f64 {
    (1.0 - distance.abs()).max(0.0)
}

/// The pixels that contribute to one of the result, with their weights.
fn weights(i: usize, from: usize, to: usize, how: InterpolateOptions) -> Vec<(usize, f64)> {
    if how.mode == InterpolateMode::Nearest {
        let ratio = if how.align_corners && from > 1 && to > 1 { (from - 1, to - 1) } else { (from, to) };
        return vec![(i * ratio.0 / ratio.1, 1.0)];
    }
    let centre = centre(i, from, to, how.align_corners);
    if how.antialias {
        let reach = (from as f64 / to as f64).max(1.0);
        let all: Vec<_> = (0..from).map(|k| (k, triangle((k as f64 + 0.5 - centre) / reach))).collect();
        let total: f64 = all.iter().map(|(_, w)| w).sum();
        return all.into_iter().map(|(k, w)| (k, w / total)).collect();
    }
    // Pixels out of bounds repeat the border.
    let around = (centre - 0.5).floor() as i64 - 1..=(centre - 0.5).floor() as i64 + 2;
    let weight = if how.mode == InterpolateMode::Bicubic { cubic } else { triangle };
    around.map(|k| (k.clamp(0, from as i64 - 1) as usize, weight(k as f64 + 0.5 - centre))).collect()
}

fn resized(x: Operand, to: [i64; 4], how: InterpolateOptions) -> Case {
    let reference = move |x: &[Array]| {
        let (from, to) = (x[0].ne, to.map(|n| n as usize));
        Array::of(to, |i| {
            let [i2, i3] = [2, 3].map(|d| i[d] * from[d] / to[d]);
            let [columns, rows] = [0, 1].map(|d| weights(i[d], from[d], to[d], how));
            let row = |y| columns.iter().map(|(i, w)| w * x[0].at([*i, y, i2, i3])).sum::<f64>();
            rows.iter().map(|(y, w)| w * row(*y)).sum()
        })
    };
    let case = Case::new([x], move |c, t| c.interpolate(t[0], to, how)).with((to, how)).is(reference);
    case.spreads(move |k| {
        let (from, to) = (k[0].values.ne, to.map(|n| n as usize));
        let (nearest, corners) = (how.mode == InterpolateMode::Nearest, how.align_corners);
        // Positions are floats, whose rounding picks another pixel where several times as many are not made.
        let picked = if nearest { 0..4 } else { 2..4 };
        if picked.into_iter().any(|d| from[d] != to[d] && (corners || to[d] % from[d] != 0)) {
            return f64::INFINITY;
        }
        let off = if nearest { 0.0 } else { 1e-4 + 1e-6 * from[0].max(from[1]) as f64 };
        3.0 * k[0].error + off * k[0].largest()
    })
}

pub(super) fn rows() -> [Row; 1] {
    let by = |mode| InterpolateOptions::new(mode);
    let hows = [
        by(InterpolateMode::Nearest),
        by(InterpolateMode::Nearest).with_align_corners(true),
        by(InterpolateMode::Bilinear),
        by(InterpolateMode::Bilinear).with_align_corners(true),
        by(InterpolateMode::Bilinear).with_antialias(true),
        by(InterpolateMode::Bicubic),
        by(InterpolateMode::Bicubic).with_align_corners(true),
    ];
    let to = [[10, 8, 3, 2], [7, 9, 6, 4], [3, 2, 2, 1], [13, 1, 5, 3], [1, 11, 1, 2], [5, 4, 3, 2]];
    let mut row = Row::new("interpolate", "UPSCALE").all(hows, |row, how| {
        let row = row.with(resized(f32([7, 9, 3, 2]), [16, 27, 3, 2], how));
        row.with(resized(f32([1]), [4, 3, 1, 1], how).off(1e-5))
            .all(to, |row, to| row.with(resized(f32([5, 4, 3, 2]), to, how)))
    });
    row.cases[0].must = true;
    let row = row.drawn(|s| {
        let x = s.first(&[F32]);
        let mode = s.one(&[InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic]);
        let how = InterpolateOptions::new(mode).with_align_corners(s.chance(3)).with_antialias(s.chance(4));
        let [n0, n1, n2, n3] = x.shape();
        let shape = [s.dim(), s.dim(), if s.bool() { n2 } else { s.size(1, 3) }, n3];
        let twice = [n0.saturating_mul(2), n1.saturating_mul(2), n2, n3];
        resized(x, if s.chance(4) { twice } else { shape }, how)
    });
    [row]
}
