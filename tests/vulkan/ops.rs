//! Every operation that the device supports, compared with the CPU.

use std::collections::BTreeSet;
use std::sync::Mutex;

use ggml::prelude::*;
use ggml::{
    GraphAllocator, Result,
    ops::{
        Conv2dOptions, Conv3dOptions, FlashAttnOptions, GatedDeltaNetOperands, GatedLinearAttnOperands, GluOp,
        InterpolateMode, InterpolateOptions, PadOptions, Pool1dOptions, Pool2dOptions, PoolOp, RopeMode, RopeOptions,
        RwkvWkv6Operands, RwkvWkv7Operands, SetOptions, SoftMaxOptions, SortOrder, SsmScanOperands, TriType, UnaryOp,
    },
};
use libtest_mimic::{Failed, Trial};
use testkit::bench::Bench;
use testkit::layout::Layout;

use crate::beside::{ALL, ROWS};
use crate::{REACH, backend, cpu};

type Build = for<'c> fn(&Bench<'c>) -> Result<Vec<Tensor<'c>>>;

/// ggml's name of an operation, the tolerance, and the computation.
struct Op(&'static str, f64, Build);

use DType::{BF16, F16, F32, I32};

/// Supported operations that are not computed here.
const EXCLUDED: [(&str, &str); 2] =
    [("OPT_STEP_ADAMW", "training makes it, and none of its graphs is for a device"), ("OPT_STEP_SGD", "likewise")];

/// Operations that a GPU can run, but Mesa's lavapipe can't.
pub(crate) const LAVAPIPE: [(&str, &str); 3] = [
    ("FLASH_ATTN_EXT", "Mesa 22.3 crashes in its shaders"),
    ("RMS_NORM, MUL and ADD computed together", "Mesa 22.3 takes minutes to compile that shader"),
    ("ADD and RMS_NORM computed together", "Mesa 22.3 takes minutes to compile that shader"),
];

/// Operations without a Vulkan shader, or without one that this crate allows.
const UNCLAIMED: &[&str] = &[
    "DIAG_MASK_ZERO",
    "IM2COL_BACK",
    "POOL_2D_BACK",
    "FLASH_ATTN_BACK",
    "WIN_PART",
    "WIN_UNPART",
    "GET_REL_POS",
    "ADD_REL_POS",
    "MAP_CUSTOM1",
    "MAP_CUSTOM2",
    "MAP_CUSTOM3",
    "CUSTOM",
    #[cfg(ggml_0_28)]
    "TOP_K_MASK",
];

/// Operations that need features which lavapipe lacks.
const UNCLAIMED_BY_LAVAPIPE: [&str; 1] = ["DSV4_HC_COMB"];

/// Operations that compute nothing.
const LOOKS: [&str; 5] = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"];

const SHAPE: [i64; 4] = [67, 5, 3, 2];

fn each<'c>(
    layouts: &[Layout],
    types: &[DType],
    f: impl Fn(Layout, DType) -> Result<Tensor<'c>>,
) -> Result<Vec<Tensor<'c>>> {
    layouts.iter().flat_map(|&layout| types.iter().map(move |&dtype| (layout, dtype))).map(|(l, d)| f(l, d)).collect()
}

fn one<'c>(
    b: &Bench<'c>,
    layouts: &[Layout],
    types: &[DType],
    f: impl Fn(Tensor<'c>) -> Result<Tensor<'c>>,
) -> Result<Vec<Tensor<'c>>> {
    each(layouts, types, |layout, dtype| f(b.laid(layout, dtype, SHAPE, 0.1, 2.0)))
}

/// Two operands, the second one broadcast.
fn two<'c>(
    b: &Bench<'c>,
    types: &[[DType; 2]],
    f: impl Fn(Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>,
) -> Result<Vec<Tensor<'c>>> {
    let mut all = Vec::new();
    for &[x, y] in types {
        for layout in ALL {
            for ne in [SHAPE, [67, 1, 1, 1], [67, 5, 1, 1], [1, 5, 3, 2]] {
                all.push(f(b.laid(layout, x, SHAPE, 0.5, 2.0), b.laid(layout, y, ne, 0.5, 2.0))?);
            }
        }
    }
    Ok(all)
}

const PAIRS: [[DType; 2]; 3] = [[F32, F32], [F16, F16], [F16, F32]];

