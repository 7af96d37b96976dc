//! Functions of pairs of elements.

use ggml::prelude::*;

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};
use crate::results::zipped;

/// Whether `b` repeats over `a`.
pub(super) fn repeats(b: [i64; 4], a: [i64; 4]) -> bool {
    b.iter().zip(a).all(|(b, a)| a % b == 0)
}

/// Two operands of types that fit, the second repeated over the first.
pub(super) fn pair<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let a = p.real();
    let wide = p.chance(4) && a.dtype() != DType::F32;
    let (dtype, ne) = (if wide { DType::F32 } else { a.dtype() }, a.ne());
    if let Some(b) = p.find(|k| k.dtype() == dtype && repeats(k.ne(), ne)).filter(|_| p.rng.bool()) {
        return Ok((a, b));
    }
    let ones = p.rng.u8(..);
    let mut shape = ne;
    for (i, n) in shape.iter_mut().enumerate().filter(|(i, _)| ones >> i & 1 == 1) {
        *n = if ones >> (i + 4) & 1 == 1 && *n % 2 == 0 { *n / 2 } else { 1 };
    }
    let b = p.operand(dtype, shape)?;
    Ok((a, b))
}

/// An operand that may be written to, and one that repeats over it.
fn target<'c>(p: &mut Draw<'_, 'c>) -> ggml::Result<(Known<'c>, Known<'c>)> {
    let a = p.writable();
    let ne = a.ne();
    let b = if p.rng.bool() {
        p.pick(|k| k.dtype() == a.dtype() && repeats(k.ne(), ne))
    } else {
        let n0 = if p.rng.bool() { ne[0] } else { 1 };
        p.operand(a.dtype(), [n0, ne[1], 1, ne[3]])?
    };
    Ok((a, b))
}

macro_rules! binary {
    ($($name:ident, $inplace:ident $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let (a, b) = pair(p)?;
                let t = build!(p, $name(a.t, b.t));
                Ok(p.zip(t, &a, &b, 1e-6, $f))
            }),
            op(stringify!($inplace), |p| {
                let (a, b) = target(p)?;
                let t = build!(p, $inplace(a.t, b.t));
                Ok(p.wrote(t, &a, zipped(&a, &b, 1e-6, $f)))
            }),
        )*]
    };
}

pub(super) const TABLE: &[Op] = binary! {
    add, add_inplace |x, y| x + y;
    sub, sub_inplace |x, y| x - y;
    mul, mul_inplace |x, y| x * y;
};

/// Whether no divisor may be near 0.
fn is_clear(b: &Known<'_>) -> bool {
    b.model.as_ref().is_some_and(|m| m.array().data.iter().all(|y| y.abs() > 4.0 * m.error + 1e-3))
}

pub(super) const OPS: &[Op] = &[
    op("div", |p| {
        let (a, b) = pair(p)?;
        let t = build!(p, div(a.t, b.t));
        let made = p.zip(t, &a, &b, 1e-6, |x, y| x / y);
        Ok(if is_clear(&b) { made } else { p.only(t) })
    }),
    op("div_inplace", |p| {
        let (a, b) = target(p)?;
        let t = build!(p, div_inplace(a.t, b.t));
        Ok(p.wrote(t, &a, zipped(&a, &b, 1e-6, |x, y| x / y).filter(|_| is_clear(&b))))
    }),
    op("add1", |p| {
        let a = p.real();
        let dtype = if p.rng.bool() { DType::F32 } else { a.dtype() };
        let b = p.operand(dtype, [1; 4])?;
        let t = build!(p, add1(a.t, b.t));
        Ok(p.zip(t, &a, &b, 1e-6, |x, y| x + y))
    }),
    op("add1_inplace", |p| {
        let a = p.writable();
        let b = p.operand(DType::F32, [1; 4])?;
        let t = build!(p, add1_inplace(a.t, b.t));
        Ok(p.wrote(t, &a, zipped(&a, &b, 1e-6, |x, y| x + y)))
    }),
    op("add_cast", |p| {
        let types = [DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0];
        let a = p.of(&types);
        let b = p.operand(DType::F32, a.ne())?;
        let to = p.dtype(&[DType::F32, a.dtype()]);
        let t = build!(p, add_cast(a.t, b.t, to));
        // Quantised sums are rounded in other ways.
        Ok(if t.dtype().is_quantized() { p.only(t) } else { p.zip(t, &a, &b, 1e-6, |x, y| x + y) })
    }),
];
