//! Rotary positions.

use ggml::ops::{RopeMode, RopeOptions};
use ggml::prelude::*;

use super::case::{Case, Operand, below, f32, ints, of, sized};
use super::draw::Source;
use super::row::Row;
use super::{F16, F32, I32, ROWS};
use crate::array::Array;

const MODES: [RopeMode; 5] = [RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope, RopeMode::Vision];

/// The pairs of a row that are rotated, each with its position and power of the base.
fn pairs(how: &RopeOptions<'_>, row: usize) -> Vec<(usize, usize, usize, usize)> {
    let (n, at) = (how.n_dims as usize, how.offset as usize);
    let sections = how.sections.map(|n| n as usize);
    let all: usize = sections.iter().sum();
    let count = if how.mode == RopeMode::Vision { row / 2 } else { n / 2 };
    (0..count)
        .map(|pair| {
            let (first, second) = match how.mode {
                RopeMode::Normal => (at + 2 * pair, at + 2 * pair + 1),
                _ => (at + pair, at + pair + count),
            };
            // The pair's section, and the start of that.
            let inside = pair % all.max(1);
            let start_of = |s: usize| sections[..s].iter().sum::<usize>();
            let section = (0..4).rev().find(|&s| inside >= start_of(s) && sections[s] > 0).unwrap_or(0);
            let turn = inside % 3;
            let (position, power) = match how.mode {
                RopeMode::Normal | RopeMode::NeoX => (0, pair),
                RopeMode::IMRope => (if inside < 3 * sections[turn] { turn } else { 3 }, pair),
                RopeMode::MRope => (section, pair),
                _ => (section, inside - start_of(section)),
            };
            (first, second, position, power)
        })
        .collect()
}

/// `YaRN`: the angle, between those of the scaled and the true position, and the magnitude.
fn yarn(angle: f64, pair: usize, how: &RopeOptions<'_>) -> (f64, f64) {
    let scaled = angle * f64::from(how.freq_scale);
    if how.ext_factor == 0.0 {
        return (scaled, 1.0);
    }
    let (low, high) = mixed(how);
    let ramp = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = ramp * f64::from(how.ext_factor);
    (scaled * (1.0 - mix) + angle * mix, 1.0 + 0.1 * (1.0 / f64::from(how.freq_scale)).ln())
}

/// The pairs between which the mix changes.
pub fn mixed(how: &RopeOptions<'_>) -> (f64, f64) {
    let n = f64::from(how.n_dims);
    // The pair that makes this many rotations within the training context.
    let turning = |times: f32| {
        let wave = f64::from(how.n_ctx_orig) / (f64::from(times) * 2.0 * std::f64::consts::PI);
        n * wave.ln() / (2.0 * f64::from(how.freq_base).ln())
    };
    (turning(how.beta_fast).floor().max(0.0), turning(how.beta_slow).ceil().min(n - 1.0))
}

/// Reference: rotates pairs of each row by position times `base^(-2i / n_dims)`; backwards for gradients.
pub fn turned(x: &Array, positions: &[f64], how: &RopeOptions<'_>, factors: Option<&[f64]>, back: bool) -> Array {
    let tokens = x.ne[2];
    let mut y = x.clone();
    for (number, (first, second, position, power)) in pairs(how, x.ne[0]).into_iter().enumerate() {
        let frequency = f64::from(how.freq_base).powf(-2.0 * power as f64 / f64::from(how.n_dims));
        for i2 in 0..tokens {
            let angle = positions[position * tokens + i2] * frequency / factors.map_or(1.0, |f| f[number]);
            let (angle, growth) = yarn(angle, number, how);
            let (sin, cos) = (if back { -angle } else { angle }).sin_cos();
            let factor = growth * f64::from(how.attn_factor);
            for i3 in 0..x.ne[3] {
                for i1 in 0..x.ne[1] {
                    let (to_a, to_b) = (y.position([first, i1, i2, i3]), y.position([second, i1, i2, i3]));
                    let (a, b) = (x.data[to_a], x.data[to_b]);
                    y.data[to_a] = (a * cos - b * sin) * factor;
                    y.data[to_b] = (a * sin + b * cos) * factor;
                }
            }
        }
    }
    y
}

/// Whether each token has four positions.
fn several(mode: RopeMode) -> bool {
    !matches!(mode, RopeMode::Normal | RopeMode::NeoX)
}

