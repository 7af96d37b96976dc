//! Flash attention. What it computes is in the table.

use ggml::ops::{FlashAttnOptions, Prec};
use ggml::prelude::*;

use crate::support::{Lab, refused};
use testkit::encode::is_f8;

/// C compares few of these dimensions, but its kernels rely on all.
#[test]
fn h09_flash_attn_ext_refuses_unsuitable_shapes() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let f32s = |shape| of(DType::F32, shape);
    let (q, k, v) = (f32s([8, 3, 4, 2]), f32s([8, 5, 2, 2]), f32s([6, 5, 2, 2]));
    let attend = |q, k, v| ctx.flash_attn_ext(q, k, v, FlashAttnOptions::new(1.0));
    assert!(attend(q, k, v).is_ok());
    for shape in [[7, 5, 2, 2], [9, 5, 2, 2], [8, 5, 3, 2], [8, 5, 8, 2], [8, 5, 2, 1], [8, 5, 2, 4], [8, 4, 2, 2]] {
        refused!(Shape, attend(q, f32s(shape), v), "{shape:?}");
    }
    for shape in [[6, 4, 2, 2], [6, 6, 2, 2], [6, 5, 1, 2], [6, 5, 4, 2], [6, 5, 3, 2], [6, 5, 2, 1], [6, 5, 2, 4]] {
        refused!(Shape, attend(q, k, f32s(shape)), "{shape:?}");
    }
    refused!(DType, attend(of(DType::F16, [8, 3, 4, 2]), k, v));
    refused!(Shape, attend(f32s([1, 1 << 20, 1 << 21, 1]), f32s([1; 4]), f32s([1 << 20, 1, 1, 1])), "too large");

    let masked = |mask| {
        let how = FlashAttnOptions::new(1.0).with_mask(mask);
        ctx.flash_attn_ext(q, k, v, how)
    };
    for shape in [[5, 3, 1, 1], [5, 4, 4, 2], [5, 3, 2, 1]] {
        assert!(masked(of(DType::F16, shape)).is_ok(), "{shape:?}");
    }
    for shape in [[4, 3, 1, 1], [6, 3, 1, 1], [5, 2, 1, 1], [5, 3, 3, 1], [5, 3, 8, 1], [5, 3, 1, 3], [5, 3, 1, 4]] {
        refused!(Shape, masked(of(DType::F16, shape)), "{shape:?}");
    }
    refused!(Shape, masked(ctx.transpose(of(DType::F16, [3, 5, 1, 1])).unwrap()));
    refused!(DType, masked(f32s([5, 3, 1, 1])));

    let sunk = |sinks| {
        let how = FlashAttnOptions::new(1.0).with_sinks(sinks);
        ctx.flash_attn_ext(q, k, v, how)
    };
    assert!(sunk(f32s([4, 1, 1, 1])).is_ok());
    for shape in [[3, 1, 1, 1], [5, 1, 1, 1], [4, 2, 1, 1], [1, 4, 1, 1]] {
        refused!(Shape, sunk(f32s(shape)), "{shape:?}");
    }
    let column = ctx.view(f32s([2, 4, 1, 1]), [1, 4], [8, 32, 32], 0).unwrap();
    refused!(Shape, sunk(ctx.transpose(column).unwrap()), "with gaps");
    refused!(DType, sunk(of(DType::F16, [4, 1, 1, 1])));
}

#[test]
fn flash_attn_ext_refuses_unsuitable_parameters() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 3, 4]).unwrap();
    let mask = ctx.input("mask", DType::F16, [3, 3]).unwrap();
    let with = |how| ctx.flash_attn_ext(x, x, x, how);
    let good = FlashAttnOptions::new(1.0).with_mask(mask);
    for how in [
        FlashAttnOptions::new(f32::NAN).with_mask(mask),
        FlashAttnOptions::new(f32::INFINITY).with_mask(mask),
        good.with_max_bias(-1.0),
        good.with_max_bias(f32::NAN),
        good.with_max_bias(1.0).with_mask(None),
        good.with_logit_softcap(f32::INFINITY),
        good.with_n_kv_max(-1),
        good.with_acc(Prec::Q8),
        good.with_acc(Prec::Q4),
    ] {
        refused!(Param, with(how), "{how:?}");
    }
    assert!(with(good.with_max_bias(1.0).with_n_kv_max(3)).is_ok());
}

/// Types and precisions for which the CPU kernel has no code.
#[test]
fn h14_flash_attn_ext_refuses_types_without_a_dot_product() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype| ctx.input("x", dtype, [256, 8]).unwrap();
    let accepted = |q, k, v, how| lab.accepted(ctx.flash_attn_ext(q, k, v, how).unwrap());
    let float = of(DType::F32);
    for dtype in DType::ALL.iter().copied().filter(|t| t.is_known()) {
        let plain = matches!(dtype, DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64);
        if plain || matches!(dtype, DType::Q8_1 | DType::Q8_K) || is_f8(dtype) {
            refused!(Unsupported, accepted(float, of(dtype), float, FlashAttnOptions::new(1.0)), "keys of {dtype}");
            refused!(Unsupported, accepted(float, float, of(dtype), FlashAttnOptions::new(1.0)), "values of {dtype}");
        } else {
            accepted(float, of(dtype), of(dtype), FlashAttnOptions::new(1.0)).unwrap();
        }
    }
    for acc in [Prec::F16, Prec::BF16] {
        let how = FlashAttnOptions::new(1.0).with_acc(acc);
        refused!(Unsupported, accepted(float, float, float, how), "{acc:?}");
    }
    let square = ctx.input("x", DType::F32, [8, 8]).unwrap();
    let across = ctx.transpose(square).unwrap();
    for (q, k, v) in [(across, square, square), (square, across, square), (square, square, across)] {
        refused!(Unsupported, accepted(q, k, v, FlashAttnOptions::new(1.0)));
    }
}
