//! Pools of images.

use ggml::Result;
use ggml::ops::{PoolOp, PoolOptions};
use ggml::prelude::*;

use super::case::{Case, Operand, f32, of};
use super::draw::Source;
use super::row::Row;
use super::{F16, F32, PLAIN};
use crate::array::Array;

const OPS: [PoolOp; 2] = [PoolOp::Max, PoolOp::Avg];

type MakePool<const N: usize> = for<'c> fn(&'c Context, Tensor<'c>, PoolOp, PoolOptions<N>) -> Result<Tensor<'c>>;

const ROW: MakePool<1> = |c, t, op, how| c.pool_1d(t, op, how);
const IMAGE: MakePool<2> = |c, t, op, how| c.pool_2d(t, op, how);

/// The window, the step and the padding in one dimension.
#[derive(Debug, Clone, Copy)]
struct Axis {
    window: i64,
    stride: i64,
    padding: i64,
}

/// The axes of images; a row is one that is one pixel high.
fn axes<const N: usize>(how: PoolOptions<N>) -> [Axis; 2] {
    let of = |values: [i32; N], d: usize, one: i64| values.get(d).map_or(one, |&n| n.into());
    [0, 1].map(|d| Axis { window: of(how.window, d, 1), stride: of(how.stride, d, 1), padding: of(how.padding, d, 0) })
}

impl Axis {
    /// The number of windows over `n` elements.
    fn count(self, n: usize) -> usize {
        ((n as i64 + 2 * self.padding - self.window) / self.stride + 1).max(0) as usize
    }

    /// The elements of a window.
    fn seen(self, n: usize, at: usize) -> std::ops::Range<usize> {
        let first = at as i64 * self.stride - self.padding;
        let inside = |i: i64| i.clamp(0, n as i64) as usize;
        inside(first)..inside(first + self.window)
    }
}

/// The elements of a window.
fn pixels([x, y]: [Axis; 2], ne: [usize; 4], [ox, oy, c, n]: [usize; 4]) -> Vec<[usize; 4]> {
    y.seen(ne[1], oy).flat_map(|j| x.seen(ne[0], ox).map(move |i| [i, j, c, n])).collect()
}

fn pooled([x, y]: [Axis; 2], [n0, n1, n2, n3]: [usize; 4]) -> [usize; 4] {
    [x.count(n0), y.count(n1), n2, n3]
}

/// What a mean is divided by: only images count their padding.
fn area<const N: usize>([x, y]: [Axis; 2], seen: usize) -> f64 {
    if N == 1 { seen.max(1) as f64 } else { (x.window * y.window) as f64 }
}

/// A pool over rows or images.
fn pool<const N: usize>(make: MakePool<N>, x: Operand, op: PoolOp, how: PoolOptions<N>) -> Case {
    let axes = axes(how);
    let reference = move |x: &[Array]| {
        Array::of(pooled(axes, x[0].ne), |i| {
            let seen = pixels(axes, x[0].ne, i).into_iter().map(|i| x[0].at(i));
            match op {
                PoolOp::Max => seen.fold(f64::from(f32::MIN), f64::max),
                PoolOp::Avg => seen.clone().sum::<f64>() / area::<N>(axes, seen.len()),
            }
        })
    };
    let case = Case::new([x], move |c, t| make(c, t[0], op, how));
    case.with((op, how)).is(reference).laid(PLAIN).makes(F32).off(if op == PoolOp::Max { 1e-6 } else { 1e-5 }).sums()
}

/// The gradient goes to the largest element of each window, or to all in equal parts.
fn pool_back(grad: Operand, x: Operand, op: PoolOp, how: PoolOptions<2>) -> Case {
    let axes = axes(how);
    let reference = move |x: &[Array]| {
        let mut all = Array::of(x[1].ne, |_| 0.0);
        Array::of(x[0].ne, |i| {
            let seen = pixels(axes, x[1].ne, i);
            if op == PoolOp::Avg {
                for &pixel in &seen {
                    let at = all.position(pixel);
                    all.data[at] += x[0].at(i) / area::<2>(axes, seen.len());
                }
            } else if let Some(most) = seen.into_iter().reduce(|a, b| if x[1].at(b) > x[1].at(a) { b } else { a }) {
                let at = all.position(most);
                all.data[at] += x[0].at(i);
            }
            0.0
        });
        all
    };
    let case = Case::new([grad, x], move |c, t| c.pool_2d_back(t[0], t[1], op, how)).with((op, how));
    case.is(reference).laid(PLAIN).off(1e-5)
}