/// Options without factors, which threads may share.
#[derive(Clone, Copy)]
struct Plain {
    n_dims: i32,
    mode: RopeMode,
    sections: [i32; 4],
    ints: [i32; 2],
    floats: [f32; 6],
}

impl Plain {
    fn of(how: &RopeOptions<'_>) -> Self {
        Self {
            n_dims: how.n_dims,
            mode: how.mode,
            sections: how.sections,
            ints: [how.offset, how.n_ctx_orig],
            floats: [how.freq_base, how.freq_scale, how.ext_factor, how.attn_factor, how.beta_fast, how.beta_slow],
        }
    }

    fn options(self, factors: Option<Tensor<'_>>) -> RopeOptions<'_> {
        let [offset, n_ctx_orig] = self.ints;
        let [base, scale, ext, attn, fast, slow] = self.floats;
        RopeOptions::new(self.n_dims, self.mode)
            .with_sections(self.sections)
            .with_offset(offset)
            .with_n_ctx_orig(n_ctx_orig)
            .with_freq_base(base)
            .with_freq_scale(scale)
            .with_ext_factor(ext)
            .with_attn_factor(attn)
            .with_beta_fast(fast)
            .with_beta_slow(slow)
            .with_freq_factors(factors)
    }
}

/// Operands of a rotation: values, positions, maybe factors. It turns backwards for gradients.
fn rotation(operands: impl IntoIterator<Item = Operand>, how: RopeOptions<'static>, back: bool) -> Case {
    let operands: Vec<_> = operands.into_iter().collect();
    let (factors, plain) = (operands.len() > 2, Plain::of(&how));
    let case = Case::new(operands, move |c, t| {
        let how = plain.options(factors.then(|| t[2]));
        if back { c.rope_ext_back(t[0], t[1], how) } else { c.rope_ext(t[0], t[1], how) }
    });
    let case = case.in_place(move |c, t| {
        let how = plain.options(factors.then(|| t[2]));
        c.rope_ext_inplace(t[0], t[1], how)
    });
    let case = if back { Case { in_place: None, ..case } } else { case };
    turning(case, plain, back)
}

/// What a rotation computes.
fn turning(case: Case, plain: Plain, back: bool) -> Case {
    let reference =
        move |x: &[Array]| turned(&x[0], &x[1].data, &plain.options(None), x.get(2).map(|f| f.data.as_slice()), back);
    case.with(plain.options(None)).is(reference).laid(ROWS).spreads(move |k| {
        let how = plain.options(None);
        let fastest = f64::from(how.freq_base).powi(-2).max(1.0) * f64::from(how.freq_scale).abs().max(1.0);
        let (least, off) = k
            .get(2)
            .map_or((1.0, 0.0), |f| (f.values.data.iter().fold(f64::MAX, |m, x| m.min(x.abs())) - f.error, f.error));
        let angle = fastest * k[1].largest() / least.max(0.0) * (1e-5 + off / least.max(0.0));
        let factor = f64::from(how.attn_factor).abs();
        // Which pairs are mixed turns on rounding. An angle that isn't known may be none in 32 bits, whatever the factor is.
        if how.ext_factor == 0.0 && angle < 1.0 {
            factor * 2.0 * (k[0].error + k[0].largest() * (angle + 1e-6))
        } else {
            f64::INFINITY
        }
    })
}

/// A rotation without options.
fn simple(operands: [Operand; 2], n: i32, mode: RopeMode) -> Case {
    let case = Case::new(operands, move |c, t| c.rope(t[0], t[1], n, mode));
    turning(
        case.in_place(move |c, t| c.rope_inplace(t[0], t[1], n, mode)),
        Plain::of(&RopeOptions::new(n, mode)),
        false,
    )
}

/// The first operand, whose rows have pairs, and a number of dimensions of it to rotate.
fn paired(s: &mut dyn Source) -> (Operand, i32) {
    let x = s.pick(&[F32, F16], &|ne| ne[0] % 2 == 0);
    let row = i32::try_from(x.shape()[0]).unwrap_or(2);
    let n = s.int(1, (row / 2).max(1));
    (x, if s.chance(24) { n } else { n.wrapping_mul(2) })
}

fn positions(x: &Operand, mode: RopeMode) -> Operand {
    below(I32, [x.shape()[2].saturating_mul(if several(mode) { 4 } else { 1 }), 1, 1, 1], 100)
}

fn drawn_simple(s: &mut dyn Source) -> Case {
    let ((x, n), mode) = (paired(s), s.one(&MODES[..2]));
    let positions = positions(&x, mode);
    simple([x, positions], n, mode)
}

fn drawn(s: &mut dyn Source, back: bool) -> Case {
    let (x, n) = paired(s);
    let mut how = RopeOptions::new(n, s.one(&MODES));
    if several(how.mode) || s.chance(24) {
        let most = (n / 4).clamp(1, 100);
        how = how.with_sections([s.int(0, most), s.int(1, most), s.int(0, most), s.int(0, most)]);
    }
    if how.mode == RopeMode::Vision && !s.chance(24) {
        let n = i32::try_from(x.shape()[0] / 2).unwrap_or(2);
        let first = s.int(0, n);
        let sections = [first, n.wrapping_sub(first), how.sections[2].min(first), 0];
        how = RopeOptions::new(n, how.mode).with_sections(sections);
    } else if s.chance(4) {
        how = how.with_offset(s.int(0, 2).wrapping_mul(2));
    }
    let factors = s.chance(3).then(|| sized(F32, [x.shape()[0] / 2, 1, 1, 1]));
    if s.bool() {
        how = how
            .with_n_ctx_orig(s.int(0, 4096))
            .with_freq_base(s.float(1.0, 1e5))
            .with_freq_scale(s.float(0.1, 2.0))
            .with_ext_factor(if s.bool() { s.float(0.0, 1.0) } else { 0.0 })
            .with_attn_factor(s.float(0.5, 2.0))
            .with_beta_fast(s.float(1.0, 64.0))
            .with_beta_slow(s.float(0.5, 2.0));
    }
    let positions = positions(&x, how.mode);
    rotation([x, positions].into_iter().chain(factors), how, back)
}

/// All modes, each with distinctive options, for rows of 16.
pub fn modes() -> Vec<RopeOptions<'static>> {
    let with = |n_dims, mode, sections, offset| {
        RopeOptions::new(n_dims, mode)
            .with_sections(sections)
            .with_offset(offset)
            .with_freq_base(100.0)
            .with_freq_scale(0.5)
            .with_attn_factor(1.25)
    };
    vec![
        with(6, RopeMode::Normal, [0; 4], 4),
        with(6, RopeMode::NeoX, [0; 4], 10),
        with(16, RopeMode::MRope, [3, 2, 2, 1], 0),
        with(12, RopeMode::MRope, [1, 2, 1, 0], 2),
        with(16, RopeMode::MRope, [0, 8, 0, 0], 0),
        with(12, RopeMode::MRope, [1, 0, 2, 3], 0),
        with(16, RopeMode::IMRope, [3, 3, 2, 0], 0),
        with(12, RopeMode::IMRope, [2, 1, 1, 2], 4),
        with(8, RopeMode::Vision, [4, 4, 4, 4], 0),
        with(8, RopeMode::Vision, [2, 6, 2, 1], 0),
        with(8, RopeMode::Vision, [5, 4, 0, 0], 0),
        with(8, RopeMode::Vision, [0, 8, 0, 0], 0),
    ]
}

