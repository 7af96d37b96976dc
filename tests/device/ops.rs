//! Operations, by family.

use ggml::ops::{
    Conv1dOptions, Conv2dOptions, FlashAttnOptions, GluOp, InterpolateMode, InterpolateOptions, PadOptions,
    Pool2dOptions, PoolOp, RopeMode, RopeOptions, SoftMaxOptions, SortOrder,
};
use ggml::ops::{TriType, UnaryOp};
use ggml::prelude::*;
use testkit::encode::BLOCKS;

use crate::{agree, case};

const SHAPE: [i64; 4] = [67, 5, 3, 2];

#[test]
pub(crate) fn unary_agrees_with_cpu() {
    use UnaryOp::*;
    let usual = [Abs, Sgn, Neg, Step, Tanh, Relu, Sigmoid, Gelu, GeluQuick, Silu, HardSwish, HardSigmoid, Exp];
    let all = UnaryOp::ALL.iter().map(|&op| {
        let case = case(format!("{op:?}"), move |f| f.ctx.unary(f.f32(SHAPE), op));
        if usual.contains(&op) { case } else { case.optional() }
    });
    let halves = [Relu, Silu, Neg];
    let halves =
        halves.map(|op| case(format!("{op:?} of f16"), move |f| f.ctx.unary(f.of(DType::F16, SHAPE), op)).optional());
    agree("functions", all.chain(halves));
}

#[test]
pub(crate) fn elementwise_functions_agree_with_cpu() {
    agree(
        "powers",
        [
            case("sqr", |f| f.ctx.sqr(f.f32(SHAPE))),
            case("sqrt", |f| f.ctx.sqrt(f.positive(SHAPE))),
            case("log", |f| f.ctx.log(f.positive(SHAPE))),
            case("sin", |f| f.ctx.sin(f.f32(SHAPE))),
            case("cos", |f| f.ctx.cos(f.f32(SHAPE))),
            case("scale", |f| f.ctx.scale(f.f32(SHAPE), -1.5)),
            case("scale and bias", |f| f.ctx.scale_bias(f.f32(SHAPE), 3.0, 0.5)),
            case("clamp", |f| f.ctx.clamp(f.f32(SHAPE), -0.25, 0.5)),
            case("leaky relu", |f| f.ctx.leaky_relu(f.f32(SHAPE), 0.1)),
        ],
    );
}

#[test]
pub(crate) fn glu_agrees_with_cpu() {
    let whole =
        GluOp::ALL.iter().map(|&op| case(format!("{op:?}"), move |f| f.ctx.glu(f.f32([64, 7, 3, 1]), op, true)));
    let split = GluOp::ALL.iter().map(|&op| {
        case(format!("{op:?} of two"), move |f| f.ctx.glu_split(f.f32([33, 7, 3, 1]), f.f32([33, 7, 3, 1]), op))
    });
    agree("gates", whole.chain(split));
}

#[test]
pub(crate) fn binary_operations_agree_with_cpu() {
    let mut cases = Vec::new();
    for other in [SHAPE, [67, 1, 1, 1], [67, 5, 1, 1], [1, 5, 3, 2], [1, 1, 1, 1]] {
        cases.push(case(format!("add {other:?}"), move |f| f.ctx.add(f.f32(SHAPE), f.f32(other))));
        cases.push(case(format!("sub {other:?}"), move |f| f.ctx.sub(f.f32(SHAPE), f.f32(other))));
        cases.push(case(format!("mul {other:?}"), move |f| f.ctx.mul(f.f32(SHAPE), f.f32(other))));
        cases.push(case(format!("div {other:?}"), move |f| f.ctx.div(f.f32(SHAPE), f.positive(other))));
    }
    cases.push(case("add f16", |f| f.ctx.add(f.of(DType::F16, SHAPE), f.f32(SHAPE))).optional());
    cases.push(case("add to a permuted one", |f| {
        f.ctx.add(f.ctx.permute(f.f32([67, 3, 5, 2]), [0, 2, 1, 3])?, f.f32(SHAPE))
    }));
    cases.push(case("add of rows with gaps", |f| {
        let whole = f.f32([80, 5, 3, 2]);
        let [_, nb1, nb2, nb3] = whole.nb();
        f.ctx.add(f.ctx.view(whole, SHAPE, [nb1, nb2, nb3], 8)?, f.f32(SHAPE))
    }));
    agree("pairs", cases);
}

