//! Functions of pairs of elements.

use ggml::prelude::*;

use super::{Op, op};
use crate::draw::{Draw, Known, build};

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

macro_rules! binary {
    ($($name:ident $f:expr;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let (a, b) = pair(p)?;
                let t = build!(p, $name(a.t, b.t));
                Ok(p.zip(t, &a, &b, 1e-6, $f))
            }),
        )*]
    };
}

pub(super) const OPS: &[Op] = binary! {
    add |x, y| x + y;
    sub |x, y| x - y;
    mul |x, y| x * y;
};

pub(super) const DIV: &[Op] = &[op("div", |p| {
    let (a, b) = pair(p)?;
    let t = build!(p, div(a.t, b.t));
    // Not followed where the divisor may be near 0.
    let clear = b.model.as_ref().is_some_and(|m| m.array().data.iter().all(|y| y.abs() > 4.0 * m.error + 1e-3));
    let made = p.zip(t, &a, &b, 1e-6, |x, y| x / y);
    Ok(if clear { made } else { p.only(t) })
})];
