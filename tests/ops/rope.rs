//! Rotary position embedding.

use ggml::ops::{RopeMode, RopeOptions};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, assert_in_place, ne, precision, refused, weighted};

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
fn mixed(how: &RopeOptions<'_>) -> (f64, f64) {
    let n = f64::from(how.n_dims);
    // The pair that makes this many rotations within the training context.
    let turning = |times: f32| {
        let wave = f64::from(how.n_ctx_orig) / (f64::from(times) * 2.0 * std::f64::consts::PI);
        n * wave.ln() / (2.0 * f64::from(how.freq_base).ln())
    };
    (turning(how.beta_fast).floor().max(0.0), turning(how.beta_slow).ceil().min(n - 1.0))
}

/// Reference: rotates pairs of each row by position times `base^(-2i / n_dims)`; backwards for gradients.
fn turned(x: &Array, positions: &[f64], how: &RopeOptions<'_>, factors: Option<&[f64]>, back: bool) -> Array {
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

fn rotated(x: &Array, positions: &[f64], how: &RopeOptions<'_>, factors: Option<&[f64]>) -> Array {
    turned(x, positions, how, factors, false)
}

#[test]
fn rope_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16] {
        for layout in Layout::ROWS {
            for mode in [RopeMode::Normal, RopeMode::NeoX] {
                for (n_dims, with_factors) in [(8, false), (4, true), (2, false), (8, true)] {
                    let ctx = Context::new();
                    let lab = Lab::new(&ctx);
                    let (x, values) = lab.operand(&Array::sample(ne([8, 3, 5, 2]), 4, -1.0, 1.0), dtype, layout);
                    let positions = [0.0, 1.0, 2.0, 7.0, 100.0];
                    let of_positions = Array { ne: ne([5]), data: positions.to_vec() };
                    let (p, _) = lab.operand(&of_positions, DType::I32, Layout::Plain);
                    let (f, factors) = lab.plain(&Array::sample(ne([6]), 5, 0.5, 2.0));
                    let how = RopeOptions::new(n_dims, mode)
                        .with_freq_base(1000.0)
                        .with_freq_scale(0.5)
                        .with_attn_factor(1.25)
                        .with_freq_factors(with_factors.then_some(f));
                    let want = rotated(&values, &positions, &how, with_factors.then_some(&factors.data));
                    let context = format!("{dtype} {layout:?} {mode:?} {n_dims} {with_factors}");
                    let got = lab.run(ctx.rope_ext(x, p, how).unwrap()).unwrap();
                    assert_close(&got, &want, precision(dtype), &context);
                }
            }
        }
    }
}

#[test]
fn rope_equals_rope_ext_without_options() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([6, 2, 4]), 4, -1.0, 1.0));
    let positions = [3.0, -2.0, 0.0, 9.0];
    let (p, _) = lab.operand(&Array { ne: ne([4]), data: positions.to_vec() }, DType::I32, Layout::Plain);
    for mode in [RopeMode::Normal, RopeMode::NeoX] {
        let want = rotated(&values, &positions, &RopeOptions::new(6, mode), None);
        assert_close(&lab.run(ctx.rope(x, p, 6, mode).unwrap()).unwrap(), &want, 1e-5, &format!("{mode:?}"));
    }
}

#[test]
fn h13_rope_refuses_sizes_for_which_its_kernel_does_not_end() {
    let ctx = Context::new();
    let positions = ctx.input("p", DType::I32, [4]).unwrap();
    let x = ctx.input("x", DType::F32, [8, 2, 4]).unwrap();
    for n_dims in [0, -2, 1, 3, 10, i32::MIN, i32::MAX] {
        for mode in [RopeMode::Normal, RopeMode::NeoX] {
            refused!(Param, ctx.rope(x, positions, n_dims, mode), "{n_dims}");
        }
    }
    let odd = ctx.input("odd", DType::F32, [7, 2, 4]).unwrap();
    refused!(Shape, ctx.rope(odd, positions, 6, RopeMode::Normal), "a last element without a partner");
    // One factor per pair of the row, not only per rotated pair.
    let few = ctx.input("few", DType::F32, [3]).unwrap();
    let how = RopeOptions::new(4, RopeMode::Normal).with_freq_factors(few);
    refused!(Shape, ctx.rope_ext(x, positions, how));
}