#[test]
pub(crate) fn norms_agree_with_cpu() {
    let mut cases = Vec::new();
    for n in [3, 64, 1025, 4096] {
        cases.push(case(format!("norm {n}"), move |f| f.ctx.norm(f.f32([n, 5, 3, 1]), 1e-5)));
        cases.push(case(format!("rms_norm {n}"), move |f| f.ctx.rms_norm(f.f32([n, 5, 3, 1]), 1e-6)));
        cases.push(case(format!("l2_norm {n}"), move |f| f.ctx.l2_norm(f.f32([n, 5, 3, 1]), 1e-6)).optional());
        cases.push(case(format!("rms_norm, mul, add {n}"), move |f| {
            let y = f.ctx.mul(f.ctx.rms_norm(f.f32([n, 5, 3, 1]), 1e-6)?, f.f32([n, 1, 1, 1]))?;
            f.ctx.add(y, f.f32([n, 1, 1, 1]))
        }));
    }
    cases.push(case("group_norm", |f| f.ctx.group_norm(f.f32([16, 16, 32, 2]), 8, 1e-6)));
    agree("norms", cases);
}

#[test]
pub(crate) fn soft_max_agrees_with_cpu() {
    let mut cases = Vec::new();
    for n in [1, 7, 64, 1025] {
        cases.push(case(format!("rows of {n}"), move |f| f.ctx.soft_max(f.f32([n, 5, 4, 2]))));
        for dtype in [DType::F32, DType::F16] {
            for max_bias in [0.0, 8.0] {
                cases.push(case(format!("rows of {n}, mask of {dtype}, bias {max_bias}"), move |f| {
                    let how = SoftMaxOptions::new()
                        .with_scale(0.125)
                        .with_max_bias(max_bias)
                        .with_mask(f.of(dtype, [n, 5, 1, 1]));
                    f.ctx.soft_max_ext(f.f32([n, 5, 4, 2]), how)
                }));
            }
        }
    }
    cases.push(
        case("sinks", |f| {
            let how = SoftMaxOptions::new().with_sinks(f.f32([4, 1, 1, 1]));
            f.ctx.soft_max_ext(f.f32([33, 5, 4, 2]), how)
        })
        .optional(),
    );
    agree("softmax", cases);
}

#[test]
pub(crate) fn rope_agrees_with_cpu() {
    let mut cases = Vec::new();
    for mode in [RopeMode::Normal, RopeMode::NeoX] {
        for n_dims in [64, 32] {
            for dtype in [DType::F32, DType::F16] {
                cases.push(case(format!("{mode:?} {n_dims} of {dtype}"), move |f| {
                    let positions = f.ints([9, 1, 1, 1], (0..).map(|i| i * 3));
                    f.ctx.rope(f.of(dtype, [64, 4, 9, 1]), positions, n_dims, mode)
                }));
            }
        }
    }
    cases.push(case("yarn and factors", |f| {
        let positions = f.ints([9, 1, 1, 1], (0..).map(|i| i * 30));
        let how = RopeOptions::new(64, RopeMode::NeoX)
            .with_n_ctx_orig(512)
            .with_freq_scale(0.25)
            .with_ext_factor(1.0)
            .with_attn_factor(1.1)
            .with_freq_factors(f.positive([32, 1, 1, 1]));
        f.ctx.rope_ext(f.f32([64, 4, 9, 1]), positions, how)
    }));
    for mode in [RopeMode::MRope, RopeMode::Vision] {
        cases.push(
            case(format!("{mode:?}"), move |f| {
                let positions = f.ints([9 * 4, 1, 1, 1], 0..);
                let how = RopeOptions::new(32, mode).with_sections(if mode == RopeMode::Vision {
                    [20, 12, 0, 0]
                } else {
                    [8, 12, 12, 0]
                });
                f.ctx.rope_ext(f.f32([64, 4, 9, 1]), positions, how)
            })
            .optional(),
        );
    }
    agree("positions", cases);
}

