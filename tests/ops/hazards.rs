//! Hazards of many families: strides of dimensions of 1, and sizes that a kernel can't count. `OPS` has the operations on one
//! operand of `f32`; nothing fails where one is missing.

use ggml::Result;
use ggml::ops::{
    ConvOptions, FlashAttnOptions, GluOp, InterpolateMode, InterpolateOptions, PadOptions, Pool1dOptions,
    Pool2dOptions, PoolOp, RopeMode, SetOptions, SortOrder,
};
use ggml::prelude::*;

use crate::support::lab::shape;
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

type Build = for<'c> fn(&Lab<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

fn padded<const N: usize>(n: [i32; N]) -> ConvOptions<N> {
    ConvOptions::new().with_padding(n)
}

/// Operations on one operand of `f32`.
const OPS: &[(&str, Build)] = &[
    ("relu", |l, a| l.ctx.relu(a)),
    ("silu", |l, a| l.ctx.silu(a)),
    ("sqr", |l, a| l.ctx.sqr(a)),
    ("leaky_relu", |l, a| l.ctx.leaky_relu(a, 0.1)),
    ("scale", |l, a| l.ctx.scale(a, 2.0)),
    ("scale_bias", |l, a| l.ctx.scale_bias(a, 2.0, 1.0)),
    ("clamp", |l, a| l.ctx.clamp(a, 0.0, 1.0)),
    ("add", |l, a| l.ctx.add(a, a)),
    ("add1", |l, a| l.ctx.add1(a, l.plain(&Array::of(ne([1]), |_| 0.5)).0)),
    ("xielu", |l, a| l.ctx.xielu(a, 0.5, 0.5, 0.5, -1e-6)),
    ("silu_back", |l, a| l.ctx.silu_back(a, a)),
    ("fill", |l, a| l.ctx.fill(a, 0.5)),
    ("set", |l, a| l.ctx.set(a, l.plain(&Array::of(ne([1]), |_| 0.5)).0, SetOptions::new(0))),
    ("acc", |l, a| l.ctx.acc(a, l.plain(&Array::of(ne([1]), |_| 0.5)).0, SetOptions::new(0))),
    ("set of it", |l, a| {
        let zeros = l.plain(&Array::of(shape(a), |_| 0.0)).0;
        l.ctx.set(zeros, a, SetOptions::new(0))
    }),
    ("acc of it", |l, a| {
        let zeros = l.plain(&Array::of(shape(a), |_| 0.0)).0;
        l.ctx.acc(zeros, a, SetOptions::new(0))
    }),
    ("swiglu_oai", |l, a| l.ctx.swiglu_oai(a, a, 1.0, 1.0)),
    ("swiglu_clamp", |l, a| l.ctx.swiglu_clamp(a, a, 1.0)),
    ("mul_mat", |l, a| l.ctx.mul_mat(a, a)),
    ("flash_attn_ext", |l, a| l.ctx.flash_attn_ext(a, a, a, FlashAttnOptions::new(1.0))),
    ("ssm_conv", |l, a| l.ctx.ssm_conv(a, a)),
    ("dsv4_hc_pre_gated", |l, a| l.ctx.dsv4_hc_pre_gated(a, a, 0.5)),
    ("sum", |l, a| l.ctx.sum(a)),
    ("sum_rows", |l, a| l.ctx.sum_rows(a)),
    ("mean", |l, a| l.ctx.mean(a)),
    ("argmax", |l, a| l.ctx.argmax(a)),
    ("norm", |l, a| l.ctx.norm(a, 0.1)),
    ("rms_norm", |l, a| l.ctx.rms_norm(a, 0.1)),
    ("l2_norm", |l, a| l.ctx.l2_norm(a, 0.1)),
    ("group_norm", |l, a| l.ctx.group_norm(a, 1, 0.1)),
    ("soft_max", |l, a| l.ctx.soft_max(a)),
    ("diag_mask_inf", |l, a| l.ctx.diag_mask_inf(a, 0)),
    ("diag_mask_zero", |l, a| l.ctx.diag_mask_zero(a, 0)),
    ("cumsum", |l, a| l.ctx.cumsum(a)),
    ("argsort", |l, a| l.ctx.argsort(a, SortOrder::Asc)),
    ("top_k", |l, a| l.ctx.top_k(a, 1)),
    ("out_prod", |l, a| l.ctx.out_prod(a, a)),
    ("rms_norm_back", |l, a| l.ctx.rms_norm_back(a, a, 0.1)),
    ("soft_max_ext_back", |l, a| l.ctx.soft_max_ext_back(a, a, 0.5)),
    ("glu", |l, a| l.ctx.glu(a, GluOp::Swiglu, false)),
    ("glu_split", |l, a| l.ctx.glu_split(a, a, GluOp::Swiglu)),
    ("cross_entropy_loss", |l, a| l.ctx.cross_entropy_loss(a, a)),
    ("pool_2d", |l, a| l.ctx.pool_2d(a, PoolOp::Max, Pool2dOptions::new([1; 2]))),
    ("pool_1d", |l, a| l.ctx.pool_1d(a, PoolOp::Avg, Pool1dOptions::new([1]))),
    ("pool_2d_back", |l, a| l.ctx.pool_2d_back(a, a, PoolOp::Max, Pool2dOptions::new([1; 2]))),
    ("im2col", |l, a| l.ctx.im2col(a, a, padded([1; 2]), DType::F32)),
    ("im2col_1d", |l, a| l.ctx.im2col_1d(a, a, padded([1]), DType::F32)),
    ("im2col_3d", |l, a| l.ctx.im2col_3d(a, a, 1, padded([1; 3]), DType::F32)),
    ("col2im_1d", |l, a| l.ctx.col2im_1d(a, 1, 2, 0)),
    ("conv_1d", |l, a| l.ctx.conv_1d(a, a, padded([1]))),
    ("conv_2d", |l, a| l.ctx.conv_2d(a, a, padded([1; 2]))),
    ("conv_2d_direct", |l, a| l.ctx.conv_2d_direct(a, a, padded([1; 2]))),
    ("conv_2d_dw_direct", |l, a| l.ctx.conv_2d_dw_direct(a, a, padded([1; 2]))),
    ("conv_3d_direct", |l, a| l.ctx.conv_3d_direct(a, a, 1, padded([1; 3]))),
    ("conv_transpose_2d_p0", |l, a| l.ctx.conv_transpose_2d_p0(a, a, 2)),
    ("nearest", |l, a| l.ctx.interpolate(a, [3, 2, 2, 1], InterpolateOptions::new(InterpolateMode::Nearest))),
    ("bicubic", |l, a| l.ctx.interpolate(a, [3, 2, 2, 1], InterpolateOptions::new(InterpolateMode::Bicubic))),
    ("pad", |l, a| l.ctx.pad(a, PadOptions::new().with_right([1; 4]))),
    ("pad_circular", |l, a| l.ctx.pad(a, PadOptions::new().with_right([1; 4]).with_circular(true))),
    ("pad_reflect_1d", |l, a| l.ctx.pad_reflect_1d(a, 0, 0)),
    ("roll", |l, a| l.ctx.roll(a, [0; 4])),
    ("win_part", |l, a| l.ctx.win_part(a, 2)),
    ("repeat", |l, a| l.ctx.repeat(a, a)),
    ("repeat_back", |l, a| l.ctx.repeat_back(a, a)),
    ("concat", |l, a| l.ctx.concat(a, a, 0)),
    ("cont", |l, a| l.ctx.cont(a)),
    ("cast", |l, a| l.ctx.cast(a, DType::F16)),
    ("cast to blocks", |l, a| l.ctx.cast(a, DType::Q8_0)),
    ("get_rows", |l, a| {
        let [_, _, n2, n3] = shape(a);
        l.ctx.get_rows(a, l.operand(&Array::of([3, n2, n3, 1], |_| 0.0), DType::I32, Layout::Plain).0)
    }),
    ("rope", |l, a| {
        let [n, _, tokens, _] = shape(a);
        let positions = Array::of(ne([tokens]), |[i, ..]| i as f64);
        l.ctx.rope(a, l.operand(&positions, DType::I32, Layout::Plain).0, n as i32, RopeMode::NeoX)
    }),
];