#[test]
fn rope_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
    let x = of(DType::F32, [8, 2, 4]);
    let positions = of(DType::I32, [4, 1, 1]);
    let rope = |x, p| ctx.rope(x, p, 8, RopeMode::Normal);
    refused!(DType, rope(of(DType::BF16, [8, 2, 4]), positions));
    refused!(DType, rope(of(DType::I32, [8, 2, 4]), positions));
    refused!(DType, rope(x, of(DType::F32, [4, 1, 1])));
    refused!(DType, rope(x, of(DType::I64, [4, 1, 1])));
    for shape in [[3, 1, 1], [5, 1, 1], [4, 2, 1], [1, 4, 1]] {
        refused!(Shape, rope(x, of(DType::I32, shape)), "{shape:?}");
    }
    refused!(Shape, rope(ctx.transpose(of(DType::F32, [2, 8, 4])).unwrap(), positions));
    let column = ctx.transpose(of(DType::I32, [2, 4, 1])).unwrap();
    let scattered = ctx.permute(ctx.view(column, [4], [16, 16, 16], 0).unwrap(), [0, 1, 2, 3]).unwrap();
    assert!(rope(x, scattered).is_ok(), "a 1-d view is contiguous");
    let strided =
        ctx.permute(ctx.view(of(DType::I32, [2, 4, 1]), [1, 4], [8, 32, 32], 0).unwrap(), [1, 0, 2, 3]).unwrap();
    refused!(Shape, rope(x, strided), "positions with gaps");
    let with = |how| ctx.rope_ext(x, positions, how);
    let good = RopeOptions::new(8, RopeMode::Normal);
    refused!(Param, with(good.with_n_ctx_orig(-1)));
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        refused!(Param, with(good.with_freq_base(value)));
        refused!(Param, with(good.with_freq_scale(value)));
        refused!(Param, with(good.with_ext_factor(value)));
        refused!(Param, with(good.with_attn_factor(value)));
        refused!(Param, with(good.with_beta_fast(value)));
        refused!(Param, with(good.with_beta_slow(value)));
    }
    refused!(Param, with(good.with_freq_base(0.0)));
    refused!(Param, with(good.with_freq_base(-1.0)));
    refused!(DType, with(good.with_freq_factors(of(DType::F16, [4, 1, 1]))));
    refused!(Shape, with(good.with_freq_factors(x)), "factors that are no vector");
}

#[test]
fn rope_yarn_equals_plain_rust() {
    for mode in [RopeMode::Normal, RopeMode::NeoX] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.plain(&Array::sample(ne([64, 2, 3]), 4, -1.0, 1.0));
        let positions = Array { ne: ne([3]), data: vec![0.0, 10.0, 500.0] };
        let (p, _) = lab.operand(&positions, DType::I32, Layout::Plain);
        for (ext_factor, freq_scale) in [(1.0, 0.25), (0.5, 0.5), (1.0, 1.0)] {
            let how = RopeOptions::new(64, mode)
                .with_n_ctx_orig(2048)
                .with_ext_factor(ext_factor)
                .with_freq_scale(freq_scale);
            let got = lab.run(ctx.rope_ext(x, p, how).unwrap()).unwrap();
            let ends = how.yarn_corr_dims().map(f64::from);
            assert_eq!((ends[0], ends[1]), mixed(&how), "{how:?}");
            // Angles of several hundred, in 32 bits.
            assert_close(&got, &rotated(&values, &positions.data, &how, None), 3e-4, &format!("{how:?}"));
        }
    }
}

/// All modes, each with distinctive options, for rows of 16.
fn modes() -> Vec<RopeOptions<'static>> {
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
fn positions_of(how: &RopeOptions<'_>, tokens: usize) -> Array {
    let dimensions = if matches!(how.mode, RopeMode::Normal | RopeMode::NeoX) { 1 } else { 4 };
    let places = [0.0, 1.0, 2.0, 7.0, 30.0];
    Array::of(ne([dimensions * tokens]), |[i, ..]| places[i % tokens] + (3 * (i / tokens)) as f64)
}

#[test]
fn rope_modes_equal_plain_rust() {
    let shape = ne([16, 3, 5, 2]);
    for (dtype, layout, threads) in [
        (DType::F32, Layout::Plain, 1),
        (DType::F32, Layout::Gaps, 3),
        (DType::F32, Layout::Swapped, 2),
        (DType::F16, Layout::Plain, 2),
        (DType::F16, Layout::Gaps, 1),
    ] {
        for (i, how) in modes().into_iter().enumerate() {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, values) = lab.operand(&Array::sample(shape, 4, -1.0, 1.0), dtype, layout);
            let (p, positions) = lab.operand(&positions_of(&how, 5), DType::I32, Layout::Plain);
            let (f, factors) = lab.plain(&Array::sample(ne([8]), 5, 0.5, 2.0));
            let how = how.with_freq_factors((i % 2 == 1).then_some(f));
            let factors = how.freq_factors.map(|_| factors.data.as_slice());
            let outputs = [ctx.rope_ext(x, p, how).unwrap(), ctx.rope_ext_back(x, p, how).unwrap()];
            let got = lab.run_all(&outputs).unwrap();
            for (got, back) in got.iter().zip([false, true]) {
                let want = turned(&values, &positions.data, &how, factors, back);
                assert_close(got, &want, precision(dtype), &format!("{dtype} {layout:?} {how:?} {back}"));
            }
        }
    }
}

