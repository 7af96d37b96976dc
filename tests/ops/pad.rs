//! Padding. What it computes, and other refusals, are in the table.

use ggml::ops::PadOptions;
use ggml::prelude::*;

use crate::support::refused;

fn with(left: [i32; 4], right: [i32; 4], circular: bool) -> PadOptions {
    PadOptions::new().with_left(left).with_right(right).with_circular(circular)
}

#[test]
fn h16_circular_pad_wraps_at_most_once() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [5, 4, 3, 2]).unwrap();
    for axis in 0..4 {
        let mut left = [5, 4, 3, 2];
        assert!(ctx.pad(a, with(left, [0; 4], true)).is_ok());
        left[axis] += 1;
        refused!(Param, ctx.pad(a, with(left, [0; 4], true)), "{axis}");
        assert!(ctx.pad(a, with(left, [0; 4], false)).is_ok(), "zeros have no end");
        left[axis] = i32::MAX;
        refused!(Param, ctx.pad(a, with(left, [0; 4], true)), "{axis}");
    }
}