/// As many positions as the mode takes, different in each dimension.
pub fn positions_of(how: &RopeOptions<'_>, tokens: i32) -> Vec<i32> {
    let dimensions = if several(how.mode) { 4 } else { 1 };
    let places = [0, 1, 2, 7, 30];
    (0..dimensions * tokens).map(|i| places[(i % tokens) as usize] + 3 * (i / tokens)).collect()
}

/// Some modes with rows of 64, and all with rows of 16.
fn extended(name: &'static str, op: &'static str, back: bool) -> Row {
    let all =
        MODES[..4].iter().flat_map(|&m| [F32, F16].into_iter().flat_map(move |d| [false, true].map(|f| (m, d, f))));
    let row = Row::new(name, op).all(all, |row, (mode, dtype, factors)| {
        let n = if several(mode) { 4 } else { 1 };
        let positions = ints([7 * n], (0..7 * n as i32).map(|i| i * 3 % 19));
        let factors = factors.then(|| f32([32]).within(0.8, 1.2).still());
        let how = RopeOptions::new(32, mode).with_sections([if several(mode) { 4 } else { 0 }; 4]);
        row.with(rotation([of(dtype, [64, 5, 7]), positions].into_iter().chain(factors), how, back))
    });
    let all = [F32, F16].into_iter().flat_map(|dtype| {
        modes().into_iter().zip([false, true].into_iter().cycle()).map(move |(how, f)| (dtype, how, f))
    });
    row.all(all, |row, (dtype, how, factors)| {
        let positions = positions_of(&how, 5);
        let operands = [of(dtype, [16, 3, 5, 2]).within(-1.0, 1.0), ints([positions.len()], positions)];
        let factors = factors.then(|| f32([8]).within(0.5, 2.0).still());
        row.with(rotation(operands.into_iter().chain(factors), how, back))
    })
}

