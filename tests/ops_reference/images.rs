//! Convolution and pooling.

use ggml::prelude::*;
use ggml::{Conv2d, Pool, Pool2d};

use super::array::Array;
use super::run::{BF16, F16, F32, Layout, Program};

fn steps([across, down]: [i32; 2]) -> [i64; 2] {
    [across.into(), down.into()]
}

/// The element of a plane of `a` at a place that may lie beyond its border.
fn padded(a: &Array, [x, y]: [i64; 2], plane: [usize; 2]) -> Option<f64> {
    let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
    (x < a.ne[0] && y < a.ne[1]).then(|| a.at([x, y, plane[0], plane[1]]))
}

fn output(input: usize, window: usize, stride: i64, padding: i64, dilation: i64) -> usize {
    let reach = dilation * (window as i64 - 1) + 1;
    ((input as i64 + 2 * padding - reach) / stride + 1) as usize
}

fn convolved(kernel: &Array, a: &Array, how: Conv2d) -> Array {
    let (s, p, d) = (steps(how.stride), steps(how.padding), steps(how.dilation));
    let size = |i: usize| output(a.ne[i], kernel.ne[i], s[i], p[i], d[i]);
    Array::from_fn([size(0), size(1), kernel.ne[3], a.ne[3]], |[x, y, out, batch]| {
        let mut sum = 0.0;
        for channel in 0..kernel.ne[2] {
            for j in 0..kernel.ne[1] {
                for i in 0..kernel.ne[0] {
                    let place = [x as i64 * s[0] + i as i64 * d[0] - p[0], y as i64 * s[1] + j as i64 * d[1] - p[1]];
                    sum += padded(a, place, [channel, batch]).unwrap_or(0.0) * kernel.at([i, j, channel, out]);
                }
            }
        }
        sum
    })
}

fn ways() -> [Conv2d; 5] {
    let plain = Conv2d::default();
    let mut ways = [plain, Conv2d::padded(1), plain, plain, plain];
    ways[2].stride = [2, 3];
    ways[3].dilation = [2, 1];
    ways[3].padding = [2, 0];
    (ways[4].stride, ways[4].padding, ways[4].dilation) = ([3, 1], [1, 4], [1, 2]);
    ways
}

#[test]
fn convolutions() {
    for how in ways() {
        for (tk, tolerance) in [(F32, 1e-5), (F16, 5e-3), (BF16, 1e-5)] {
            for layout in [Layout::PACKED, Layout { order: [0, 1, 3, 2], pad: [0, 0, 1, 2] }] {
                for nk in [[3, 3, 4, 5], [1, 1, 4, 2], [2, 3, 4, 1]] {
                    let kernel = Array::noise(nk, 0.5, 1, tk);
                    let a = Array::noise([9, 8, 4, 3], 1.0, 2, F32);
                    let ctx = Context::new();
                    let p = Program::new(&ctx);
                    let y = ctx.conv_2d(p.input(&kernel, tk), p.laid_out(&a, F32, layout), how).unwrap();
                    let what = format!("{how:?} {tk} {nk:?} {layout:?}");
                    p.run(y).assert_near(&convolved(&kernel, &a, how), tolerance, &what);
                }
            }
        }
    }
}

#[test]
fn convolutions_of_one_pixel() {
    let kernel = Array::noise([1, 1, 2, 3], 0.5, 3, F32);
    let a = Array::noise([1, 1, 2, 1], 1.0, 4, F32);
    let ctx = Context::new();
    let p = Program::new(&ctx);
    let y = ctx.conv_2d(p.input(&kernel, F32), p.input(&a, F32), Conv2d::default()).unwrap();
    p.run(y).assert_near(&convolved(&kernel, &a, Conv2d::default()), 1e-6, "one pixel");
}

#[test]
fn what_a_convolution_sees() {
    for how in ways() {
        for (from, to) in [(F32, F32), (F32, F16), (F16, F16)] {
            let a = Array::noise([9, 8, 2, 3], 1.0, 5, from);
            let kernel = Array::from_fn([3, 2, 2, 1], |_| 0.0);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.im2col(p.input(&kernel, F32), p.input(&a, from), how, to).unwrap();
            assert_eq!(y.dtype(), to);
            let (s, pad, d) = (steps(how.stride), steps(how.padding), steps(how.dilation));
            let size = |i: usize| output(a.ne[i], kernel.ne[i], s[i], pad[i], d[i]);
            let want = Array::from_fn([12, size(0), size(1), 3], |[k, x, y, batch]| {
                let (i, j, channel) = (k % 3, k / 3 % 2, k / 6);
                let place = [x as i64 * s[0] + i as i64 * d[0] - pad[0], y as i64 * s[1] + j as i64 * d[1] - pad[1]];
                padded(&a, place, [channel, batch]).unwrap_or(0.0)
            });
            assert_eq!(p.run(y), want.rounded(to), "{how:?} {from} {to}");
        }
    }
}

#[test]
fn pools() {
    let mut uneven = Pool2d::square(2);
    (uneven.window, uneven.stride, uneven.padding) = ([3, 2], [1, 3], [1, 0]);
    let mut apart = Pool2d::square(2);
    apart.stride = [3, 4];
    let mut all = Pool2d::square(1);
    (all.window, all.padding) = ([9, 10], [0, 1]);
    for how in [Pool2d::square(1), Pool2d::square(2), uneven, apart, all] {
        for dtype in [F32, F16] {
            for pool in [Pool::Max, Pool::Avg] {
                let a = Array::noise([9, 8, 3, 2], 4.0, 6, dtype);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let y = ctx.pool_2d(p.input(&a, dtype), pool, how).unwrap();
                assert_eq!(y.dtype(), F32);
                let (k, s, pad) = (steps(how.window), steps(how.stride), steps(how.padding));
                let size = |i: usize| output(a.ne[i], k[i] as usize, s[i], pad[i], 1);
                let want = Array::from_fn([size(0), size(1), 3, 2], |[x, y, channel, batch]| {
                    let (mut sum, mut most) = (0.0, f64::NEG_INFINITY);
                    for j in 0..k[1] {
                        for i in 0..k[0] {
                            let place = [x as i64 * s[0] + i - pad[0], y as i64 * s[1] + j - pad[1]];
                            if let Some(v) = padded(&a, place, [channel, batch]) {
                                sum += v;
                                most = most.max(v);
                            }
                        }
                    }
                    if pool == Pool::Max { most } else { sum / (k[0] * k[1]) as f64 }
                });
                p.run(y).assert_near(&want, 1e-6, &format!("{how:?} {dtype} {pool:?}"));
            }
        }
    }
}
