//! Windows that move over images.

use ggml::prelude::*;
use ggml::{Conv2d, Pool, Pool2d};

use super::{Op, op};
use crate::draw::{Draw, Known, build};

fn how(p: &mut Draw<'_, '_>) -> Conv2d {
    let mut how = Conv2d::default();
    how.stride = [p.int(1, 3), p.int(1, 3)];
    how.padding = [p.int(0, 2), p.int(0, 2)];
    how.dilation = [p.int(1, 2), p.int(1, 2)];
    how
}

/// An image, and a kernel of its depth.
fn image<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let x = p.of(&[DType::F32, DType::F32, DType::F16]);
    let (w, h, n) = (p.rng.i64(1..4), p.rng.i64(1..4), p.rng.i64(1..4));
    let dtype = p.one(&[DType::F32, DType::F16]);
    let kernel = p.operand(dtype, [w, h, x.ne()[2], n])?;
    Ok((kernel, x))
}

pub(super) const OPS: &[Op] = &[
    op("conv_2d", |p| {
        let (kernel, x) = image(p)?;
        let how = how(p);
        let t = build!(p, conv_2d(kernel.t, x.t, how));
        Ok(p.only(t))
    }),
    op("im2col", |p| {
        let (kernel, x) = image(p)?;
        let (how, dtype) = (how(p), p.dtype(&[DType::F32, DType::F16]));
        let t = build!(p, im2col(kernel.t, x.t, how, dtype));
        Ok(p.only(t))
    }),
    op("pool_2d", |p| {
        let x = p.of(&[DType::F32, DType::F32, DType::F16]);
        let mut how = Pool2d::square(1);
        how.window = [p.int(1, 4), p.int(1, 4)];
        how.stride = [p.int(1, 4), p.int(1, 4)];
        how.padding = how.window.map(|k| p.int(0, (k / 2).clamp(0, 9)));
        let pool = p.one(&[Pool::Max, Pool::Avg]);
        let t = build!(p, pool_2d(x.t, pool, how));
        Ok(p.only(t))
    }),
];