const OPS: &[Op] = &[
    Op("UNARY", 2e-3, |b| {
        let mut all = Vec::new();
        for &op in UnaryOp::ALL {
            for dtype in [F32, F16] {
                all.push(b.ctx.unary(b.of(dtype, SHAPE), op)?);
                all.push(b.ctx.unary(b.laid(Layout::Gaps, dtype, SHAPE, -2.0, 2.0), op)?);
            }
        }
        all.push(b.ctx.xielu(b.f32(SHAPE), 0.8, 0.6, 0.5, -1e-6)?);
        Ok(all)
    }),
    Op("SQR", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.sqr(x))),
    Op("SQRT", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.sqrt(x))),
    Op("LOG", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.log(x))),
    Op("SIN", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.sin(x))),
    Op("COS", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.cos(x))),
    Op("LEAKY_RELU", 1e-3, |b| one(b, &[Layout::Plain], &[F32, F16], |x| b.ctx.leaky_relu(x, 0.1))),
    Op("CLAMP", 1e-3, |b| one(b, &[Layout::Plain], &[F32, F16], |x| b.ctx.clamp(x, 0.5, 1.5))),
    Op("SCALE", 1e-3, |b| one(b, &[Layout::Plain], &[F32], |x| b.ctx.scale_bias(x, 0.7, 0.2))),
    Op("FILL", 1e-6, |b| one(b, &[Layout::Plain], &[F32, F16], |x| b.ctx.fill(x, 0.5))),
    Op("ARANGE", 1e-6, |b| Ok(vec![b.ctx.arange(1.0, 700.0, 0.5)?])),
    Op("DUP", 1e-3, |b| one(b, &ALL, &[F32, F16], |x| b.ctx.dup(x))),
    Op("CONT", 1e-3, |b| one(b, &ALL, &[F32, F16, BF16, I32], |x| b.ctx.cont(x))),
    Op("CPY", 2e-3, |b| {
        let mut all = Vec::new();
        for (from, to) in [(F32, F16), (F16, F32), (F32, BF16), (BF16, F32), (F16, F16), (I32, F32), (F32, I32)] {
            all.extend(each(&ALL, &[from], |layout, from| b.ctx.cast(b.laid(layout, from, SHAPE, -9.0, 9.0), to))?);
        }
        for quantised in [DType::Q4_0, DType::Q5_1, DType::Q8_0, DType::IQ4_NL] {
            let x = b.f32([64, 6, 3, 1]);
            all.push(b.ctx.cast(x, quantised)?);
            all.push(b.ctx.cast(b.of(quantised, [64, 6, 3, 1]), F32)?);
        }
        Ok(all)
    }),
    Op("ADD", 1e-3, |b| two(b, &PAIRS, |x, y| b.ctx.add(x, y))),
    Op("SUB", 2e-3, |b| two(b, &PAIRS, |x, y| b.ctx.sub(x, y))),
    Op("MUL", 1e-3, |b| two(b, &PAIRS, |x, y| b.ctx.mul(x, y))),
    Op("DIV", 1e-3, |b| two(b, &PAIRS, |x, y| b.ctx.div(x, y))),
    Op("ADD1", 1e-3, |b| one(b, &[Layout::Plain], &[F32], |x| b.ctx.add1(x, b.f32([1])))),
    Op("ADD_ID", 1e-3, |b| {
        let ids = b.ints([4, 3], [0, 5, 2, 6, 1, 1, 3, 4, 0, 6, 6, 2]);
        Ok(vec![b.ctx.add_id(b.f32([67, 4, 3]), b.f32([67, 7]), ids)?])
    }),
    Op("ACC", 1e-3, |b| Ok(vec![b.ctx.acc(b.f32([20, 6, 3]), b.f32([5, 4, 2]), SetOptions::new(4 * 21))?])),
    Op("SET", 1e-3, |b| Ok(vec![b.ctx.set(b.f32([20, 6, 3]), b.f32([5, 4, 2]), SetOptions::new(4 * 21))?])),
    Op("REPEAT", 1e-3, |b| one(b, &ROWS, &[F32, F16], |x| b.ctx.repeat_4d(x, [134, 5, 6, 2]))),
    Op("REPEAT_BACK", 1e-3, |b| Ok(vec![b.ctx.repeat_back(b.f32([64, 6, 4, 2]), b.f32([32, 6, 1, 2]))?])),
    Op("CONCAT", 1e-6, |b| {
        let mut all = Vec::new();
        for (dim, ne) in [[9, 5, 3, 2], [67, 4, 3, 2], [67, 5, 1, 2], [67, 5, 3, 4]].into_iter().enumerate() {
            for layout in ROWS {
                all.push(b.ctx.concat(b.laid(layout, F32, SHAPE, -2.0, 2.0), b.f32(ne), dim)?);
            }
            all.push(b.ctx.concat(b.of(F16, SHAPE), b.of(F16, ne), dim)?);
        }
        Ok(all)
    }),
    Op("GLU", 2e-3, |b| {
        let mut all = Vec::new();
        for &op in GluOp::ALL {
            for dtype in [F32, F16] {
                let x = || b.of(dtype, [66, 5, 3, 2]);
                all.extend([b.ctx.glu(x(), op, false)?, b.ctx.glu(x(), op, true)?, b.ctx.glu_split(x(), x(), op)?]);
            }
        }
        all.push(b.ctx.swiglu_oai(b.f32(SHAPE), b.f32(SHAPE), 1.7, 1.2)?);
        all.push(b.ctx.swiglu_clamp(b.f32(SHAPE), b.f32(SHAPE), 1.2)?);
        Ok(all)
    }),
    Op("SUM", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.sum(x))),
    Op("SUM_ROWS", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.sum_rows(x))),
    Op("MEAN", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.mean(x))),
    Op("CUMSUM", 1e-3, |b| one(b, &[Layout::Plain], &[F32], |x| b.ctx.cumsum(x))),
    Op("ARGMAX", 1e-6, |b| {
        Ok(vec![b.ctx.argmax(b.f32([700, 9]))?, b.ctx.argmax(b.within(F32, [5, 600], -3.0, -1.0))?])
    }),
    Op("COUNT_EQUAL", 1e-6, |b| {
        let some = || b.within(I32, [300, 4], 0.0, 3.0);
        Ok(vec![b.ctx.count_equal(some(), some())?])
    }),
    Op("NORM", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.norm(x, 1e-5))),
    Op("RMS_NORM", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.rms_norm(x, 1e-5))),
    Op("L2_NORM", 1e-3, |b| one(b, &ROWS, &[F32], |x| b.ctx.l2_norm(x, 1e-5))),
    Op("GROUP_NORM", 1e-3, |b| Ok(vec![b.ctx.group_norm(b.f32([13, 7, 6, 2]), 3, 1e-5)?])),
    Op("RMS_NORM_BACK", 1e-3, |b| {
        Ok(vec![
            b.ctx.rms_norm_back(b.f32(SHAPE), b.f32(SHAPE), 1e-5)?,
            b.ctx.rms_norm_back(b.f32([300, 4]), b.f32([300, 4]), 1e-5)?,
        ])
    }),
    Op("SILU_BACK", 2e-3, |b| Ok(vec![b.ctx.silu_back(b.f32(SHAPE), b.f32(SHAPE))?])),
    Op("SOFT_MAX", 1e-3, |b| {
        let mut how = SoftMaxOptions::new().with_scale(0.6);
        let mut all = vec![b.ctx.soft_max(b.f32(SHAPE))?];
        // Mesa takes minutes to compile the shaders for long rows.
        for ne in [[1300, 3], [20_000, 2]].into_iter().filter(|_| !crate::is_software()) {
            all.push(b.ctx.soft_max(b.f32(ne))?);
        }
        for dtype in [F32, F16] {
            how = how.with_mask(b.of(dtype, [67, 5, 1, 1]));
            all.push(b.ctx.soft_max_ext(b.f32(SHAPE), how)?);
            how = how.with_max_bias(4.0).with_sinks(b.f32([3]));
        }
        all.push(b.ctx.soft_max_ext(b.f32(SHAPE), how)?);
        Ok(all)
    }),
    Op("SOFT_MAX_BACK", 1e-3, |b| {
        Ok(vec![b.ctx.soft_max_ext_back(b.f32(SHAPE), b.within(F32, SHAPE, 0.0, 0.1), 0.5)?])
    }),
    Op("CROSS_ENTROPY_LOSS", 1e-3, |b| {
        Ok(vec![b.ctx.cross_entropy_loss(b.f32([70, 9]), b.within(F32, [70, 9], 0.0, 0.1))?])
    }),
    Op("CROSS_ENTROPY_LOSS_BACK", 1e-3, |b| {
        let grad = b.ctx.reshape(b.f32([1]), [1])?;
        Ok(vec![b.ctx.cross_entropy_loss_back(grad, b.f32([70, 9]), b.within(F32, [70, 9], 0.0, 0.1))?])
    }),
    Op("ROPE", 1e-3, |b| rope(b, |x, positions, how| b.ctx.rope_ext(x, positions, how))),
    Op("ROPE_BACK", 1e-3, |b| rope(b, |x, positions, how| b.ctx.rope_ext_back(x, positions, how))),
    Op("DIAG", 1e-6, |b| Ok(vec![b.ctx.diag(b.f32([9, 1, 3]))?])),
    Op("DIAG_MASK_INF", 1e-6, |b| Ok(vec![b.ctx.clamp(b.ctx.diag_mask_inf(b.f32([9, 9, 2]), 2)?, -9.0, 9.0)?])),
    Op("TRI", 1e-6, |b| one(b, &[Layout::Plain], &[F32], |_| b.ctx.tri(b.f32([9, 9, 3]), TriType::LowerDiag))),
    Op("GET_ROWS", 2e-3, |b| {
        let mut all = Vec::new();
        let rows = |n: i32| b.ints([6, 2], (0..12).map(|i| i * 5 % n));
        for dtype in [F32, F16, BF16, DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
            all.push(b.ctx.get_rows(b.of(dtype, [256, 9, 2]), rows(9))?);
        }
        all.push(b.ctx.get_rows(b.laid(Layout::Gaps, F32, [67, 9, 2, 1], -2.0, 2.0), rows(9))?);
        all.push(b.ctx.get_rows(b.within(I32, [67, 9, 2], -9.0, 9.0), rows(9))?);
        Ok(all)
    }),
    Op("GET_ROWS_BACK", 1e-3, |b| {
        let rows = b.ints([4], [3, 0, 3, 1]);
        Ok(vec![b.ctx.get_rows_back(b.f32([67, 4]), rows, b.f32([67, 9]))?])
    }),
    Op("SET_ROWS", 2e-3, |b| {
        let mut all = Vec::new();
        for dtype in [F32, F16, BF16, DType::Q4_0, DType::Q8_0] {
            let rows = b.ints([4], [3, 0, 7, 1]);
            let into = b.ctx.cont(b.of(dtype, [64, 9]));
            all.push(match into {
                Ok(into) => b.ctx.set_rows(into, b.f32([64, 4]), rows)?,
                Err(_) => continue,
            });
        }
        Ok(all)
    }),
    #[cfg(ggml_0_28)]
    Op("TOP_K_MASK", 0.0, |b| {
        let mask = b.within(F32, [67, 5, 3, 1], -1.0, 1.0);
        let top = b.ints([4 * 5 * 3], 0..4 * 5 * 3);
        Ok(vec![b.ctx.top_k_mask(mask, b.ctx.reshape(top, [4, 5, 3])?, ops::TopKMaskOptions::new())?])
    }),
    Op("ARGSORT", 1e-6, |b| {
        Ok(vec![
            b.ctx.argsort(b.f32([67, 9]), SortOrder::Asc)?,
            b.ctx.argsort(b.f32([500, 3, 2]), SortOrder::Desc)?,
            // The order of equal values is unspecified.
            b.ctx.argsort(
                b.ctx.roll(b.ctx.reshape(b.ctx.arange(0.0, 3000.0, 1.0)?, [1500, 2])?, [700, 1, 0, 0])?,
                SortOrder::Asc,
            )?,
        ])
    }),
    Op("MUL_MAT", 1e-2, |b| {
        let mut all = Vec::new();
        for dtype in [F32, F16, BF16, DType::Q4_0, DType::Q8_0, DType::Q4_K] {
            all.push(b.ctx.mul_mat(b.of(dtype, [256, 33, 2]), b.f32([256, 1, 4]))?);
        }
        for dtype in [F32, F16, DType::Q4_0] {
            all.push(b.ctx.mul_mat(b.of(dtype, [256, 70]), b.f32([256, 40]))?);
        }
        all.push(b.ctx.mul_mat(
            b.laid(Layout::Swapped, F32, [32, 20, 4, 1], -2.0, 2.0),
            b.laid(Layout::Swapped, F32, [32, 12, 8, 1], -2.0, 2.0),
        )?);
        all.push(b.ctx.mul_mat(b.laid(Layout::Gaps, F32, [32, 20, 4, 1], -2.0, 2.0), b.f32([32, 12, 4]))?);
        Ok(all)
    }),
    Op("MUL_MAT_ID", 1e-2, |b| {
        let ids = || b.ints([2, 5], [0, 3, 1, 2, 3, 0, 2, 1, 0, 1]);
        let mut all = Vec::new();
        for dtype in [F32, DType::Q8_0] {
            all.push(b.ctx.mul_mat_id(b.of(dtype, [64, 20, 4]), b.f32([64, 1, 5]), ids())?);
        }
        Ok(all)
    }),
    Op("OUT_PROD", 1e-3, |b| Ok(vec![b.ctx.out_prod(b.f32([9, 7, 2]), b.f32([5, 7, 2]))?])),
    Op("SOLVE_TRI", 1e-3, |b| {
        let a = b.ctx.add(b.within(F32, [8, 8, 2], -0.2, 0.2), b.ctx.diag(b.within(F32, [8, 1, 2], 2.0, 3.0))?)?;
        Ok(vec![b.ctx.solve_tri(a, b.f32([5, 8, 2]))?])
    }),
    Op("IM2COL", 2e-3, |b| {
        let (kernel, x) = (b.of(F16, [3, 3, 4, 5]), b.f32([9, 8, 4, 2]));
        Ok(vec![
            b.ctx.im2col(kernel, x, Conv2dOptions::new().with_padding([1; 2]), F32)?,
            b.ctx.im2col(kernel, x, Conv2dOptions::new(), F16)?,
        ])
    }),
    Op("IM2COL_3D", 2e-3, |b| {
        let (kernel, x) = (b.of(F16, [3, 3, 2, 6]), b.f32([9, 8, 5, 4]));
        Ok(vec![b.ctx.im2col_3d(kernel, x, 2, Conv3dOptions::new().with_padding([1; 3]), F32)?])
    }),
    Op("COL2IM_1D", 1e-3, |b| Ok(vec![b.ctx.col2im_1d(b.f32([12, 7]), 4, 2, 1)?])),
    Op("CONV_2D", 1e-2, |b| {
        Ok(vec![b.ctx.conv_2d_direct(
            b.f32([3, 3, 4, 5]),
            b.f32([9, 8, 4, 2]),
            Conv2dOptions::new().with_padding([1; 2]),
        )?])
    }),
    Op("CONV_3D", 1e-2, |b| {
        Ok(vec![b.ctx.conv_3d_direct(
            b.f32([3, 3, 2, 6]),
            b.f32([9, 8, 5, 4]),
            2,
            Conv3dOptions::new().with_padding([1; 3]),
        )?])
    }),
    Op("CONV_2D_DW", 1e-3, |b| {
        let mut all = Vec::new();
        for dtype in [F32, F16] {
            all.push(b.ctx.conv_2d_dw_direct(
                b.of(dtype, [3, 3, 1, 4]),
                b.f32([9, 8, 4, 2]),
                Conv2dOptions::new().with_padding([1; 2]),
            )?);
        }
        Ok(all)
    }),
    Op("CONV_TRANSPOSE_1D", 1e-3, |b| Ok(vec![b.ctx.conv_transpose_1d(b.f32([3, 4, 5]), b.f32([9, 5]), 2)?])),
    Op("CONV_TRANSPOSE_2D", 1e-2, |b| {
        Ok(vec![b.ctx.conv_transpose_2d_p0(b.of(F16, [3, 3, 4, 5]), b.f32([9, 8, 5, 1]), 2)?])
    }),
    Op("POOL_1D", 1e-3, |b| {
        let mut all = Vec::new();
        for pool in [PoolOp::Max, PoolOp::Avg] {
            all.push(b.ctx.pool_1d(b.f32([20, 3]), pool, Pool1dOptions::new([2]))?);
        }
        Ok(all)
    }),
    Op("POOL_2D", 1e-3, |b| {
        let mut all = Vec::new();
        for pool in [PoolOp::Max, PoolOp::Avg] {
            let how = Pool2dOptions::new([3; 2]).with_padding([1, 1]);
            all.extend([
                b.ctx.pool_2d(b.f32([20, 12, 3, 2]), pool, Pool2dOptions::new([2; 2]))?,
                b.ctx.pool_2d(b.f32([20, 12, 3, 2]), pool, how)?,
            ]);
        }
        Ok(all)
    }),
    Op("UPSCALE", 1e-3, |b| {
        let mut all = Vec::new();
        for mode in [InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic] {
            for align in [false, true] {
                let how = InterpolateOptions::new(mode).with_align_corners(align);
                all.push(b.ctx.interpolate(b.f32([7, 5, 3, 2]), [16, 9, 3, 2], how)?);
            }
        }
        Ok(all)
    }),
    Op("PAD", 1e-6, |b| {
        one(b, &ROWS, &[F32], |x| {
            let how = PadOptions::new().with_left([1, 0, 2, 0]).with_right([2, 1, 0, 1]);
            b.ctx.pad(x, how)
        })
    }),
    Op("PAD_REFLECT_1D", 1e-6, |b| one(b, &[Layout::Plain], &[F32], |x| b.ctx.pad_reflect_1d(x, 3, 4))),
    Op("ROLL", 1e-6, |b| one(b, &ROWS, &[F32], |x| b.ctx.roll(x, [3, -2, 1, 1]))),
    Op("TIMESTEP_EMBEDDING", 1e-3, |b| {
        Ok(vec![
            b.ctx.timestep_embedding(b.within(F32, [7], 0.0, 50.0), 32, 1000)?,
            b.ctx.timestep_embedding(b.f32([7]), 31, 1000)?,
        ])
    }),
    Op("SSM_CONV", 1e-3, |b| Ok(vec![b.ctx.ssm_conv(b.f32([10, 32, 2]), b.f32([4, 32]))?])),
    Op("SSM_SCAN", 1e-2, |b| {
        let (state, dim, heads, tokens, sequences) = (128, 16, 2, 3, 2);
        Ok(vec![b.ctx.ssm_scan(
            SsmScanOperands {
                s: b.f32([state, dim, heads, sequences]),
                x: b.f32([dim, heads, tokens, sequences]),
                dt: b.within(F32, [heads, tokens, sequences], -1.0, 1.0),
                a: b.within(F32, [1, heads], -1.0, -0.1),
                b: b.f32([state, 1, tokens, sequences]),
                c: b.f32([state, 1, tokens, sequences]),
                ids: b.ints([sequences], [1, 0]),
            },
            1,
        )?])
    }),
    Op("RWKV_WKV6", 1e-3, |b| {
        let x = || b.within(F32, [64, 2, 4], -0.5, 0.5);
        let (tf, state) = (b.f32([64, 2]), b.within(F32, [64 * 64 * 2, 2], -0.5, 0.5));
        Ok(vec![b.ctx.rwkv_wkv6(RwkvWkv6Operands { k: x(), v: x(), r: x(), tf, td: x(), state })?])
    }),
    Op("RWKV_WKV7", 1e-3, |b| {
        let x = || b.within(F32, [64, 2, 4], -0.3, 0.3);
        let state = b.within(F32, [64 * 64 * 2, 2], -0.5, 0.5);
        Ok(vec![b.ctx.rwkv_wkv7(RwkvWkv7Operands { r: x(), w: x(), k: x(), v: x(), a: x(), b: x(), state })?])
    }),
    Op("GATED_LINEAR_ATTN", 1e-3, |b| {
        let x = || b.within(F32, [64, 2, 4], -0.5, 0.5);
        let state = b.within(F32, [64 * 64 * 2, 2], -0.5, 0.5);
        Ok(vec![b.ctx.gated_linear_attn(GatedLinearAttnOperands { k: x(), v: x(), q: x(), g: x(), state }, 0.7)?])
    }),
    Op("GATED_DELTA_NET", 1e-3, |b| {
        let x = || b.within(F32, [32, 2, 3, 2], -0.5, 0.5);
        Ok(vec![b.ctx.gated_delta_net(
            GatedDeltaNetOperands {
                q: x(),
                k: x(),
                v: x(),
                g: b.within(F32, [1, 2, 3, 2], -1.0, -0.1),
                beta: b.within(F32, [1, 2, 3, 2], 0.1, 0.9),
                state: b.within(F32, [32, 32, 2, 2], -0.5, 0.5),
            },
            1,
        )?])
    }),
    Op("LIGHTNING_INDEXER", 1e-2, |b| {
        let (q, k) = (b.f32([128, 4, 6]), b.of(F16, [128, 1, 20]));
        Ok(vec![b.ctx.lightning_indexer(q, k, b.f32([4, 6]), b.of(F16, [20, 6]))?])
    }),
    Op("DSV4_HC_COMB", 1e-3, |b| Ok(vec![b.ctx.dsv4_hc_comb(b.f32([24, 5]), b.f32([3]), b.f32([24]), 1e-6, 4)?])),
    Op("DSV4_HC_PRE", 1e-3, |b| Ok(vec![b.ctx.dsv4_hc_pre(b.f32([32, 4, 5]), b.f32([4, 5]))?])),
    Op("DSV4_HC_POST", 1e-3, |b| {
        Ok(vec![b.ctx.dsv4_hc_post(b.f32([32, 5]), b.f32([32, 4, 5]), b.f32([4, 5]), Some(b.f32([4, 4, 5])))?])
    }),
    Op("FLASH_ATTN_EXT", 1e-2, |b| {
        let (q, k, v) = (b.f32([64, 9, 4, 1]), b.of(F16, [64, 32, 2, 1]), b.of(F16, [64, 32, 2, 1]));
        let how = FlashAttnOptions::new(0.125);
        Ok(vec![b.ctx.flash_attn_ext(q, k, v, how)?])
    }),
    Op("DIAG_MASK_ZERO", 1e-6, |b| Ok(vec![b.ctx.diag_mask_zero(b.f32([9, 9, 2]), 2)?])),
    Op("IM2COL_BACK", 1e-3, |b| {
        let kernel = b.of(F16, [3, 3, 4, 5]);
        let columns = b.f32([36, 7, 6, 2]);
        Ok(vec![b.ctx.im2col_back(columns, kernel, [9, 8, 4, 2], Conv2dOptions::new())?])
    }),
    Op("POOL_2D_BACK", 1e-3, |b| {
        Ok(vec![b.ctx.pool_2d_back(b.f32([10, 6, 3]), b.f32([20, 12, 3]), PoolOp::Avg, Pool2dOptions::new([2; 2]))?])
    }),
    Op("WIN_PART", 1e-6, |b| Ok(vec![b.ctx.win_part(b.f32([4, 9, 8]), 5)?])),
    Op("GET_REL_POS", 1e-3, |b| Ok(vec![b.ctx.get_rel_pos(b.of(F16, [8, 9]), 5, 5)?])),
];

