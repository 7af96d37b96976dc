//! Masks, which write infinity and may write it in place.

use ggml::Result;
use ggml::prelude::*;

use crate::support::{Array, Lab, assert_close, assert_in_place, ne, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>, i32) -> Result<Tensor<'c>>;

/// A method, its in-place variant, and the value for the future.
const FUTURES: &[(&str, Build, Build, f64)] = &[
    ("inf", |c, a, n| c.diag_mask_inf(a, n), |c, a, n| c.diag_mask_inf_inplace(a, n), f64::NEG_INFINITY),
    ("zero", |c, a, n| c.diag_mask_zero(a, n), |c, a, n| c.diag_mask_zero_inplace(a, n), 0.0),
];

#[test]
fn diag_mask_hides_later_positions() {
    for &(name, build, in_place, value) in FUTURES {
        for n_past in [0, 2, 9] {
            let sample = Array::sample(ne([6, 4, 2, 2]), 4, -2.0, 2.0);
            let masked = |x: &Array| Array::of(x.ne, |i| if i[0] > i[1] + n_past as usize { value } else { x.at(i) });
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (x, values) = lab.plain(&sample);
                let got = lab.run_all(&[build(&ctx, x, n_past).unwrap(), x]).unwrap();
                assert_close(&got[0], &masked(&values), 0.0, &format!("{name} {n_past}"));
                assert_close(&got[1], &values, 0.0, "the operand keeps its value");
            }
            assert_in_place(name, &sample, &masked(&sample), 1e-6, |lab, a| in_place(lab.ctx, a, n_past));
        }
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [6, 4]).unwrap();
        let made = ctx.dup(x).unwrap();
        let half = ctx.input("h", DType::F16, [6, 4]).unwrap();
        for (build, x) in [(build, x), (in_place, made)] {
            for n_past in [-1, i32::MIN, i32::MAX, i32::MAX - 3] {
                refused!(Param, build(&ctx, x, n_past), "{n_past}");
            }
            refused!(Shape, build(&ctx, ctx.transpose(x).unwrap(), 0));
            refused!(DType, build(&ctx, ctx.cast(half, DType::F16).unwrap(), 0));
        }
    }
}
