//! Images and their edges: pools, sizes, padding, windows.

use ggml::ops::{InterpolateMode, InterpolateOptions, PadOptions, Pool1dOptions, Pool2dOptions, PoolOp};

use super::case::{f32, input};
use super::row::{Refused, Row};
use super::{F16, F32, I32, PLAIN, ROWS};
use crate::array::Array;

const SHAPE: [usize; 4] = [5, 4, 3, 2];

/// References are in `tests/ops/pool.rs` and `resize.rs`.
fn pools() -> Vec<Row> {
    let ops = [PoolOp::Max, PoolOp::Avg];
    let windows =
        [Pool2dOptions::new([2; 2]), Pool2dOptions::new([3; 2]), Pool2dOptions::new([3; 2]).with_padding([1; 2])];
    let modes = [InterpolateMode::Nearest, InterpolateMode::Bilinear, InterpolateMode::Bicubic];
    let hows =
        modes.into_iter().flat_map(|m| [false, true].map(|align| InterpolateOptions::new(m).with_align_corners(align)));
    let mut interpolate = Row::new("interpolate", "UPSCALE")
        .all(hows, |row, how| row.case([f32([7, 9, 3, 2])], move |c, t| c.interpolate(t[0], [16, 27, 3, 2], how)));
    interpolate.cases[0].must = true;
    vec![
        Row::new("pool_1d", "POOL_1D")
            .all(ops, |row, op| row.case([f32([20, 3])], move |c, t| c.pool_1d(t[0], op, Pool1dOptions::new([2]))))
            .no_meta(),
        Row::new("pool_2d", "POOL_2D")
            .all(ops, |row, op| {
                row.all(windows, |row, how| {
                    let row = row.case([f32([18, 20, 3, 2])], move |c, t| c.pool_2d(t[0], op, how));
                    if how.padding == [0; 2] { row.must() } else { row }
                })
            })
            .learns(),
        Row::new("pool_2d_back", "POOL_2D_BACK")
            .case([f32([10, 6, 3]), f32([20, 12, 3])], |c, t| {
                c.pool_2d_back(t[0], t[1], PoolOp::Avg, Pool2dOptions::new([2; 2]))
            })
            .no_vulkan()
            .no_meta(),
        interpolate,
    ]
}

/// Amounts to the left and to the right.
type Sides = ([i32; 4], [i32; 4]);

fn pad() -> Row {
    let sides: [Sides; 4] =
        [([0; 4], [1, 2, 3, 4]), ([0; 4], [0; 4]), ([2, 1, 3, 2], [0, 3, 1, 0]), ([5, 4, 3, 2], [11, 9, 0, 5])];
    let how = |(left, right): Sides| PadOptions::new().with_left(left).with_right(right);
    let from = |i: [usize; 4], left: [i32; 4]| [0, 1, 2, 3].map(|d| i[d] as i64 - i64::from(left[d]));
    let around = |(left, right): Sides| [0, 1, 2, 3].map(|d| SHAPE[d] + (left[d] + right[d]) as usize);
    let row = Row::new("pad", "PAD").all(sides, |row, sides| {
        row.case([f32(SHAPE)], move |c, t| c.pad(t[0], how(sides)))
            .is(move |x| {
                Array::of(around(sides), |i| {
                    let i = from(i, sides.0);
                    let inside = (0..4).all(|d| (0..SHAPE[d] as i64).contains(&i[d]));
                    if inside { x[0].at(i.map(|i| i as usize)) } else { 0.0 }
                })
            })
            .near(1e-6)
            .case([f32(SHAPE)], move |c, t| c.pad(t[0], how(sides).with_circular(true)))
            .is(move |x| {
                Array::of(around(sides), |i| {
                    let i = from(i, sides.0);
                    x[0].at([0, 1, 2, 3].map(|d| i[d].rem_euclid(SHAPE[d] as i64) as usize))
                })
            })
            .near(1e-6)
    });
    let mut row = row.all([-1, -5, i32::MIN], |row, bad| {
        row.all(0..4, |row, axis| {
            let mut n = [0; 4];
            n[axis] = bad;
            row.refuses(Refused::Param, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how((n, [0; 4]))))
                .refuses(Refused::Param, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how(([0; 4], n))))
        })
    });
    row.cases[0].must = true;
    row.refuses(Refused::Shape, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how(([0; 4], [i32::MAX; 4]))))
        .all([F16, I32], |row, dtype| {
            row.refuses(Refused::DType, move |c| c.pad(input(c, dtype, [5, 4]), PadOptions::new()))
        })
}