/// A rotation is linear, so its gradient has this dot product with any operand.
#[test]
fn rope_ext_back_is_the_gradient() {
    let shape = ne([16, 2, 3]);
    let (x, grad) = (Array::sample(shape, 4, -1.0, 1.0), Array::sample(shape, 5, -1.0, 1.0));
    for how in modes() {
        let positions = positions_of(&how, 3);
        let forward = weighted(&turned(&x, &positions.data, &how, None, false), &grad);
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (p, _) = lab.operand(&positions, DType::I32, Layout::Plain);
        let (g, _) = lab.plain(&grad);
        let back = lab.run(ctx.rope_ext_back(g, p, how).unwrap()).unwrap();
        assert!((weighted(&back, &x) - forward).abs() < 1e-4, "{how:?}");
    }
}

#[test]
fn rope_inplace_equals_plain_rust() {
    let values = Array::sample(ne([16, 3, 5, 2]), 4, -1.0, 1.0);
    for how in modes() {
        let positions = positions_of(&how, 5);
        let want = rotated(&values, &positions.data, &how, None);
        assert_in_place("rope_ext_inplace", &values, &want, 2e-5, |lab, a| {
            lab.ctx.rope_ext_inplace(a, lab.operand(&positions, DType::I32, Layout::Plain).0, how)
        });
    }
    let how = RopeOptions::new(8, RopeMode::Normal);
    let positions = positions_of(&how, 5);
    assert_in_place("rope_inplace", &values, &rotated(&values, &positions.data, &how, None), 2e-5, |lab, a| {
        lab.ctx.rope_inplace(a, lab.operand(&positions, DType::I32, Layout::Plain).0, 8, RopeMode::Normal)
    });
    // Factors that share memory with the target.
    let ctx = Context::new();
    let a = ctx.dup(ctx.input("x", DType::F32, [8, 4]).unwrap()).unwrap();
    let p = ctx.input("p", DType::I32, [1]).unwrap();
    let how = RopeOptions::new(8, RopeMode::Normal).with_freq_factors(ctx.view(a, [4], [16, 16, 16], 32).unwrap());
    refused!(Shape, ctx.rope_ext_inplace(a, p, how));
    assert!(ctx.rope_ext(a, p, how).is_ok());
}

#[test]
fn h13_rope_refuses_unsuitable_sections() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16, 2, 4]).unwrap();
    let four = ctx.input("p", DType::I32, [16]).unwrap();
    let one = ctx.input("p", DType::I32, [4]).unwrap();
    let with =
        |mode, n_dims, sections, offset| RopeOptions::new(n_dims, mode).with_sections(sections).with_offset(offset);
    for mode in [RopeMode::MRope, RopeMode::IMRope, RopeMode::Vision] {
        for sections in [
            [0; 4],
            [0, 0, 0, 8],
            [-1, 2, 4, 4],
            [4, 4, 4, -4],
            [1, -1, 0, 0],
            [8, 8, 1, 0],
            [i32::MAX, i32::MAX, 2, 0],
            [i32::MIN, i32::MIN, 8, 0],
        ] {
            refused!(Param, ctx.rope_ext(x, four, with(mode, 8, sections, 0)), "{mode:?} {sections:?}");
            refused!(Param, ctx.rope_ext_back(x, four, with(mode, 8, sections, 0)), "{mode:?} {sections:?}");
        }
        assert!(ctx.rope_ext(x, four, with(mode, 8, [4, 4, 4, 4], 0)).is_ok(), "{mode:?}");
        refused!(Shape, ctx.rope_ext(x, one, with(mode, 8, [4, 4, 0, 0], 0)), "one position to a token");
    }
    for mode in [RopeMode::Normal, RopeMode::NeoX] {
        refused!(Param, ctx.rope_ext(x, one, with(mode, 8, [4, 4, 0, 0], 0)), "sections for nothing");
        refused!(Shape, ctx.rope_ext(x, four, with(mode, 8, [0; 4], 0)), "four positions to a token");
    }
    for n_dims in [4, 6, 10, 16] {
        refused!(Param, ctx.rope_ext(x, four, with(RopeMode::Vision, n_dims, [4; 4], 0)), "not half: {n_dims}");
    }
    refused!(Param, ctx.rope_ext(x, four, with(RopeMode::Vision, 8, [4; 4], 2)), "no offset in this mode");
    for sections in [[4, 3, 4, 4], [0, 0, 8, 8], [7, 0, 1, 0]] {
        refused!(Param, ctx.rope_ext(x, four, with(RopeMode::Vision, 8, sections, 0)), "too few: {sections:?}");
    }
    for offset in [-2, 1, 3, 10, 16, i32::MIN, i32::MAX, i32::MAX - 1] {
        for (p, mode, sections) in [(one, RopeMode::NeoX, [0; 4]), (four, RopeMode::MRope, [4; 4])] {
            refused!(Param, ctx.rope_ext(x, p, with(mode, 8, sections, offset)), "{offset}");
            refused!(Param, ctx.rope_ext_back(x, p, with(mode, 8, sections, offset)), "{offset}");
        }
    }
    refused!(Param, ctx.rope(x, four, 8, RopeMode::MRope), "sections are needed");
}
