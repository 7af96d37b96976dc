//! Hazards that the tests of single families do not cover.

use ggml::ops::{Conv2dOptions, Conv3dOptions};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// The kernels of direct convolutions read any image as `f32`.
#[test]
fn h42_conv_direct_refuses_images_other_than_f32() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    for kernel in [DType::F32, DType::F16] {
        let (flat, deep) = (of(kernel, [3, 3, 2, 4]), of(kernel, [3, 2, 2, 6]));
        let channels = of(kernel, [3, 3, 1, 2]);
        for dtype in [DType::F16, DType::BF16, DType::F64, DType::I32, DType::I8] {
            let (image, volume) = (of(dtype, [8, 8, 2, 3]), of(dtype, [6, 5, 4, 4]));
            refused!(DType, ctx.conv_2d_direct(flat, image, Conv2dOptions::new()), "{dtype}");
            refused!(DType, ctx.conv_2d_dw_direct(channels, image, Conv2dOptions::new()), "{dtype}");
            refused!(DType, ctx.conv_3d_direct(deep, volume, 2, Conv3dOptions::new()), "{dtype}");
        }
    }
}

/// The kernel takes the size of a block for that of a row, unless both tensors have contiguous rows and one shape.
#[test]
fn h48_dup_of_blocks_with_gaps_copies_rows_only() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let values = Array::sample(ne([64, 6]), 3, -1.0, 1.0);
    let (gaps, rounded) = lab.operand(&values, DType::Q8_0, Layout::Gaps);
    let (whole, _) = lab.operand(&values, DType::Q8_0, Layout::Plain);
    let mut builder = WeightsBuilder::new();
    builder.tensor("other", DType::Q8_0, [128, 3]).unwrap();
    builder.tensor("same", DType::Q8_0, [64, 6]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    refused!(Shape, ctx.cpy(gaps, state.tensor("other").unwrap()), "rows of another length");
    refused!(Unsupported, lab.accepted(ctx.cont_4d(gaps, [128, 3]).unwrap()), "rows of another length");
    let flat = Array { ne: ne([128, 3]), data: rounded.data.clone() };
    for (y, want) in [
        (ctx.cpy(gaps, state.tensor("same").unwrap()), &rounded),
        (ctx.cont(gaps), &rounded),
        (ctx.cont_4d(whole, [128, 3]), &flat),
    ] {
        let got = lab.run(ctx.cast(y.unwrap(), DType::F32).unwrap()).unwrap();
        assert_close(&got, want, 1e-6, "whole rows of one shape, or no gaps");
    }
}

/// The kernel has a table with an entry of 8 bytes for each expert and index, whose size it computes unchecked.
#[test]
fn h58_mul_mat_id_limits_the_size_of_its_table() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let accepted = |experts: i64, used: i64, tokens: i64| {
        let of = |dtype, shape: [i64; 3]| ctx.input("x", dtype, shape).unwrap();
        let ids = of(DType::I32, [used, tokens, 1]);
        let y = ctx.mul_mat_id(of(DType::F32, [1, 1, experts]), of(DType::F32, [1, 1, tokens]), ids).unwrap();
        lab.accepted(y)
    };
    accepted(1 << 10, 1 << 4, 1 << 4).unwrap();
    for (experts, used, tokens) in
        [(1 << 20, 1 << 10, (1 << 10) + 1), (1 << 30, 1 << 15, 1 << 15), (1 << 30, 1, 1 << 30)]
    {
        refused!(Unsupported, accepted(experts, used, tokens), "{experts} {used} {tokens}");
    }
}
