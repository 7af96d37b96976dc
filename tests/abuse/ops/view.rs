//! Looking at a tensor's memory in another way.

use super::{Op, op};
use crate::bench::Known;
use crate::draw::{Draw, build};
use crate::model::{Model, packed};
use crate::results::permuted;

pub(super) const OPS: &[Op] = &[
    op("reshape", |p| {
        let a = p.pick(|k| k.t.is_contiguous());
        let n = i64::try_from(a.t.elements()).unwrap_or(i64::MAX);
        let shape = if p.chance(4) {
            [p.dim(), p.dim(), p.dim(), p.dim()]
        } else {
            // Divisors, one after the other.
            let block = a.dtype().block_size();
            let (mut rest, mut shape) = ((n / block).max(1), [1; 4]);
            for to in shape.iter_mut().take(3) {
                let divisors: Vec<_> = (1..=rest.min(64)).filter(|d| rest % d == 0).collect();
                *to = p.one(&divisors);
                rest /= *to;
            }
            shape[3] = rest;
            shape[0] = shape[0].saturating_mul(block);
            shape
        };
        let t = build!(p, reshape(a.t, shape));
        let ne = shape.map(|n| n as usize);
        Ok(p.look(t, &a, a.model.as_ref().map(|m| m.view(ne, packed(m.dtype, ne), 0))))
    }),
    op("permute", |p| {
        let a = p.any();
        let mut axes = [0, 1, 2, 3];
        p.rng.shuffle(&mut axes);
        if p.wild() {
            axes[p.rng.usize(..4)] = p.count(0, 3);
        }
        if a.dtype().block_size() > 1 && !p.wild() {
            axes = p.one(&[[0, 2, 1, 3], [0, 1, 3, 2], [0, 3, 2, 1]]);
        }
        let t = build!(p, permute(a.t, axes));
        Ok(p.look(t, &a, a.model.as_ref().map(|m| permuted(m, axes))))
    }),
    op("transpose", |p| {
        let a = p.any();
        let t = build!(p, transpose(a.t));
        Ok(p.look(t, &a, a.model.as_ref().map(|m| permuted(m, [1, 0, 2, 3]))))
    }),
    op("view", |p| {
        let a = p.any();
        let (unit, block) = (a.dtype().type_size(), a.dtype().block_size());
        let ([n0, n1, n2, n3], [_, nb1, nb2, nb3]) = (a.ne(), a.t.nb());
        let (shape, strides, offset) = match p.rng.u32(..5) {
            // Anything.
            0 => {
                let shape = [p.dim(), p.dim(), p.dim(), p.dim()];
                (shape, [p.bytes(unit, 64), p.bytes(unit, 64), p.bytes(unit, 64)], p.bytes(unit, 30))
            }
            // A row length, rows, some way apart.
            1 => {
                let shape = [p.rng.i64(1..5) * block, p.rng.i64(1..4), 1, 1];
                ([shape[0], shape[1], 1, 1], [p.bytes(unit, 40), 0, 4], p.bytes(unit, 8))
            }
            // Elements of other roots' memory, that is: beyond what `a` itself is.
            2 => ([n0, n1, n2, n3], [nb1, nb2, nb3], p.bytes(unit, 8)),
            // A part of `a`.
            _ => {
                let mut part = |n: i64, unit: i64| {
                    let n = (n / unit).max(1);
                    let from = p.rng.i64(0..n);
                    (from as usize, (p.rng.i64(1..=n - from)) * unit)
                };
                let ((f0, s0), (f1, s1), (f2, s2), (f3, s3)) = (part(n0, block), part(n1, 1), part(n2, 1), part(n3, 1));
                let offset = f0
                    .wrapping_mul(unit)
                    .wrapping_add(f1.wrapping_mul(nb1))
                    .wrapping_add(f2.wrapping_mul(nb2))
                    .wrapping_add(f3.wrapping_mul(nb3));
                ([s0, s1, s2, s3], [nb1, nb2, nb3], offset)
            }
        };
        let is_leaf = p.bench.targets.iter().chain(&p.bench.weights).any(|leaf| leaf.root == a.root);
        let offset = if is_leaf { offset.wrapping_add(p.bench.wander * unit) } else { offset };
        let t = build!(p, view(a.t, shape, strides, offset));
        let [nb1, nb2, nb3] = strides;
        let model = a.model.as_ref().map(|m| m.view(shape.map(|n| n as usize), [unit, nb1, nb2, nb3], offset));
        Ok(p.look(t, &a, model))
    }),
    op("view_1d", |p| {
        let a = p.any();
        let ([n, ..], offset) = in_order(p, &a, 1);
        let t = build!(p, view_1d(a.t, n, offset));
        Ok(p.look(t, &a, looked_at(&a, [n, 1, 1, 1], offset)))
    }),
    op("view_2d", |p| {
        let a = p.any();
        let ([n0, n1, ..], offset) = in_order(p, &a, 2);
        let t = build!(p, view_2d(a.t, [n0, n1], offset));
        Ok(p.look(t, &a, looked_at(&a, [n0, n1, 1, 1], offset)))
    }),
    op("view_3d", |p| {
        let a = p.any();
        let ([n0, n1, n2, _], offset) = in_order(p, &a, 3);
        let t = build!(p, view_3d(a.t, [n0, n1, n2], offset));
        Ok(p.look(t, &a, looked_at(&a, [n0, n1, n2, 1], offset)))
    }),
];

/// Dimensions and an offset of a contiguous view, mostly of one inside of `a`.
fn in_order<'c>(p: &mut Draw<'_, 'c>, a: &Known<'c>, n_dims: usize) -> ([i64; 4], usize) {
    let (unit, block) = (a.dtype().type_size(), a.dtype().block_size());
    if p.chance(5) {
        return ([p.dim(), p.dim(), p.dim(), 1], p.bytes(unit, 30));
    }
    let mut ne = [1; 4];
    let mut rest = i64::try_from(a.t.elements()).unwrap_or(1) / block;
    for to in ne.iter_mut().take(n_dims) {
        *to = p.rng.i64(1..=rest.clamp(1, 16));
        rest /= *to;
    }
    ne[0] *= block;
    (ne, p.rng.usize(..=rest.clamp(0, 8) as usize) * unit)
}

/// What a contiguous view shows.
fn looked_at(a: &Known<'_>, ne: [i64; 4], offset: usize) -> Option<Model> {
    let ne = ne.map(|n| n as usize);
    a.model.as_ref().map(|m| m.view(ne, packed(m.dtype, ne), offset))
}
