//! Edges of images: padding, shifts, windows.

use ggml::ops::PadOptions;

use super::case::{Case, Operand, f32, input, of, sized};
use super::draw::Source;
use super::row::{Refused, Row};
use super::{F16, F32, I32, PLAIN, ROWS};
use crate::array::Array;

const SHAPE: [usize; 4] = [5, 4, 3, 2];

/// Adds to each dimension.
fn moved(i: [usize; 4], by: [i32; 4]) -> [i64; 4] {
    [0, 1, 2, 3].map(|d| i[d] as i64 + i64::from(by[d]))
}

/// The element at a position that goes on at the other end.
fn around(x: &Array, i: [i64; 4]) -> f64 {
    x.at([0, 1, 2, 3].map(|d| i[d].rem_euclid(x.ne[d] as i64) as usize))
}

fn pad_by(x: Operand, how: PadOptions) -> Case {
    let reference = move |x: &[Array]| {
        let ne = moved(x[0].ne, [0, 1, 2, 3].map(|d| how.left[d] + how.right[d])).map(|n| n as usize);
        Array::of(ne, |i| {
            let i = moved(i, how.left.map(|n| -n));
            let inside = (0..4).all(|d| (0..x[0].ne[d] as i64).contains(&i[d]));
            if inside || how.circular { around(&x[0], i) } else { 0.0 }
        })
    };
    Case::new([x], move |c, t| c.pad(t[0], how)).with(how).is(reference).moves().near(1e-6)
}

fn pad() -> Row {
    let sides = [([0; 4], [1, 2, 3, 4]), ([0; 4], [0; 4]), ([2, 1, 3, 2], [0, 3, 1, 0]), ([5, 4, 3, 2], [11, 9, 0, 5])];
    let how = |left, right| PadOptions::new().with_left(left).with_right(right);
    let row = Row::new("pad", "PAD").all(sides, |row, (left, right)| {
        row.all([false, true], |row, circular| row.with(pad_by(f32(SHAPE), how(left, right).with_circular(circular))))
    });
    let row = row.drawn(|s| {
        let x = s.first(&[F32]);
        let right = [s.int(0, 2), s.int(0, 2), s.int(0, 1), s.int(0, 1)];
        let left = [s.int(0, 2), s.int(0, 1), s.int(0, 1), s.int(0, 1)];
        pad_by(x, PadOptions::new().with_left(left).with_right(right).with_circular(s.chance(3)))
    });
    let mut row = row.all([-1, -5, i32::MIN], |row, bad| {
        row.all(0..4, |row, axis| {
            let mut n = [0; 4];
            n[axis] = bad;
            row.refuses(Refused::Param, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how(n, [0; 4])))
                .refuses(Refused::Param, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how([0; 4], n)))
        })
    });
    row.cases[0].must = true;
    row.refuses(Refused::Shape, move |c| c.pad(input(c, F32, [5, 4, 3, 2]), how([0; 4], [i32::MAX; 4])))
        .all([F16, I32], |row, dtype| {
            row.refuses(Refused::DType, move |c| c.pad(input(c, dtype, [5, 4]), PadOptions::new()))
        })
}

fn reflected(x: Operand, left: i32, right: i32) -> Case {
    let reference = move |x: &[Array]| {
        let [n0, n1, n2, n3] = x[0].ne;
        Array::of([n0 + (left + right) as usize, n1, n2, n3], |[i, i1, i2, i3]| {
            let i = (i as i32 - left).unsigned_abs() as usize;
            x[0].at([if i < n0 { i } else { 2 * (n0 - 1) - i }, i1, i2, i3])
        })
    };
    let case = Case::new([x], move |c, t| c.pad_reflect_1d(t[0], left, right)).with((left, right));
    case.is(reference).laid(PLAIN).moves().near(1e-6)
}

