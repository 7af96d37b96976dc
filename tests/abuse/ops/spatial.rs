//! Windows that move over images: convolutions, pooling; borders and sizes.

use ggml::ops::{ConvOptions, InterpolateMode, InterpolateOptions, PadOptions, PoolOp, PoolOptions};
use ggml::prelude::*;
use testkit::array::Array;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};
use crate::model::Model;

fn how<const N: usize>(p: &mut Draw<'_, '_>) -> ConvOptions<N> {
    ConvOptions::new()
        .with_stride([(); N].map(|()| p.int(1, 3)))
        .with_padding([(); N].map(|()| p.int(0, 2)))
        .with_dilation([(); N].map(|()| p.int(1, 2)))
}

fn windows<const N: usize>(p: &mut Draw<'_, '_>) -> PoolOptions<N> {
    let how = PoolOptions::new([(); N].map(|()| p.int(1, 4))).with_stride([(); N].map(|()| p.int(1, 4)));
    how.with_padding(how.window.map(|k| p.int(0, k.clamp(0, 8) + 1)))
}

const FLOATS: &[DType] = &[DType::F32, DType::F16];
const MOSTLY_F32: &[DType] = &[DType::F32, DType::F32, DType::F16];

/// An image, and a kernel of its depth.
fn image_2d<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let x = p.of(MOSTLY_F32);
    let (w, h, n) = (p.rng.i64(1..4), p.rng.i64(1..4), p.rng.i64(1..4));
    let dtype = p.one(FLOATS);
    let kernel = p.operand(dtype, [w, h, x.ne()[2], n])?;
    Ok((kernel, x))
}

fn image_1d<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let x = p.pick(|k| k.dtype() == DType::F32 && k.ne()[3] == 1);
    let (w, n) = (p.rng.i64(1..4), p.rng.i64(1..4));
    let dtype = p.one(FLOATS);
    let kernel = p.operand(dtype, [w, x.ne()[1], n, 1])?;
    Ok((kernel, x))
}

/// A volume of so many inputs, and a kernel for them.
fn image_3d<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>, i32)> {
    let (inputs, outputs, batch) = (p.int(1, 3), p.rng.i64(1..3), p.rng.i64(1..3));
    let [w, h, d] = [(); 3].map(|()| p.rng.i64(1..6));
    let [kw, kh, kd] = [(); 3].map(|()| p.rng.i64(1..3));
    let n = i64::from(inputs.clamp(1, 4));
    let x = p.operand(DType::F32, [w, h, d, n * batch])?;
    let dtype = p.one(FLOATS);
    // Some last dimensions are no multiples, which only `im2col_3d` takes.
    let odd = p.rng.i64(0..4) / 3;
    let kernel = p.operand(dtype, [kw, kh, kd, n * outputs + odd])?;
    Ok((kernel, x, inputs))
}

/// An image, and a kernel for each of its channels.
fn channels<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let x = p.f32();
    let (w, h) = (p.rng.i64(1..4), p.rng.i64(1..4));
    let dtype = p.one(FLOATS);
    let kernel = p.fresh(dtype, [w, h, 1, x.ne()[2]])?;
    if p.chance(3) {
        // Channels innermost, both of them.
        let [n0, n1, n2, n3] = x.ne();
        let whole = p.fresh(DType::F32, [n2, n0, n1, n3])?;
        let x = Known { t: p.ctx.permute(whole.t, [2, 0, 1, 3])?, model: None, ..whole };
        let whole = p.fresh(dtype, [n2, 1, w, h])?;
        let kernel = Known { t: p.ctx.permute(whole.t, [3, 2, 0, 1])?, model: None, ..whole };
        return Ok((kernel, x));
    }
    Ok((kernel, x))
}