/// Options that only rotations forward were tested with.
fn options(row: Row) -> Row {
    let all = [F32, F16].into_iter().flat_map(|dtype| MODES[..2].iter().map(move |&mode| (dtype, mode)));
    let row = row.all(all, |row, (dtype, mode)| {
        row.all([(8, false), (4, true), (2, false), (8, true)], |row, (n_dims, factors)| {
            let how = RopeOptions::new(n_dims, mode).with_freq_base(1000.0).with_freq_scale(0.5).with_attn_factor(1.25);
            let operands = [of(dtype, [8, 3, 5, 2]).within(-1.0, 1.0), ints([5], [0, 1, 2, 7, 100])];
            let factors = factors.then(|| f32([6]).within(0.5, 2.0).still());
            row.with(rotation(operands.into_iter().chain(factors), how, false))
        })
    });
    let yarn = MODES[..2].iter().flat_map(|&mode| [(1.0, 0.25), (0.5, 0.5), (1.0, 1.0)].map(|of| (mode, of)));
    let row = row.all(yarn, |row, (mode, (ext_factor, freq_scale))| {
        let how = RopeOptions::new(64, mode).with_n_ctx_orig(2048).with_ext_factor(ext_factor);
        let operands = [f32([64, 2, 3]).within(-1.0, 1.0), ints([3], [0, 10, 500])];
        // Angles of several hundred, in 32 bits.
        row.with(rotation(operands, how.with_freq_scale(freq_scale), false).off(3e-4))
    });
    let yarn = RopeOptions::new(64, RopeMode::NeoX)
        .with_n_ctx_orig(512)
        .with_freq_scale(0.25)
        .with_ext_factor(1.0)
        .with_attn_factor(1.1);
    let operands = [f32([64, 4, 9]), ints([9], (0..).map(|i| i * 30)), f32([32]).within(0.1, 2.1).still()];
    let row = row.with(rotation(operands, yarn, false).off(1e-3)).must();
    row.all([(RopeMode::MRope, [8, 12, 12, 0]), (RopeMode::Vision, [20, 12, 0, 0])], |row, (mode, sections)| {
        let how = RopeOptions::new(32, mode).with_sections(sections);
        row.with(rotation([f32([64, 4, 9]), ints([36], 0..)], how, false))
    })
}

pub(super) fn rows() -> Vec<Row> {
    let two = MODES[..2].iter().flat_map(|&m| [64, 32].map(|n| (m, n)));
    let row = Row::new("rope", "ROPE").all(two, |row, (mode, n)| {
        row.all([F32, F16], |row, dtype| {
            row.with(simple([of(dtype, [64, 4, 9]), ints([9], (0..).map(|i| i * 3))], n, mode)).must()
        })
    });
    let row = row.all(&MODES[..2], |row, &mode| {
        let operands = [f32([6, 2, 4]).within(-1.0, 1.0), ints([4], [3, -2, 0, 9])];
        row.with(simple(operands, 6, mode).off(1e-5)).with(simple(
            [f32([16, 3, 5, 2]), ints([5], [0, 1, 2, 7, 30])],
            8,
            mode,
        ))
    });
    vec![
        row.drawn(drawn_simple).in_place("rope_inplace", |c, t| c.rope_inplace(t[0], t[1], 2, RopeMode::NeoX)).learns(),
        options(extended("rope_ext", "ROPE", false))
            .drawn(|s| drawn(s, false))
            .in_place("rope_ext_inplace", |c, t| c.rope_ext_inplace(t[0], t[1], RopeOptions::new(2, RopeMode::NeoX))),
        extended("rope_ext_back", "ROPE_BACK", true).drawn(|s| drawn(s, true)).no_meta(),
    ]
}