/// Types that not every device supports.
const RARE: [DType; 5] = [DType::BF16, DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4, DType::Q1_0];

#[test]
pub(crate) fn mul_mat_agrees_with_cpu() {
    let mut cases = Vec::new();
    let weights = [DType::F32, DType::F16].into_iter().chain(BLOCKS);
    for (dtype, must) in weights.map(|d| (d, true)).chain(RARE.map(|d| (d, false))) {
        // One column, a few, as many as there are special kernels for, and more.
        for n in [1, 2, 8, 9, 33, 130] {
            let mut product = case(format!("{dtype} by {n} columns"), move |f| {
                f.ctx.mul_mat(f.of(dtype, [256, 48, 1, 1]), f.f32([256, n, 1, 1]))
            });
            product.must = must;
            cases.push(product.rough());
        }
    }
    agree("products", cases);
}

#[test]
pub(crate) fn batched_mul_mat_agrees_with_cpu() {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
        for n in [1, 5, 40] {
            cases.push(
                case(format!("{dtype} stacked by {n}"), move |f| {
                    f.ctx.mul_mat(f.of(dtype, [256, 33, 2, 1]), f.f32([256, n, 6, 3]))
                })
                .rough(),
            );
        }
    }
    for dtype in [DType::F32, DType::F16] {
        cases.push(
            case(format!("permuted {dtype}"), move |f| {
                let k = f.ctx.permute(f.of(dtype, [64, 4, 40, 1]), [0, 2, 1, 3])?;
                f.ctx.mul_mat(k, f.ctx.permute(f.f32([64, 8, 5, 1]), [0, 2, 1, 3])?)
            })
            .rough(),
        );
    }
    cases.push(
        case("a large one", |f| f.ctx.mul_mat(f.of(DType::F16, [512, 700, 1, 1]), f.f32([512, 300, 1, 1]))).rough(),
    );
    cases.push(case("odd sizes", |f| f.ctx.mul_mat(f.of(DType::F16, [77, 5, 1, 1]), f.f32([77, 3, 1, 1]))).rough());
    cases.push(case("outer", |f| f.ctx.out_prod(f.f32([17, 9, 2, 1]), f.f32([5, 9, 2, 1]))).rough().optional());
    agree("stacks", cases);
}

#[test]
pub(crate) fn mul_mat_id_agrees_with_cpu() {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
        for tokens in [1, 4, 33] {
            cases.push(
                case(format!("{dtype}, {tokens} tokens"), move |f| {
                    let ids = f.ints([2, tokens, 1, 1], (0..).map(|i| i % 2 * 3 + i / 2 % 3));
                    f.ctx.mul_mat_id(f.of(dtype, [256, 40, 8, 1]), f.f32([256, 2, tokens, 1]), ids)
                })
                .rough(),
            );
        }
    }
    agree("experts", cases);
}

#[test]
pub(crate) fn get_rows_and_set_rows_agree_with_cpu() {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q5_1, DType::Q8_0] {
        cases.push(case(format!("get_rows of {dtype}"), move |f| {
            let ids = f.ints([7, 1, 1, 1], (0..).map(|i| i * 5 % 11));
            f.ctx.get_rows(f.of(dtype, [64, 11, 1, 1]), ids)
        }));
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        cases.push(
            case(format!("set_rows of {dtype}"), move |f| {
                let rows = f.ints([3, 1, 1, 1], [4, 0, 9]);
                let to = f.ctx.dup(f.of(dtype, [64, 11, 1, 1]))?;
                f.ctx.set_rows(to, f.f32([64, 3, 1, 1]), rows)
            })
            .optional(),
        );
    }
    agree("rows", cases);
}