/// ggml's predicates of contiguity skip the strides of dimensions of 1, but its kernels use or assert them. Every
/// accepted operand must give the same result as a copy of it.
#[test]
fn h10_operations_check_strides_of_dimensions_of_1() {
    let odd: [(&str, [usize; 4], [usize; 4]); 6] = [
        ("a column as a row", ne([4, 1]), [1, 0, 2, 3]),
        ("one row to a plane", ne([4, 3, 1]), [0, 2, 1, 3]),
        ("one plane to a batch", ne([4, 2, 3, 1]), [0, 1, 3, 2]),
        ("one row to a batch", ne([4, 3, 1, 1]), [0, 3, 2, 1]),
        ("rows of one", ne([6, 4, 1]), [1, 2, 0, 3]),
        ("all but one dimension of 1", ne([1, 1, 5, 1]), [3, 1, 0, 2]),
    ];
    for (what, shape, axes) in odd {
        let mut computed = 0;
        for (name, build) in OPS {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.plain(&Array::sample(shape, 3, -2.0, 2.0));
            let Ok(y) = build(&lab, ctx.permute(x, axes).unwrap()) else { continue };
            let inner = Context::new();
            let copy = Lab::new(&inner);
            let (x, _) = copy.plain(&values.permuted(axes));
            let want = build(&copy, x).unwrap();
            match lab.run(y) {
                Ok(got) => assert_close(&got, &copy.run(want).unwrap(), 1e-6, &format!("{name} of {what}")),
                refusal => refused!(Unsupported, refusal, "{name} of {what}"),
            }
            computed += 1;
        }
        assert!(computed > 10, "{what}: most operations take it, {computed} did");
    }
}