fn reflect() -> Row {
    let row = Row::new("pad_reflect_1d", "PAD_REFLECT_1D")
        .all([(0, 0), (1, 0), (0, 2), (4, 4), (3, 1)], |row, (left, right)| {
            row.with(reflected(f32(SHAPE), left, right))
        })
        .with(reflected(f32([7, 1, 2]), 4, 4))
        .drawn(|s| {
            let x = s.pick(&[F32], &|ne| ne[0] > 3);
            reflected(x, s.int(0, 3), s.int(0, 3))
        });
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

fn rolled(x: Operand, by: [i32; 4]) -> Case {
    let reference = move |x: &[Array]| Array::of(x[0].ne, |i| around(&x[0], moved(i, by.map(|n| -n))));
    Case::new([x], move |c, t| c.roll(t[0], by)).with(by).is(reference).laid(ROWS).moves().near(1e-6)
}

fn roll() -> Row {
    let shifts = [[0; 4], [1, 0, 0, 0], [-1, 2, -2, 1], [4, -3, 1, 0], [0, 0, 0, -1]];
    let row = Row::new("roll", "ROLL").all(shifts, |row, by| row.with(rolled(f32(SHAPE), by))).drawn(|s| {
        let x = s.first(&[F32]);
        let most = x.shape().map(|n| n.clamp(1, 9) as i32 - 1);
        rolled(x, most.map(|n| s.int(-n, n)))
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

/// Windows of an image of channels, columns and rows, one after the other.
fn cut(x: Operand, w: i32) -> Case {
    let reference = move |x: &[Array]| {
        let ([n0, n1, n2, _], w) = (x[0].ne, w as usize);
        let across = n1.div_ceil(w);
        Array::of([n0, w, w, across * n2.div_ceil(w)], |[c, i, j, n]| {
            let (i, j) = (n % across * w + i, n / across * w + j);
            if i < n1 && j < n2 { x[0].at([c, i, j, 0]) } else { 0.0 }
        })
    };
    Case::new([x], move |c, t| c.win_part(t[0], w)).with(w).is(reference).laid(PLAIN).moves().near(1e-6)
}

/// The image again, without the padding of the windows.
fn joined(x: Operand, width: i32, height: i32) -> Case {
    let reference = move |x: &[Array]| {
        let [n0, w, ..] = x[0].ne;
        let across = (width as usize).div_ceil(w);
        Array::of([n0, width as usize, height as usize, 1], |[c, i, j, _]| {
            x[0].at([c, i % w, j % w, i / w + across * (j / w)])
        })
    };
    let case = Case::new([x], move |c, t| c.win_unpart(t[0], width, height)).with((width, height));
    case.is(reference).laid(PLAIN).moves().near(1e-6)
}

fn windows(s: &mut dyn Source) -> Case {
    let (w, n0, width, height) = (s.size(1, 3), s.dim(), s.int(1, 8), s.int(1, 8));
    let count = [width, height].into_iter().map(|n| (i64::from(n.clamp(1, 9)) + w - 1) / w).product();
    joined(sized(F32, [n0, w, w, count]), width, height)
}

pub(super) fn rows() -> [Row; 5] {
    let shapes = [[3, 6, 4], [2, 5, 7], [1, 1, 1], [4, 9, 2], [4, 9, 8]];
    let all = || shapes.into_iter().flat_map(|ne| [1, 2, 3, 5, 8].map(|w| (ne, w)));
    let part = Row::new("win_part", "WIN_PART").all(all(), |row, (ne, w)| row.with(cut(f32(ne), w))).drawn(|s| {
        let x = s.pick(&[F32], &|ne| ne[3] == 1);
        cut(x, s.int(1, 4))
    });
    let unpart = Row::new("win_unpart", "WIN_UNPART").drawn(windows).all(all(), |row, ([n0, n1, n2], size)| {
        let w = size as usize;
        row.with(joined(of(F32, [n0, w, w, n1.div_ceil(w) * n2.div_ceil(w)]), n1 as i32, n2 as i32))
    });
    [pad(), reflect(), roll(), part.no_vulkan().no_meta(), unpart.no_vulkan().no_meta()]
}