fn rope<'c>(
    b: &Bench<'c>,
    f: impl Fn(Tensor<'c>, Tensor<'c>, RopeOptions<'c>) -> Result<Tensor<'c>>,
) -> Result<Vec<Tensor<'c>>> {
    let mut all = Vec::new();
    for mode in [RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope] {
        let sections = if matches!(mode, RopeMode::Normal | RopeMode::NeoX) { 1 } else { 4 };
        for dtype in [F32, F16] {
            for layout in [Layout::Plain, Layout::Gaps] {
                let how = RopeOptions::new(32, mode)
                    .with_sections([if sections == 4 { 4 } else { 0 }; 4])
                    .with_freq_factors((layout == Layout::Gaps).then(|| b.within(F32, [32], 0.8, 1.2)));
                let positions = b.ints([7 * sections], (0..7 * sections as i32).map(|i| i * 3 % 19));
                all.push(f(b.laid(layout, dtype, [64, 5, 7, 1], -2.0, 2.0), positions, how)?);
            }
        }
    }
    Ok(all)
}

/// The largest values of each row, in any order.
fn top_k() -> std::result::Result<(), Failed> {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    for (n, k, claimed) in [(67, 5, true), (300, 40, true), (67, 1, false)] {
        let x = bench.within(F32, [n, 4], -3.0, -1.0);
        let y = ctx.top_k(x, k)?;
        assert_eq!(crate::vulkan().supports_op(y)?, claimed, "{k} of {n}");
        if !claimed {
            continue;
        }
        let graph = ctx.graph([y])?;
        let found = [backend(), cpu()].map(|mut backend| -> Result<Vec<Vec<i32>>> {
            let mut allocator = GraphAllocator::new(backend.device().buffer_type());
            let mut memory = allocator.alloc(&graph, &mut backend)?;
            bench.set(|t, bytes| memory.set_bytes(t, bytes))?;
            memory.compute()?;
            let mut rows: Vec<Vec<i32>> = memory.get::<i32>(y)?.chunks(k as usize).map(<[i32]>::to_vec).collect();
            for row in &mut rows {
                row.sort_unstable();
            }
            Ok(rows)
        });
        let [device, cpu] = found;
        assert_eq!(device?, cpu?, "{k} of {n}");
        let mut counts = COUNTS.lock().unwrap();
        counts.cases += 1;
    }
    COUNTS.lock().unwrap().ops += 1;
    Ok(())
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ops: usize,
    pub(crate) cases: usize,
    pub(crate) refused: usize,
}