pub(super) const CONVOLUTIONS: &[Op] = &[
    op("conv_1d", |p| {
        let (kernel, x) = image_1d(p)?;
        let how = how(p);
        let t = build!(p, conv_1d(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_2d", |p| {
        let (kernel, x) = image_2d(p)?;
        let how = how(p);
        let t = build!(p, conv_2d(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_3d", |p| {
        let (kernel, x, inputs) = image_3d(p)?;
        let how = how(p);
        let t = build!(p, conv_3d(kernel.t, x.t, inputs, how));
        Ok(p.only(t))
    }),
    op("conv_1d_dw", |p| {
        let x = p.pick(|k| k.dtype() == DType::F32 && k.ne()[3] == 1);
        let (w, dtype) = (p.rng.i64(1..4), p.one(FLOATS));
        let kernel = p.operand(dtype, [w, 1, x.ne()[1], 1])?;
        let how = how(p);
        let t = build!(p, conv_1d_dw(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_2d_dw", |p| {
        let (kernel, x) = channels(p)?;
        let how = how(p);
        let t = build!(p, conv_2d_dw(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_2d_direct", |p| {
        let (kernel, x) = image_2d(p)?;
        let how = how(p);
        let t = build!(p, conv_2d_direct(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_2d_dw_direct", |p| {
        let (kernel, x) = channels(p)?;
        let how = how(p);
        let t = build!(p, conv_2d_dw_direct(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("conv_3d_direct", |p| {
        let (kernel, x, inputs) = image_3d(p)?;
        let how = how(p);
        let t = build!(p, conv_3d_direct(kernel.t, x.t, inputs, how));
        Ok(p.only(t))
    }),
    op("conv_transpose_1d", |p| {
        let x = p.pick(|k| k.dtype() == DType::F32 && k.ne()[2] == 1 && k.ne()[3] == 1);
        let (w, n, dtype) = (p.rng.i64(1..4), p.rng.i64(1..4), p.one(FLOATS));
        let kernel = p.fresh(dtype, [w, n, x.ne()[1], 1])?;
        let stride = p.int(1, 3);
        let t = build!(p, conv_transpose_1d(kernel.t, x.t, stride));
        Ok(p.only(t))
    }),
    op("conv_transpose_2d_p0", |p| {
        let x = p.f32();
        let (w, h, n, dtype) = (p.rng.i64(1..4), p.rng.i64(1..4), p.rng.i64(1..4), p.one(FLOATS));
        let kernel = p.fresh(dtype, [w, h, n, x.ne()[2]])?;
        let stride = p.int(1, 3);
        let t = build!(p, conv_transpose_2d_p0(kernel.t, x.t, stride));
        Ok(p.only(t))
    }),
];

pub(super) const COLUMNS: &[Op] = &[
    op("im2col", |p| {
        let (kernel, x) = image_2d(p)?;
        let (how, dtype) = (how(p), p.dtype(FLOATS));
        let t = build!(p, im2col(kernel.t, x.t, how, dtype));
        Ok(p.only(t))
    }),
    op("im2col_1d", |p| {
        let (kernel, x) = image_1d(p)?;
        let (how, dtype) = (how(p), p.dtype(FLOATS));
        let t = build!(p, im2col_1d(kernel.t, x.t, how, dtype));
        Ok(p.only(t))
    }),
    op("im2col_3d", |p| {
        let (kernel, x, inputs) = image_3d(p)?;
        let (how, dtype) = (how(p), p.dtype(FLOATS));
        let t = build!(p, im2col_3d(kernel.t, x.t, inputs, how, dtype));
        Ok(p.only(t))
    }),
    op("im2col_back", |p| {
        let (kernel, x) = image_2d(p)?;
        let (how, shape) = (how::<2>(p), x.ne());
        // The gradient has the shape of the columns, if there are any.
        let columns = p.ctx.im2col(kernel.t, x.t, how, DType::F32).map_or([2, 3, 4, 1], Tensor::ne);
        let grad = p.operand(DType::F32, columns)?;
        let t = build!(p, im2col_back(grad.t, kernel.t, shape, how));
        Ok(p.only(t))
    }),
    op("im2col_1d_back", |p| {
        let (kernel, x) = image_1d(p)?;
        let (how, shape) = (how::<1>(p), x.ne());
        let columns = p.ctx.im2col_1d(kernel.t, x.t, how, DType::F32).map_or([2, 3, 4, 1], Tensor::ne);
        let grad = p.operand(DType::F32, columns)?;
        let t = build!(p, im2col_1d_back(grad.t, kernel.t, shape, how));
        Ok(p.only(t))
    }),
    op("col2im_1d", |p| {
        let (k, outputs, columns) = (p.rng.i64(1..5), p.int(1, 4), p.dim());
        let dtype = p.real().dtype();
        let a = p.operand(dtype, [k * i64::from(outputs.clamp(1, 4)), columns, 1, 1])?;
        let (stride, padding) = (p.int(1, 3), p.int(0, 1));
        let t = build!(p, col2im_1d(a.t, outputs, stride, padding));
        Ok(p.only(t))
    }),
];

pub(super) const POOLS: &[Op] = &[
    op("pool_1d", |p| {
        let x = p.of(MOSTLY_F32);
        let (pool, how) = (p.one(&[PoolOp::Max, PoolOp::Avg]), windows(p));
        let t = build!(p, pool_1d(x.t, pool, how));
        Ok(p.only(t))
    }),
    op("pool_2d", |p| {
        let x = p.of(MOSTLY_F32);
        let (pool, how) = (p.one(&[PoolOp::Max, PoolOp::Avg]), windows(p));
        let t = build!(p, pool_2d(x.t, pool, how));
        Ok(p.only(t))
    }),
    op("pool_2d_back", |p| {
        let x = p.plain()?;
        let (pool, how) = (p.one(&[PoolOp::Max, PoolOp::Avg]), windows(p));
        let pooled = p.ctx.pool_2d(x.t, pool, how).map_or([2, 3, 4, 1], Tensor::ne);
        let grad = p.operand(DType::F32, pooled)?;
        let t = build!(p, pool_2d_back(grad.t, x.t, pool, how));
        Ok(p.only(t))
    }),
];

pub(super) const SIZES: &[Op] = &[
    op("pad", |p| {
        let a = p.f32();
        let how = PadOptions::new()
            .with_right([p.int(0, 2), p.int(0, 2), p.int(0, 1), p.int(0, 1)])
            .with_left([p.int(0, 2), p.int(0, 1), p.int(0, 1), p.int(0, 1)])
            .with_circular(p.chance(3));
        let t = build!(p, pad(a.t, how));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let padded = Array::of(t.ne().map(|n| n as usize), |i| {
                let at = [0, 1, 2, 3].map(|d| i[d] as i64 - i64::from(how.left[d]));
                let inside = (0..4).all(|d| (0..values.ne[d] as i64).contains(&at[d]));
                if !inside && !how.circular {
                    return 0.0;
                }
                values.at([0, 1, 2, 3].map(|d| at[d].rem_euclid(values.ne[d] as i64) as usize))
            });
            Model::new(&padded, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
    op("pad_reflect_1d", |p| {
        let (a, left, right) = (p.f32(), p.int(0, 3), p.int(0, 3));
        let t = build!(p, pad_reflect_1d(a.t, left, right));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let n = values.ne[0] as i64;
            let padded = Array::of(t.ne().map(|n| n as usize), |[i, j, k, l]| {
                let at = (i as i64 - i64::from(left)).abs();
                values.at([if at < n { at } else { 2 * (n - 1) - at } as usize, j, k, l])
            });
            Model::new(&padded, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
    op("roll", |p| {
        let a = p.f32();
        let shifts = a.ne().map(|n| p.int(1 - n.clamp(1, 9) as i32, n.clamp(1, 9) as i32 - 1));
        let t = build!(p, roll(a.t, shifts));
        let model = a.model.as_ref().and_then(|m| {
            let values = m.array();
            let rolled = Array::of(values.ne, |i| {
                values
                    .at([0, 1, 2, 3]
                        .map(|d| (i[d] as i64 - i64::from(shifts[d])).rem_euclid(values.ne[d] as i64) as usize))
            });
            Model::new(&rolled, t.dtype(), m.error)
        });
        Ok(p.made(t, model))
    }),
    op("interpolate", |p| {
        let a = p.f32();
        let how = InterpolateOptions::new(p.one(&[
            InterpolateMode::Nearest,
            InterpolateMode::Bilinear,
            InterpolateMode::Bicubic,
        ]))
        .with_align_corners(p.chance(3))
        .with_antialias(p.chance(4));
        let [n0, n1, n2, n3] = a.ne();
        let shape = [p.dim(), p.dim(), if p.rng.bool() { n2 } else { p.rng.i64(1..4) }, n3];
        let shape = if p.chance(4) { [n0.saturating_mul(2), n1.saturating_mul(2), n2, n3] } else { shape };
        let t = build!(p, interpolate(a.t, shape, how));
        Ok(p.only(t))
    }),
    op("win_part", |p| {
        let a = p.plain()?;
        let w = p.int(1, 4);
        let t = build!(p, win_part(a.t, w));
        Ok(p.only(t))
    }),
    op("win_unpart", |p| {
        let (w, n0) = (p.rng.i64(1..4), p.dim());
        let (width, height) = (p.int(1, 8), p.int(1, 8));
        let count = [width, height].into_iter().map(|n| (i64::from(n.clamp(1, 9)) + w - 1) / w).product();
        let a = p.fresh(DType::F32, [n0, w, w, count])?;
        let t = build!(p, win_unpart(a.t, width, height));
        Ok(p.only(t))
    }),
];
