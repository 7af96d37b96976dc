//! Writing one tensor into a part of another, or adding it there, or rows by index.

use ggml::ops::SetOptions;
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::{Known, Made, Memory};
use crate::draw::{Draw, build};

/// A place for a part of `a`: its shape, strides above the first, and offset.
fn place(p: &mut Draw<'_, '_>, a: &Known<'_>) -> ([i64; 4], [usize; 3], usize) {
    let ([nb0, nb1, nb2, nb3], unit) = (a.t.nb(), a.dtype().type_size());
    if p.chance(6) {
        let shape = [p.dim(), p.dim(), p.rng.i64(1..3), 1];
        return (shape, [p.bytes(unit, 40), p.bytes(unit, 80), p.bytes(unit, 80)], p.bytes(unit, 20));
    }
    let mut offset = 0_usize;
    let mut shape = [1; 4];
    for ((to, n), nb) in shape.iter_mut().zip(a.ne()).zip([nb0, nb1, nb2, nb3]) {
        let from = p.rng.i64(0..n.max(1));
        *to = p.rng.i64(1..=(n - from).max(1));
        offset = offset.wrapping_add(nb.wrapping_mul(from as usize));
    }
    (shape, [nb1, nb2, nb3], offset)
}

/// What `set` and its like make of their operands.
fn made<'c>(
    p: &Draw<'_, 'c>,
    t: Tensor<'c>,
    [a, b]: [&Known<'c>; 2],
    (strides, offset): ([usize; 3], usize),
    add: bool,
    in_place: bool,
) -> Made<'c> {
    let model = a.model.as_ref().zip(b.model.as_ref()).and_then(|(a, b)| {
        let whole = if in_place { a.clone() } else { a.contiguous() };
        let [nb1, nb2, nb3] = strides;
        let part = whole.view(b.ne, [a.dtype.type_size(), nb1, nb2, nb3], offset);
        whole.patched(&part, b, add)
    });
    let memory = if in_place { Memory::Written(a.root) } else { Memory::New };
    Made { memory, ..p.made(t, model) }
}

/// An operand that is written to, or copied and written to.
fn whole<'c>(p: &mut Draw<'_, 'c>, in_place: bool) -> Known<'c> {
    if in_place { p.writable() } else { p.pick(|k| k.dtype() == DType::F32 && k.t.is_contiguous()) }
}

macro_rules! parts {
    ($($name:ident $add:literal $in_place:literal;)*) => {
        &[$(
            op(stringify!($name), |p| {
                let a = whole(p, $in_place);
                let (shape, strides, offset) = place(p, &a);
                let b = p.operand(a.dtype(), shape)?;
                let mut part = SetOptions::new(offset);
                let own = strides == [a.t.nb()[1], a.t.nb()[2], a.t.nb()[3]];
                if !own || p.rng.bool() {
                    part = part.with_strides(strides);
                }
                let t = build!(p, $name(a.t, b.t, part));
                Ok(made(p, t, [&a, &b], (strides, offset), $add, $in_place))
            }),
        )*]
    };
}

pub(super) const TABLE: &[Op] = parts! {
    set false false;
    set_inplace false true;
    acc true false;
    acc_inplace true true;
};

macro_rules! rows {
    ($($one:ident $two:ident $in_place:literal;)*) => {
        &[$(
            op(stringify!($one), |p| {
                let a = whole(p, $in_place);
                let (shape, _, offset) = place(p, &a);
                let b = p.operand(a.dtype(), [shape[0], 1, 1, 1])?;
                let t = build!(p, $one(a.t, b.t, offset));
                let [_, nb1, nb2, nb3] = a.t.nb();
                Ok(made(p, t, [&a, &b], ([nb1, nb2, nb3], offset), false, $in_place))
            }),
            op(stringify!($two), |p| {
                let a = whole(p, $in_place);
                let (shape, strides, offset) = place(p, &a);
                let b = p.operand(a.dtype(), [shape[0], shape[1], 1, 1])?;
                let stride = strides[0];
                let t = build!(p, $two(a.t, b.t, stride, offset));
                let [_, _, nb2, nb3] = a.t.nb();
                Ok(made(p, t, [&a, &b], ([stride, nb2, nb3], offset), false, $in_place))
            }),
        )*]
    };
}

pub(super) const ROWS: &[Op] = rows! {
    set_1d set_2d false;
    set_1d_inplace set_2d_inplace true;
};

pub(super) const BY_INDEX: &[Op] = &[op("set_rows", |p| {
    let a = p.writable();
    let [n, all, n2, n3] = a.ne();
    let b1 = p.long(1, all.clamp(1, 8));
    let dtype = p.one(&[DType::F32, DType::F32, DType::F16]);
    let b = p.operand(dtype, [n, b1, n2, n3])?;
    let (r1, r2) = (if p.rng.bool() { n2 } else { 1 }, if p.rng.bool() { n3 } else { 1 });
    let kind = p.one(&[DType::I32, DType::I64]);
    let rows = p.distinct(kind, [b1, r1, r2, 1], all)?;
    let t = build!(p, set_rows(a.t, b.t, rows.t));
    Ok(p.wrote(t, &a, None))
})];