fn reflect() -> Row {
    let row = Row::new("pad_reflect_1d", "PAD_REFLECT_1D").all(
        [(0, 0), (1, 0), (0, 2), (4, 4), (3, 1)],
        |row, (left, right)| {
            row.case([f32(SHAPE)], move |c, t| c.pad_reflect_1d(t[0], left, right))
                .is(move |x| {
                    let [n0, n1, n2, n3] = x[0].ne;
                    Array::of([n0 + (left + right) as usize, n1, n2, n3], |[i, i1, i2, i3]| {
                        let i = (i as i32 - left).unsigned_abs() as usize;
                        x[0].at([if i < n0 { i } else { 2 * (n0 - 1) - i }, i1, i2, i3])
                    })
                })
                .laid(PLAIN)
                .near(1e-6)
        },
    );
    let row = row.case([f32([7, 1, 2])], |c, t| c.pad_reflect_1d(t[0], 4, 4)).near(1e-6);
    let row = row.all([-1, 5, 6, i32::MIN, i32::MAX], |row, bad| {
        row.refuses(Refused::Param, move |c| c.pad_reflect_1d(input(c, F32, [5, 4]), bad, 0))
            .refuses(Refused::Param, move |c| c.pad_reflect_1d(input(c, F32, [5, 4]), 0, bad))
    });
    row.refuses(Refused::Param, |c| c.pad_reflect_1d(input(c, F32, [1]), 1, 0))
        .all([F16, I32], |row, dtype| {
            row.refuses(Refused::DType, move |c| c.pad_reflect_1d(input(c, dtype, [5, 4]), 1, 1))
        })
        .no_meta()
}

fn roll() -> Row {
    let shifts = [[0; 4], [1, 0, 0, 0], [-1, 2, -2, 1], [4, -3, 1, 0], [0, 0, 0, -1]];
    let row = Row::new("roll", "ROLL").all(shifts, |row, by| {
        row.case([f32(SHAPE)], move |c, t| c.roll(t[0], by))
            .is(move |x| {
                Array::of(SHAPE, |i| {
                    x[0].at([0, 1, 2, 3].map(|d| (i[d] as i32 - by[d]).rem_euclid(SHAPE[d] as i32) as usize))
                })
            })
            .laid(ROWS)
            .near(1e-6)
    });
    let row = row.all([5, 4, 3, 2].into_iter().enumerate(), |row, (axis, n)| {
        row.all([n, -n, i32::MAX, i32::MIN], |row, bad| {
            let mut by = [0; 4];
            by[axis] = bad;
            row.refuses(Refused::Param, move |c| c.roll(input(c, F32, [5, 4, 3, 2]), by))
        })
    });
    row.all([F16, I32], |row, dtype| {
        row.refuses(Refused::Unsupported, move |c| c.roll(input(c, dtype, [5, 4]), [1, 0, 0, 0]))
    })
    .no_meta()
}

/// References are in `tests/ops/window.rs`.
fn windows() -> Vec<Row> {
    vec![
        Row::new("win_part", "WIN_PART")
            .case([f32([4, 9, 8])], |c, t| c.win_part(t[0], 5))
            .laid(PLAIN)
            .near(1e-6)
            .no_vulkan()
            .no_meta(),
        Row::new("win_unpart", "WIN_UNPART").call(|c, t| c.win_unpart(t[0], 1, 1)).no_vulkan(),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = pools();
    rows.extend([pad(), reflect(), roll()]);
    rows.extend(windows());
    rows
}