static COUNTS: Mutex<Counts> = Mutex::new(Counts { ops: 0, cases: 0, refused: 0 });

pub(crate) fn counts() -> Counts {
    std::mem::take(&mut *COUNTS.lock().unwrap())
}

pub(crate) fn excluded() -> usize {
    EXCLUDED.len() + if crate::is_software() { LAVAPIPE.len() } else { 0 }
}

fn check(&Op(name, tolerance, build): &Op) -> std::result::Result<(), Failed> {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    let outputs = build(&bench)?;
    let mut claimed = Vec::new();
    for &y in &outputs {
        if crate::vulkan().supports_op(y)? {
            claimed.push(y);
        }
    }
    let expected = !(UNCLAIMED.contains(&name) || crate::is_software() && UNCLAIMED_BY_LAVAPIPE.contains(&name));
    if claimed.is_empty() == expected {
        return Err(format!("{} of {} cases are claimed", claimed.len(), outputs.len()).into());
    }
    let mut counts = COUNTS.lock().unwrap();
    counts.refused += outputs.len() - claimed.len();
    if claimed.is_empty() {
        return Ok(());
    }
    let comparison = bench.compare(&claimed, tolerance, &mut backend(), &mut cpu())?;
    assert!(claimed.iter().any(|y| y.op_name() == name) || name == "DIAG_MASK_INF", "{name} was computed");
    counts.ops += 1;
    counts.cases += claimed.len();
    if comparison.agrees() { Ok(()) } else { Err(comparison.to_string().into()) }
}

