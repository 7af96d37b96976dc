//! What masks refuse. What they compute is in the table.

use ggml::Result;
use ggml::prelude::*;

use crate::support::refused;

type Build = for<'c> fn(&'c Context, Tensor<'c>, i32) -> Result<Tensor<'c>>;

/// Methods, and their in-place variants.
const FUTURES: [[Build; 2]; 2] = [
    [Context::diag_mask_inf, Context::diag_mask_inf_inplace],
    [Context::diag_mask_zero, Context::diag_mask_zero_inplace],
];

#[test]
fn diag_mask_refuses_unsuitable_operands() {
    for [build, in_place] in FUTURES {
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
