//! Operations written in Rust.

use ggml::ops::{CustomOp, CustomOptions, Rows};
use ggml::prelude::*;

use super::{Op, op};
use crate::bench::LARGEST;
use crate::draw::Draw;
use crate::hostile::{Bomb, Place};
use crate::results::{mapped, zipped};

/// Calls a builder with a closure, its last argument, which can't be shown.
macro_rules! closure {
    ($p:expr, $name:ident [$($types:tt)*] ($($arg:expr),*; |$($param:pat_param),*| $body:expr)) => {{
        $p.trace(stringify!($name), &($(&$arg,)*));
        let bomb = Bomb;
        let t = $p.ctx.$name $($types)* ($($arg,)* move |$($param),*| {
            bomb.act(Place::Custom);
            $body
        })?;
        if t.elements() > LARGEST {
            return Ok($p.only(t));
        }
        t
    }};
}

/// An element of an operand that is repeated.
fn repeated(z: Rows<'_, f32>, i: [usize; 4]) -> f32 {
    let ne = z.shape();
    z.at([0, 1, 2, 3].map(|d| i[d] % ne[d]))
}

fn how(p: &mut Draw<'_, '_>) -> CustomOptions {
    CustomOptions::new()
        .with_n_tasks(p.rng.bool().then(|| p.count(1, 4)))
        .with_split(p.rng.bool().then(|| p.count(1, 3)))
}

pub(super) const OPS: &[Op] = &[
    op("map_custom1", |p| {
        let (a, how) = (p.f32(), how(p));
        let t = closure!(p, map_custom1 [::<f32>] (a.t, how; |out, x| for ([i, j, k], row) in out {
            for (n, y) in row.iter_mut().enumerate() {
                *y = 2.0 * x.at([n, i, j, k]) + 1.0;
            }
        }));
        Ok(p.map(t, &a, 1e-6, |x| 2.0 * x + 1.0))
    }),
    op("map_custom1_inplace", |p| {
        let (a, how) = (p.writable(), how(p));
        let t = closure!(p, map_custom1_inplace [::<f32>] (a.t, how; |out| for (_, row) in out {
            for y in row.iter_mut() {
                *y += 1.0;
            }
        }));
        Ok(p.wrote(t, &a, mapped(&a, 1e-6, |x| x + 1.0)))
    }),
    op("map_custom2", |p| {
        let (a, how) = (p.f32(), how(p));
        let b = p.operand(DType::F32, a.ne())?;
        let t = closure!(p, map_custom2 [::<f32, f32>] (a.t, b.t, how; |out, x, z| for ([i, j, k], row) in out {
            for (n, y) in row.iter_mut().enumerate() {
                *y = x.at([n, i, j, k]) + repeated(z, [n, i, j, k]);
            }
        }));
        Ok(p.zip(t, &a, &b, 1e-6, |x, y| x + y))
    }),
    op("map_custom2_inplace", |p| {
        let (a, how) = (p.writable(), how(p));
        let b = p.operand(DType::F32, a.ne())?;
        let t = closure!(p, map_custom2_inplace [::<f32, f32>] (a.t, b.t, how; |out, z| for ([i, j, k], row) in out {
            for (n, y) in row.iter_mut().enumerate() {
                *y -= repeated(z, [n, i, j, k]);
            }
        }));
        Ok(p.wrote(t, &a, zipped(&a, &b, 1e-6, |x, y| x - y)))
    }),
    op("map_custom3", |p| {
        let (a, how) = (p.f32(), how(p));
        let (b, d) = (p.operand(DType::F32, a.ne())?, p.any());
        let t = closure!(p, map_custom3 [::<f32, f32, f32>] (a.t, b.t, d.t, how; |out, x, _, z| for ([i, j, k], row) in out {
            for (n, y) in row.iter_mut().enumerate() {
                *y = x.at([n, i, j, k]) + z.at([0; 4]);
            }
        }));
        Ok(p.only(t))
    }),
    op("map_custom3_inplace", |p| {
        let (a, how) = (p.writable(), how(p));
        let (b, d) = (p.operand(DType::F32, a.ne())?, p.f32());
        let t = closure!(p, map_custom3_inplace [::<f32, f32, f32>] (a.t, b.t, d.t, how; |out, _, z| for (_, row) in out {
            row.fill(z.at([0; 4]));
        }));
        Ok(p.wrote(t, &a, None))
    }),
    op("custom", |p| {
        let (a, how) = (p.any(), how(p));
        let shape = [p.dim(), p.dim(), 1, 1];
        let operands = [a.t, p.any().t];
        let t = closure!(p, custom [::<f32>] (&operands, shape, how; |out, all| for (_, row) in out {
            row.fill(all.len() as f32);
        }));
        Ok(p.values(t, &testkit::array::Array::of(t.ne().map(|n| n as usize), |_| 2.0), 0.0))
    }),
    op("custom_op", |p| {
        let (a, how) = (p.any(), how(p));
        let shape = [p.dim(), p.dim(), 1, 1];
        let bomb = Bomb;
        let twice = CustomOp::<f32>::new(how, move |out, all| {
            bomb.act(Place::Custom);
            for (_, row) in out {
                row.fill(all.len() as f32);
            }
        });
        p.trace("custom_op", &(&shape, &how));
        let t = p.ctx.custom_op(&twice, &[a.t], shape)?;
        let t = p.ctx.custom_op(&twice, &[t, a.t, t], shape)?;
        if t.elements() > LARGEST {
            return Ok(p.only(t));
        }
        Ok(p.values(t, &testkit::array::Array::of(t.ne().map(|n| n as usize), |_| 3.0), 0.0))
    }),
    op("custom_inplace", |p| {
        let (a, how) = (p.writable(), how(p));
        let operands = [p.any().t];
        let t = closure!(p, custom_inplace [::<f32>] (a.t, &operands, how; |out, all| for (_, row) in out {
            for y in row.iter_mut() {
                *y *= all.len() as f32;
            }
        }));
        Ok(p.wrote(t, &a, mapped(&a, 0.0, |x| x)))
    }),
];