#[test]
fn h17_operations_refuse_dimensions_of_0() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    refused!(Shape, ctx.input("none", DType::F32, [0]));
    refused!(Shape, ctx.input("none", DType::F32, [4, 0]));
    refused!(Param, ctx.reshape(x, [4, 0]));
    refused!(Param, ctx.view(x, [4, 0], [16, 32, 32], 0));
    refused!(Param, ctx.view(x, [0, 2], [16, 32, 32], 0));
    let mut builder = WeightsBuilder::new();
    refused!(Shape, builder.tensor("none", DType::F32, [4, 0]).map(drop));
}

/// Kernels count rows, elements of a row, and contiguous copies in 32 bits. Larger ones are refused before allocation.
#[test]
fn operations_refuse_sizes_beyond_their_kernels() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    for shape in [[1 << 31, 1, 1], [1, 1 << 31, 1], [1, 1 << 16, 1 << 15], [i64::from(i32::MAX), 1, 1]] {
        let x = ctx.input("x", DType::F32, shape).unwrap();
        for (name, build) in
            OPS.iter().filter(|(name, _)| !matches!(*name, "get_rows" | "rope" | "set of it" | "acc of it"))
        {
            let Ok(y) = build(&lab, x) else { continue };
            refused!(Unsupported, lab.accepted(y), "{name} {shape:?}");
        }
    }
    let bytes = ctx.input("bytes", DType::I8, [1 << 16, 1 << 15]).unwrap();
    refused!(Unsupported, lab.accepted(ctx.cont(bytes).unwrap()));
    let blocks = ctx.input("blocks", DType::Q4_0, [1 << 16, 1 << 16]).unwrap();
    refused!(Unsupported, lab.accepted(ctx.cast(blocks, DType::F32).unwrap()));
    let floats = ctx.input("floats", DType::F32, [1 << 16, 1 << 15]).unwrap();
    refused!(Unsupported, lab.accepted(ctx.repeat_back(floats, floats).unwrap()));
}

/// A result may be too large even if no operand is.
#[test]
fn operations_refuse_results_beyond_the_address_space() {
    let ctx = Context::new();
    let tall = ctx.input("tall", DType::F32, [1, 1_i64 << 40]).unwrap();
    refused!(Shape, ctx.mul_mat(tall, tall));
    let wide = ctx.input("wide", DType::I8, [1_i64 << 61]).unwrap();
    refused!(Shape, ctx.concat(wide, wide, 0));
    refused!(Shape, ctx.cast(wide, DType::F32));
}

/// Results with more threads than rows, and with one thread, equal those with two.
#[test]
fn operations_are_the_same_on_any_number_of_threads() {
    let compute = |build: &Build, threads: usize| {
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, threads);
        let (x, _) = lab.plain(&Array::sample(ne([64, 3]), 3, -2.0, 2.0));
        let outputs = [build(&lab, x).unwrap(), ctx.cont(ctx.transpose(x).unwrap()).unwrap()];
        lab.run_all(&outputs).unwrap()
    };
    for (name, build) in OPS {
        let alone = compute(build, 1);
        for threads in [2, 7] {
            for (got, want) in compute(build, threads).iter().zip(&alone) {
                assert_close(got, want, 1e-6, &format!("{name} with {threads} threads"));
            }
        }
    }
}

#[test]
fn no_operation_writes_to_weights() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [32, 8]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    weights.set("w", &values).unwrap();
    for (name, build) in OPS {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let w = weights.tensor("w").unwrap();
        // A whole tensor, and a view of it.
        let part = ctx.view(w, [32, 4], [w.nb()[1], 4 * w.nb()[1], 4 * w.nb()[1]], 2 * w.nb()[1]).unwrap();
        let outputs = [w, part].map(|x| build(&lab, x).unwrap());
        lab.run_all(&outputs).unwrap();
        assert_eq!(w.read::<f32>().unwrap(), values, "{name}");
    }
}
