//! Hazards of many families: strides of dimensions of 1, and sizes that a kernel can't count. Operations are the rows of
//! the table whose operands are all of `f32`, and some in `MORE`.

use ggml::Result;
use ggml::ops::{
    ConvOptions, FlashAttnOptions, InterpolateMode, InterpolateOptions, PadOptions, Pool1dOptions, Pool2dOptions,
    PoolOp, RopeMode, SetOptions,
};
use ggml::prelude::*;
use testkit::cases::rows;

use crate::support::lab::shape;
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

type Build = Box<dyn for<'c> Fn(&Lab<'c>, Tensor<'c>) -> Result<Tensor<'c>>>;
type Other = for<'c> fn(&Lab<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

fn padded<const N: usize>(n: [i32; N]) -> ConvOptions<N> {
    ConvOptions::new().with_padding(n)
}

/// Operations on an operand of `f32`, with parameters that fit small shapes, or with other operands.
const MORE: &[(&str, Other)] = &[
    ("add1", |l, a| l.ctx.add1(a, l.plain(&Array::of(ne([1]), |_| 0.5)).0)),
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
    ("flash_attn_ext", |l, a| l.ctx.flash_attn_ext(a, a, a, FlashAttnOptions::new(1.0))),
    ("ssm_conv", |l, a| l.ctx.ssm_conv(a, a)),
    ("dsv4_hc_pre_gated", |l, a| l.ctx.dsv4_hc_pre_gated(a, a, 0.5)),
    ("group_norm", |l, a| l.ctx.group_norm(a, 1, 0.1)),
    ("top_k", |l, a| l.ctx.top_k(a, 1)),
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

/// Operations on one operand of `f32`, which is all operands of those that take several.
fn ops() -> Vec<(String, Build)> {
    let whole = |row: &testkit::cases::Row| {
        !row.cases[0].operands.is_empty() && row.cases[0].operands.iter().all(|o| o.dtype == DType::F32)
    };
    let rows = rows().into_iter().filter(|row| !row.cases.is_empty() && whole(row));
    let of_rows = rows.map(|row| {
        let build: Build = Box::new(move |l, a| (row.cases[0].build)(l.ctx, &vec![a; row.cases[0].operands.len()]));
        (row.name.to_owned(), build)
    });
    let more = MORE.iter().map(|&(name, build)| -> (String, Build) { (name.to_owned(), Box::new(build)) });
    of_rows.chain(more).collect()
}

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
        for (name, build) in &ops() {
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
        for (name, build) in ops() {
            if matches!(name.as_str(), "get_rows" | "rope" | "set of it" | "acc of it") {
                continue;
            }
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

#[test]
fn no_operation_writes_to_weights() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [32, 8]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    weights.set("w", &values).unwrap();
    let mut computed = 0;
    for (name, build) in ops() {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let w = weights.tensor("w").unwrap();
        // A whole tensor, and a view of it.
        let part = ctx.view(w, [32, 4], [w.nb()[1], 4 * w.nb()[1], 4 * w.nb()[1]], 2 * w.nb()[1]).unwrap();
        // Some need other shapes than these.
        let Ok(outputs) = [w, part].into_iter().map(|x| build(&lab, x)).collect::<Result<Vec<_>>>() else { continue };
        lab.run_all(&outputs).unwrap();
        assert_eq!(w.read::<f32>().unwrap(), values, "{name}");
        computed += 1;
    }
    assert!(computed > 90, "{computed} operations");
}
