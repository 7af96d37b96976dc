//! Rotary position embedding. What it computes is in the table.

use ggml::ops::{RopeMode, RopeOptions};
use ggml::prelude::*;

use testkit::cases::rope::{mixed, modes, positions_of, turned};

use crate::support::{Array, Lab, Layout, ne, refused, weighted};

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
fn rope_mixes_the_pairs_of_yarn() {
    for (ext_factor, freq_scale) in [(1.0, 0.25), (0.5, 0.5), (1.0, 1.0)] {
        let how = RopeOptions::new(64, RopeMode::NeoX).with_n_ctx_orig(2048).with_ext_factor(ext_factor);
        let how = how.with_freq_scale(freq_scale);
        let ends = how.yarn_corr_dims().map(f64::from);
        assert_eq!((ends[0], ends[1]), mixed(&how), "{how:?}");
    }
}

/// A rotation is linear, so its gradient has this dot product with any operand.
#[test]
fn rope_ext_back_is_the_gradient() {
    let shape = ne([16, 2, 3]);
    let (x, grad) = (Array::sample(shape, 4, -1.0, 1.0), Array::sample(shape, 5, -1.0, 1.0));
    for how in modes() {
        let data: Vec<f64> = positions_of(&how, 3).into_iter().map(f64::from).collect();
        let positions = Array { ne: ne([data.len()]), data };
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
fn rope_ext_inplace_refuses_factors_inside_its_target() {
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