#[test]
pub(crate) fn copies_and_layout_operations_agree_with_cpu() {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_1] {
        cases.push(case(format!("f32 to {dtype}"), move |f| f.ctx.cast(f.f32([64, 5, 3, 1]), dtype)).rough());
        cases.push(
            case(format!("{dtype} to f32"), move |f| f.ctx.cast(f.of(dtype, [64, 5, 3, 1]), DType::F32)).optional(),
        );
    }
    for axes in [[1, 0, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3], [3, 2, 1, 0]] {
        for dtype in [DType::F32, DType::F16] {
            cases.push(case(format!("{dtype} permuted {axes:?}"), move |f| {
                f.ctx.cont(f.ctx.permute(f.of(dtype, SHAPE), axes)?)
            }));
        }
    }
    for dim in 0..4 {
        cases.push(case(format!("concat along {dim}"), move |f| {
            let mut other = SHAPE;
            other[dim] = 4;
            f.ctx.concat(f.f32(SHAPE), f.f32(other), dim)
        }));
    }
    cases.push(case("repeat", |f| f.ctx.repeat_4d(f.f32([3, 5, 1, 2]), [9, 10, 4, 2])));
    cases.push(case("pad", |f| f.ctx.pad(f.f32(SHAPE), PadOptions::new().with_right([3, 1, 0, 0]))));
    cases.push(case("roll", |f| f.ctx.roll(f.f32(SHAPE), [3, -1, 1, 0])).optional());
    cases.push(case("diag", |f| f.ctx.diag(f.f32([9, 1, 3, 1]))).optional());
    cases.push(case("tri", |f| f.ctx.tri(f.f32([9, 9, 3, 1]), TriType::Lower)).optional());
    cases.push(case("causal mask", |f| f.ctx.diag_mask_inf(f.f32([9, 7, 3, 1]), 2)));
    agree("copies", cases);
}

#[test]
pub(crate) fn reductions_and_sorts_agree_with_cpu() {
    agree(
        "sums",
        [
            case("sum", |f| f.ctx.sum(f.positive(SHAPE))),
            case("sum_rows", |f| f.ctx.sum_rows(f.positive(SHAPE))),
            case("mean", |f| f.ctx.mean(f.positive(SHAPE))),
            case("argmax", |f| f.ctx.argmax(f.f32([1000, 7, 1, 1]))),
            case("argsort", |f| f.ctx.argsort(f.f32([100, 7, 1, 1]), SortOrder::Desc)),
            case("cumsum", |f| f.ctx.cumsum(f.positive(SHAPE))).optional(),
        ],
    );
}

#[test]
pub(crate) fn image_operations_agree_with_cpu() {
    agree(
        "images",
        [
            case("conv_2d", |f| {
                f.ctx.conv_2d(
                    f.of(DType::F16, [3, 3, 4, 6]),
                    f.f32([17, 19, 4, 2]),
                    Conv2dOptions::new().with_padding([1; 2]),
                )
            })
            .rough(),
            case("conv_1d", |f| {
                f.ctx.conv_1d(
                    f.of(DType::F16, [3, 8, 6, 1]),
                    f.f32([40, 8, 2, 1]),
                    Conv1dOptions::new().with_padding([1]),
                )
            })
            .rough(),
            case("conv_2d_direct", |f| {
                f.ctx.conv_2d_direct(
                    f.f32([3, 3, 4, 6]),
                    f.f32([17, 19, 4, 2]),
                    Conv2dOptions::new().with_padding([1; 2]),
                )
            })
            .rough()
            .optional(),
            case("conv_2d_dw_direct", |f| {
                f.ctx.conv_2d_dw_direct(
                    f.f32([3, 3, 1, 6]),
                    f.f32([17, 19, 6, 2]),
                    Conv2dOptions::new().with_padding([1; 2]),
                )
            })
            .rough()
            .optional(),
            case("conv_transpose_1d", |f| f.ctx.conv_transpose_1d(f.f32([3, 4, 8, 1]), f.f32([20, 8, 1, 1]), 2))
                .rough(),
            case("conv_transpose_2d_p0", |f| {
                f.ctx.conv_transpose_2d_p0(f.of(DType::F16, [2, 2, 4, 8]), f.f32([9, 11, 8, 1]), 2)
            })
            .rough()
            .optional(),
            case("pool_2d avg", |f| f.ctx.pool_2d(f.f32([18, 20, 3, 2]), PoolOp::Avg, Pool2dOptions::new([2; 2]))),
            case("pool_2d max", |f| f.ctx.pool_2d(f.f32([18, 20, 3, 2]), PoolOp::Max, Pool2dOptions::new([3; 2]))),
            case("nearest", |f| {
                f.ctx.interpolate(
                    f.f32([7, 9, 3, 2]),
                    [14, 27, 3, 2],
                    InterpolateOptions::new(InterpolateMode::Nearest),
                )
            }),
            case("bilinear", |f| {
                f.ctx.interpolate(
                    f.f32([7, 9, 3, 2]),
                    [14, 27, 3, 2],
                    InterpolateOptions::new(InterpolateMode::Bilinear),
                )
            })
            .optional(),
            case("timestep embedding", |f| f.ctx.timestep_embedding(f.positive([5, 1, 1, 1]), 32, 10_000)),
        ],
    );
}

