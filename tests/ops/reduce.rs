//! Reductions and norms of rows.

use ggml::Result;
use ggml::prelude::*;

use testkit::cases::norm::{EPS, by_root_of_mean_square};

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// A row of zeros is divided by `eps`, not by zero.
#[test]
fn norms_of_zero_rows_are_zero() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::of(ne([8, 2]), |_| 0.0));
    let outputs = [ctx.norm(x, EPS), ctx.rms_norm(x, EPS), ctx.l2_norm(x, EPS)].map(Result::unwrap);
    for got in lab.run_all(&outputs).unwrap() {
        assert_close(&got, &values, 0.0, "zeros");
    }
}

/// The CPU fuses `rms_norm` with the product after it, but must not if the norm has other uses.
#[test]
fn rms_norm_fused_with_mul_equals_plain_rust() {
    for weights in [ne([16]), ne([16, 3]), ne([16, 1, 2]), ne([1]), ne([8, 3])] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.operand(&Array::sample(ne([16, 3, 2]), 4, -2.0, 3.0), DType::F32, Layout::Gaps);
        let (w, rw) = lab.plain(&Array::sample(weights, 5, -2.0, 3.0));
        let norm = values.rows(|row| by_root_of_mean_square(row, EPS));
        let weighted = Array::of(norm.ne, |i| norm.at(i) * rw.wrapped(i));
        let alone = ctx.mul(ctx.rms_norm(x, EPS).unwrap(), w).unwrap();
        assert_close(&lab.run(alone).unwrap(), &weighted, 2e-5, &format!("fused {weights:?}"));
        // Used twice, multiplied by itself, and kept.
        let n = ctx.rms_norm(x, EPS).unwrap();
        let outputs = [ctx.mul(n, n).unwrap(), ctx.mul(n, w).unwrap(), n];
        let got = lab.run_all(&outputs).unwrap();
        assert_close(&got[0], &norm.map(|x| x * x), 2e-5, "squared");
        assert_close(&got[1], &weighted, 2e-5, "weighted");
        assert_close(&got[2], &norm, 2e-5, "kept");
        // As the second factor, of a larger one.
        let (large, rl) = lab.plain(&Array::sample(ne([32, 6, 2, 2]), 6, -2.0, 3.0));
        let n = ctx.rms_norm(x, EPS).unwrap();
        let want = Array::of(rl.ne, |i| rl.at(i) * norm.wrapped(i));
        assert_close(&lab.run(ctx.mul(large, n).unwrap()).unwrap(), &want, 2e-5, "second");
    }
}

/// With several planes, the CPU kernel computes the offsets of rows wrongly, and reads out of bounds (H61).
#[test]
fn count_equal_refuses_several_planes() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    for shape in [[4, 3, 2, 1], [4, 1, 1, 2], [4, 3, 2, 2]] {
        let a = ctx.input("a", DType::I32, shape).unwrap();
        refused!(Unsupported, lab.accepted(ctx.count_equal(a, a).unwrap()), "{shape:?}");
    }
}