fn windows<const N: usize>(s: &mut dyn Source) -> PoolOptions<N> {
    let how = PoolOptions::new(s.ints(1, 4)).with_stride(s.ints(1, 4));
    how.with_padding(how.window.map(|k| s.int(0, k.clamp(0, 8) + 1)))
}

fn drawn<const N: usize>(s: &mut dyn Source, make: MakePool<N>) -> Case {
    let (x, op) = (s.first(&[F32, F32, F16]), s.one(&OPS));
    pool(make, x, op, windows(s))
}

fn drawn_back(s: &mut dyn Source) -> Case {
    let (x, op, how) = (s.plain(), s.one(&OPS), windows(s));
    let sane = x.ne.iter().all(|n| (1..1 << 20).contains(n)) && how.stride.iter().all(|&n| n > 0);
    let ne = sane.then(|| pooled(axes(how), x.ne)).filter(|ne| !ne.contains(&0)).unwrap_or([2, 3, 4, 1]);
    pool_back(of(F32, ne), x, op, how)
}

/// Windows of images, among them some that lie in the padding.
fn some<const N: usize>() -> Vec<PoolOptions<N>> {
    let all = [
        ([2, 2], [2, 2], [0, 0]),
        ([3, 3], [3, 3], [0, 0]),
        ([3, 2], [1, 2], [1, 1]),
        ([2, 4], [3, 1], [1, 0]),
        ([1, 1], [1, 1], [0, 0]),
        ([1, 1], [1, 1], [1, 1]),
        ([2, 3], [2, 1], [5, 3]),
        ([5, 3], [2, 3], [2, 1]),
        ([4, 3], [7, 3], [1, 1]),
        ([3, 3], [2, 2], [7, 1]),
    ];
    let first = |v: [i32; 2]| std::array::from_fn(|i| v[i]);
    all.map(|(w, s, p)| PoolOptions::new(first(w)).with_stride(first(s)).with_padding(first(p))).into()
}

fn pools<const N: usize>(name: &'static str, op: &'static str, make: MakePool<N>) -> Row {
    let shapes = [[8, 6, 2, 3], [5, 5, 1, 1], [37, 4, 1, 2]];
    let types = [F32, F16].into_iter().flat_map(|dtype| shapes.map(|ne| (dtype, ne)));
    let row = Row::new(name, op).all(types, |row, (dtype, ne)| {
        row.all(OPS, |row, op| row.all(some::<N>(), |row, how| row.with(pool(make, of(dtype, ne), op, how).near(2e-3))))
    });
    row.all(OPS, |row, op| {
        row.all([2, 3], |row, w| row.with(pool(make, f32([18, 20, 3, 2]), op, PoolOptions::new([w; N]))).must())
    })
}

pub(super) fn rows() -> [Row; 3] {
    let shapes = [[8, 6, 2, 3], [5, 5, 1, 1], [9, 4, 1, 2]];
    let back = Row::new("pool_2d_back", "POOL_2D_BACK").drawn(drawn_back).all(shapes, |row, ne| {
        row.all(OPS, |row, op| {
            row.all(some::<2>(), |row, how| row.with(pool_back(of(F32, pooled(axes(how), ne)), of(F32, ne), op, how)))
        })
    });
    [
        pools("pool_1d", "POOL_1D", ROW).drawn(|s| drawn(s, ROW)).no_meta(),
        pools("pool_2d", "POOL_2D", IMAGE).drawn(|s| drawn(s, IMAGE)).learns(),
        back.no_vulkan().no_meta(),
    ]
}