#[test]
pub(crate) fn flash_attn_ext_agrees_with_cpu() {
    let mut cases = Vec::new();
    for size in [64, 128] {
        for (kv, batch) in [(256, 1), (256, 7), (512, 64)] {
            for dtype in [DType::F16, DType::Q8_0] {
                let name = format!("heads of {size}, {batch} queries over {kv} keys of {dtype}");
                let mut attention = case(name, move |f| {
                    let how = FlashAttnOptions::new(1.0 / (size as f32).sqrt())
                        .with_mask(f.of(DType::F16, [kv, batch, 1, 1]));
                    let (q, k) = (f.f32([size, batch, 8, 1]), f.of(dtype, [size, kv, 2, 1]));
                    f.ctx.flash_attn_ext(q, k, f.of(dtype, [size, kv, 2, 1]), how)
                });
                attention.must = dtype == DType::F16;
                cases.push(attention.rough());
            }
        }
    }
    agree("attention", cases);
}

/// Recurrent operations.
#[test]
pub(crate) fn ssm_conv_agrees_with_cpu() {
    agree(
        "states",
        [case("ssm_conv", |f| f.ctx.ssm_conv(f.f32([4 - 1 + 9, 64, 2, 1]), f.f32([4, 64, 1, 1]))).optional()],
    );
}

/// Attention and feed-forward blocks as in models, which devices compute by fused kernels.
#[test]
pub(crate) fn transformer_block_agrees_with_cpu() {
    agree(
        "block",
        [case("block", |f| {
            let (ctx, x) = (f.ctx, f.f32([256, 12, 1, 1]));
            let positions = f.ints([12, 1, 1, 1], 0..);
            let h = ctx.mul(ctx.rms_norm(x, 1e-5)?, f.positive([256, 1, 1, 1]))?;
            let head = |h| ctx.mul_mat(f.of(DType::Q8_0, [256, 256, 1, 1]), h);
            let [q, k, v] = [head(h)?, head(h)?, head(h)?];
            let turn = |t| ctx.rope(ctx.reshape(t, [64, 4, 12])?, positions, 64, RopeMode::NeoX);
            let (q, k) = (ctx.permute(turn(q)?, [0, 2, 1, 3])?, ctx.permute(turn(k)?, [0, 2, 1, 3])?);
            let v = ctx.cont(ctx.permute(ctx.reshape(v, [64, 4, 12])?, [1, 2, 0, 3])?)?;
            let how = SoftMaxOptions::new().with_scale(0.125);
            let scores = ctx.soft_max_ext(ctx.mul_mat(k, q)?, how)?;
            let mixed = ctx.cont(ctx.permute(ctx.mul_mat(v, scores)?, [0, 2, 1, 3])?)?;
            let h = ctx.add(ctx.mul_mat(f.of(DType::Q4_K, [256, 256, 1, 1]), ctx.reshape(mixed, [256, 12])?)?, x)?;
            let up = ctx.mul_mat(f.of(DType::Q4_0, [256, 512, 1, 1]), ctx.rms_norm(h, 1e-5)?)?;
            let gate = ctx.mul_mat(f.of(DType::Q4_0, [256, 512, 1, 1]), h)?;
            let down = ctx.mul_mat(f.of(DType::Q6_K, [512, 256, 1, 1]), ctx.glu_split(gate, up, GluOp::Swiglu)?)?;
            ctx.add(down, h)
        })
        .rough()],
    );
}