/// Every ggml operation is in exactly one of the lists.
fn every_operation_is_accounted_for() -> std::result::Result<(), Failed> {
    let mut listed = BTreeSet::new();
    let tested = OPS.iter().map(|op| op.0);
    let untested = UNCLAIMED.iter().copied().filter(|name| OPS.iter().all(|op| op.0 != *name));
    for name in tested.chain(EXCLUDED.map(|(name, _)| name)).chain(untested).chain(LOOKS).chain(["TOP_K"]) {
        if !listed.insert(name.to_owned()) {
            return Err(format!("{name} is listed twice").into());
        }
    }
    let all: BTreeSet<_> = (0..ggml::sys::GGML_OP_COUNT)
        .map(|op| {
            // SAFETY: `op` is below the number of operations; the call looks it up in a constant table.
            let text = unsafe { ggml::sys::ggml_op_name(op) };
            // SAFETY: `ggml_op_name` returns a NUL-terminated string literal.
            unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap().to_owned()
        })
        .collect();
    let differ: Vec<_> = all.symmetric_difference(&listed).collect();
    if differ.is_empty() { Ok(()) } else { Err(format!("not in both: {differ:?}").into()) }
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("every_operation_is_accounted_for", every_operation_is_accounted_for)];
    trials.push(Trial::test("ops::TOP_K", top_k));
    trials.extend(OPS.iter().map(|op| {
        let why = LAVAPIPE.iter().find(|(name, _)| crate::is_software() && *name == op.0);
        let name = why.map_or_else(|| format!("ops::{}", op.0), |(name, why)| format!("ops::{name} ({why})"));
        Trial::test(name, || check(op)).with_ignored_flag(why.is_some())
    }));
    trials.extend(EXCLUDED.map(|(name, why)| {
        Trial::test(format!("ops::{name} ({why})"), || Err("it is excluded".into())).with_ignored_flag(true)
    }));
    trials
}
