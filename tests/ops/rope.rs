//! Rotary position embedding.

use ggml::prelude::*;
use ggml::{Rope, RopeMode};

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

/// Rotates pairs of the first `n_dims` elements of each row: pair `i` by the position times `base^(-2i / n_dims)`.
fn rotated(x: &Array, positions: &[f64], how: &Rope<'_>, factors: Option<&[f64]>) -> Array {
    let n = how.n_dims as usize;
    let mut y = x.clone();
    for i3 in 0..x.ne[3] {
        for (i2, position) in positions.iter().enumerate() {
            for i1 in 0..x.ne[1] {
                for pair in 0..n / 2 {
                    let frequency = f64::from(how.freq_base).powf(-2.0 * pair as f64 / n as f64);
                    let angle = position * f64::from(how.freq_scale) * frequency / factors.map_or(1.0, |f| f[pair]);
                    let (sin, cos) = angle.sin_cos();
                    let (first, second) = match how.mode {
                        RopeMode::Normal => (2 * pair, 2 * pair + 1),
                        _ => (pair, pair + n / 2),
                    };
                    let (a, b) = (x.at([first, i1, i2, i3]), x.at([second, i1, i2, i3]));
                    let factor = f64::from(how.attn_factor);
                    let (to_a, to_b) = (y.position([first, i1, i2, i3]), y.position([second, i1, i2, i3]));
                    y.data[to_a] = (a * cos - b * sin) * factor;
                    y.data[to_b] = (a * sin + b * cos) * factor;
                }
            }
        }
    }
    y
}

#[test]
fn rotations_are_those_of_plain_rust() {
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
                    let mut how = Rope::new(n_dims, mode);
                    (how.freq_base, how.freq_scale, how.attn_factor) = (1000.0, 0.5, 1.25);
                    how.freq_factors = with_factors.then_some(f);
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
fn rope_is_rope_ext_without_options() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([6, 2, 4]), 4, -1.0, 1.0));
    let positions = [3.0, -2.0, 0.0, 9.0];
    let (p, _) = lab.operand(&Array { ne: ne([4]), data: positions.to_vec() }, DType::I32, Layout::Plain);
    for mode in [RopeMode::Normal, RopeMode::NeoX] {
        let want = rotated(&values, &positions, &Rope::new(6, mode), None);
        assert_close(&lab.run(ctx.rope(x, p, 6, mode).unwrap()).unwrap(), &want, 1e-5, &format!("{mode:?}"));
    }
}

#[test]
fn h13_sizes_for_which_the_kernel_does_not_end_are_refused() {
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
    // A factor for each pair of the row, not only of those that are rotated.
    let few = ctx.input("few", DType::F32, [3]).unwrap();
    let mut how = Rope::new(4, RopeMode::Normal);
    how.freq_factors = Some(few);
    refused!(Shape, ctx.rope_ext(x, positions, how));
}

#[test]
fn rotations_refuse_what_does_not_fit() {
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
    assert!(rope(x, scattered).is_ok(), "a view of one dimension lies side by side");
    let strided =
        ctx.permute(ctx.view(of(DType::I32, [2, 4, 1]), [1, 4], [8, 32, 32], 0).unwrap(), [1, 0, 2, 3]).unwrap();
    refused!(Shape, rope(x, strided), "positions with gaps");
    let change = |f: &dyn Fn(&mut Rope<'_>)| {
        let mut how = Rope::new(8, RopeMode::Normal);
        f(&mut how);
        ctx.rope_ext(x, positions, how)
    };
    refused!(Param, change(&|h| h.n_ctx_orig = -1));
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        refused!(Param, change(&|h| h.freq_base = value));
        refused!(Param, change(&|h| h.freq_scale = value));
        refused!(Param, change(&|h| h.ext_factor = value));
        refused!(Param, change(&|h| h.attn_factor = value));
        refused!(Param, change(&|h| h.beta_fast = value));
        refused!(Param, change(&|h| h.beta_slow = value));
    }
    refused!(Param, change(&|h| h.freq_base = 0.0));
    refused!(Param, change(&|h| h.freq_base = -1.0));
    let half = of(DType::F16, [4, 1, 1]);
    let mut how = Rope::new(8, RopeMode::Normal);
    how.freq_factors = Some(half);
    refused!(DType, ctx.rope_ext(x, positions, how));
}

/// `YaRN` only has to be finite and to leave position 0 scaled but not turned.
#[test]
fn yarn_mixes_without_losing_the_first_position() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([64, 1, 3]), 4, -1.0, 1.0));
    let (p, _) = lab.operand(&Array { ne: ne([3]), data: vec![0.0, 10.0, 5000.0] }, DType::I32, Layout::Plain);
    let mut how = Rope::new(64, RopeMode::NeoX);
    (how.n_ctx_orig, how.ext_factor, how.freq_scale) = (2048, 1.0, 0.25);
    let got = lab.run(ctx.rope_ext(x, p, how).unwrap()).unwrap();
    let growth = 1.0 + 0.1 * 4.0_f64.ln();
    for (i, (g, x)) in got.data.iter().zip(&values.data).take(64).enumerate() {
        assert!((g - x * growth).abs() < 1e-5, "{i}");
    }
    // Turning keeps lengths.
    for token in 1..3 {
        let length = |a: &Array| a.data[64 * token..64 * (token + 1)].iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!((length(&got) - growth * length(&values)).abs() < 1e-4, "{token}");
    }
}
