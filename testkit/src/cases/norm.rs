//! Norms, sums and other functions of rows.

use ggml::Result;
use ggml::ops::SortOrder;
use ggml::prelude::*;

use super::case::{Case, Known, Operand, f32, input, of};
use super::draw::Source;
use super::row::{Refused, Row};
use super::{BF16, F16, F32, I32, PLAIN, ROWS};
use crate::array::Array;
use crate::layout::Layout;

/// What norms add or divide by at least.
pub const EPS: f32 = 1e-2;
const LONG: [[usize; 4]; 7] =
    [[67, 5, 3, 2], [1, 1, 1, 1], [37, 1, 1, 1], [3, 5, 3, 1], [64, 5, 3, 1], [1025, 5, 3, 1], [4096, 5, 3, 1]];

type Top = for<'c> fn(&'c Context, Tensor<'c>, i32) -> Result<Tensor<'c>>;
type OfRows = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;

fn sum(row: &[f64]) -> f64 {
    row.iter().sum()
}

fn mean(row: &[f64]) -> f64 {
    sum(row) / row.len() as f64
}

fn squares(row: &[f64]) -> f64 {
    row.iter().map(|x| x * x).sum()
}

pub fn normalised(row: &[f64], eps: f32) -> Vec<f64> {
    let m = mean(row);
    let centred: Vec<f64> = row.iter().map(|x| x - m).collect();
    let deviation = (squares(&centred) / row.len() as f64 + f64::from(eps)).sqrt();
    centred.into_iter().map(|x| x / deviation).collect()
}

pub fn by_root_of_mean_square(row: &[f64], eps: f32) -> Vec<f64> {
    let root = (squares(row) / row.len() as f64 + f64::from(eps)).sqrt();
    row.iter().map(|x| x / root).collect()
}

pub fn by_length(row: &[f64], eps: f32) -> Vec<f64> {
    let length = squares(row).sqrt().max(f64::from(eps));
    row.iter().map(|x| x / length).collect()
}

fn cumulated(row: &[f64]) -> Vec<f64> {
    (1..=row.len()).map(|n| sum(&row[..n])).collect()
}

/// A function of each row of `f32`.
fn each_row(
    name: &'static str,
    op: &'static str,
    make: OfRows,
    f: fn(&[f64]) -> Vec<f64>,
    shapes: &[[usize; 4]],
) -> Row {
    let case = move |x: Operand| Case::new([x], move |c, t| make(c, t[0])).is(move |x| x[0].rows(f)).laid(ROWS).sums();
    let row = Row::new(name, op).all(shapes, |row, &ne| row.with(case(f32(ne).within(-2.0, 3.0))));
    let row = row.drawn(move |s| case(s.first(&[F32])));
    row.refuses(Refused::DType, move |c| make(c, input(c, F16, [4, 2, 2])))
}

/// A norm and its twin in place, what it makes of a row, and the layouts that it takes.
#[derive(Clone, Copy)]
struct Norm {
    make: OfEps,
    in_place: OfEps,
    f: fn(&[f64], f32) -> Vec<f64>,
    layouts: &'static [Layout],
}

type OfEps = for<'c> fn(&'c Context, Tensor<'c>, f32) -> Result<Tensor<'c>>;

const NORMS: [Norm; 3] = [
    Norm { make: Context::norm, in_place: Context::norm_inplace, f: normalised, layouts: &Layout::ALL },
    Norm { make: Context::rms_norm, in_place: Context::rms_norm_inplace, f: by_root_of_mean_square, layouts: ROWS },
    Norm { make: Context::l2_norm, in_place: Context::l2_norm_inplace, f: by_length, layouts: &Layout::ALL },
];

/// The error of rows of this length that were divided by their own size, where that is not tiny.
fn error(known: &Known, length: usize) -> f64 {
    // The least of a row's measures: the root of its mean square, or of its variance.
    let size = |row: &[f64]| {
        let m = mean(row);
        (row.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / row.len() as f64).sqrt()
    };
    let least = known.values.data.chunks(length).map(size).fold(f64::MAX, f64::min);
    if least < 0.1 + 8.0 * known.error {
        return f64::INFINITY;
    }
    (8.0 * known.error + 1e-5) * (1.0 + known.largest()) / least / least.min(1.0)
}

fn normed(x: Operand, norm: Norm, eps: f32) -> Case {
    Case::new([x], move |c, t| (norm.make)(c, t[0], eps))
        .with(eps)
        .is(move |x| x[0].rows(|row| (norm.f)(row, eps)))
        .in_place(move |c, t| (norm.in_place)(c, t[0], eps))
        .laid(norm.layouts)
        .spreads(|k| error(&k[0], k[0].values.ne[0]))
}

/// A group's elements are contiguous in a plain array.
fn grouped(x: Operand, groups: i32, eps: f32) -> Case {
    let size = move |ne: [usize; 4]| ne[0] * ne[1] * ne[2].div_ceil(groups as usize);
    let of_planes = move |x: &Array| {
        let planes = x.data.chunks(x.ne[0] * x.ne[1] * x.ne[2]);
        planes.flat_map(|plane| plane.chunks(size(x.ne)).flat_map(|group| normalised(group, eps))).collect()
    };
    Case::new([x], move |c, t| c.group_norm(t[0], groups, eps))
        .with((groups, eps))
        .is(move |x| Array { ne: x[0].ne, data: of_planes(&x[0]) })
        .in_place(move |c, t| c.group_norm_inplace(t[0], groups, eps))
        .laid(ROWS)
        .spreads(move |k| {
            if k[0].values.ne[2] % groups as usize == 0 { error(&k[0], size(k[0].values.ne)) } else { f64::INFINITY }
        })
}

fn norm_row(name: &'static str, op: &'static str, norm: Norm, must: bool) -> Row {
    let make = norm.make;
    let row = Row::new(name, op).all(LONG.into_iter().chain([[5, 3, 2, 2], [64, 1, 4, 1]]), |row, ne| {
        let row = row.with(normed(f32(ne).within(-2.0, 3.0), norm, EPS));
        if must { row.must() } else { row }
    });
    let row = row.drawn(move |s| {
        let x = s.first(&[F32]);
        normed(x, norm, s.float(0.0, 0.1))
    });
    let row = row.refuses(Refused::DType, move |c| make(c, input(c, F16, [4, 2, 2]), EPS));
    refuses(row, make)
}

/// What all norms refuse.
fn refuses(row: Row, make: OfEps) -> Row {
    row.all([-1e-3, f32::NAN, f32::INFINITY], |row, eps| {
        row.refuses(Refused::Param, move |c| make(c, input(c, F32, [4, 2, 2]), eps))
    })
}

/// The gradient of rows that are divided by the root of their mean square; tests of training compare it with differences.
fn normed_back(operands: [Operand; 2], eps: f32) -> Case {
    let root = move |row: &[f64]| (squares(row) / row.len() as f64 + f64::from(eps)).sqrt();
    let reference = move |x: &[Array]| {
        let mut grads = x[0].data.chunks(x[0].ne[0]);
        x[1].rows(|row| {
            let (grad, root) = (grads.next().unwrap_or_default(), root(row));
            let along = row.iter().zip(grad).map(|(x, g)| x * g).sum::<f64>() / row.len() as f64;
            row.iter().zip(grad).map(|(x, g)| g / root - x * along / root.powi(3)).collect()
        })
    };
    let case = Case::new(operands, move |c, t| c.rms_norm_back(t[0], t[1], eps)).with(eps).is(reference);
    case.laid(ROWS).off(5e-5).spreads(move |k| {
        let least = k[1].values.data.chunks(k[1].values.ne[0]).map(root).fold(f64::MAX, f64::min);
        let terms = k[0].largest() / least * (1.0 + (k[1].largest() / least).powi(2));
        if k.iter().all(|k| k.error == 0.0) { 1e-5 * terms } else { f64::INFINITY }
    })
}

fn norms() -> Vec<Row> {
    let [norm, rms_norm, l2_norm] = NORMS;
    let mut group_norm = Row::new("group_norm", "GROUP_NORM")
        .all([([16, 16, 32, 2], 8), ([4, 3, 6, 2], 3), ([5, 1, 4, 1], 4)], |row, (ne, groups)| {
            row.with(grouped(f32(ne).within(-2.0, 3.0), groups, EPS))
        })
        .drawn(|s| {
            let (x, groups) = (s.first(&[F32]), s.int(1, 4));
            let own = i32::try_from(x.shape()[2]).unwrap_or(groups);
            grouped(x, if s.bool() { own } else { groups }, s.float(0.0, 0.1))
        })
        .in_place("group_norm_inplace", |c, t| c.group_norm_inplace(t[0], 1, EPS));
    group_norm.cases[0].must = true;
    vec![
        norm_row("norm", "NORM", norm, true).in_place("norm_inplace", |c, t| c.norm_inplace(t[0], EPS)).learns(),
        norm_row("rms_norm", "RMS_NORM", rms_norm, true)
            .in_place("rms_norm_inplace", |c, t| c.rms_norm_inplace(t[0], EPS))
            .learns(),
        norm_row("l2_norm", "L2_NORM", l2_norm, false).in_place("l2_norm_inplace", |c, t| c.l2_norm_inplace(t[0], EPS)),
        refuses(group_norm, |c, a, eps| c.group_norm(a, 1, eps))
            .all([0, -1, 4, 7, i32::MIN, i32::MAX], |row, groups| {
                row.refuses(Refused::Param, move |c| c.group_norm(input(c, F32, [4, 3, 6]), groups, EPS))
            })
            .refuses(Refused::DType, |c| c.group_norm(input(c, F16, [4, 3, 6]), 1, EPS)),
        Row::new("rms_norm_back", "RMS_NORM_BACK")
            .all([[5, 3, 2, 2], [37, 1, 1, 1]], |row, ne| {
                row.with(normed_back([f32(ne).within(-1.0, 1.0), f32(ne)], EPS))
            })
            .with(normed_back(f32([300, 4]).twice(), EPS))
            .drawn(|s| normed_back(s.first(&[F32]).twice(), s.float(0.0, 0.1)))
            .all([[4, 2], [2, 4]], |row, ne| {
                row.refuses(Refused::Shape, move |c| c.rms_norm_back(input(c, F32, [4, 4]), input(c, F32, ne), EPS))
                    .refuses(Refused::Shape, move |c| c.rms_norm_back(input(c, F32, ne), input(c, F32, [4, 4]), EPS))
            })
            .refuses(Refused::DType, |c| c.rms_norm_back(input(c, F32, [4, 4]), input(c, F16, [4, 4]), EPS))
            .refuses(Refused::DType, |c| c.rms_norm_back(input(c, F16, [4, 4]), input(c, F32, [4, 4]), EPS))
            .all([-1e-3, f32::NAN, f32::INFINITY], |row, eps| {
                row.refuses(Refused::Param, move |c| c.rms_norm_back(input(c, F32, [4]), input(c, F32, [4]), eps))
            })
            .no_meta(),
    ]
}

fn sums() -> Vec<Row> {
    const SHAPES: [[usize; 4]; 4] = [[67, 5, 3, 2], [1, 1, 1, 1], [37, 1, 1, 1], [64, 1, 4, 1]];
    let must = |mut row: Row| {
        row.cases[0].must = true;
        row
    };
    let count = |x: &[Array]| x[0].data.iter().zip(&x[1].data).filter(|(a, b)| a == b).count();
    let equal = move |x: Operand| {
        let case = Case::new(x.twice(), |c, t| c.count_equal(t[0], t[1]));
        case.is(move |x| Array { ne: [1; 4], data: vec![count(x) as f64] }).makes(DType::I64).near(1e-6).picks()
    };
    let sum_of = |x: Operand| {
        let f32s = x.dtype == F32 && cfg!(ggml_0_28);
        Case::new([x], |c, t| c.sum(t[0]))
            .is(|x| Array { ne: [1; 4], data: vec![sum(&x[0].data)] })
            // Since 0.28, the kernel of f32 uses all strides.
            .laid(if f32s { &Layout::ALL } else { ROWS })
            .sums()
    };
    vec![
        must(
            Row::new("sum", "SUM")
                .all([F32, F16, BF16], |row, dtype| row.with(sum_of(of(dtype, [67, 5, 3, 2]).within(-1.0, 2.0)))),
        )
        .drawn(move |s| sum_of(s.real()))
        .refuses(Refused::DType, |c| c.sum(input(c, I32, [4, 2])))
        .learns(),
        must(each_row("sum_rows", "SUM_ROWS", Context::sum_rows, |r| vec![sum(r)], &SHAPES)).learns(),
        must(each_row("mean", "MEAN", Context::mean, |r| vec![mean(r)], &SHAPES)).learns(),
        each_row("cumsum", "CUMSUM", Context::cumsum, cumulated, &SHAPES),
        Row::new("count_equal", "COUNT_EQUAL")
            .with(equal(of(I32, [300, 4]).within(0.0, 3.0)))
            .drawn(move |s| equal(s.pick(&[I32], &|ne| ne[2] == 1 && ne[3] == 1)))
            .no_meta()
            .refuses(Refused::Shape, |c| c.count_equal(input(c, I32, [4, 3]), input(c, I32, [3, 4])))
            .refuses(Refused::DType, |c| c.count_equal(input(c, I32, [4, 3]), input(c, F32, [4, 3])))
            .refuses(Refused::DType, |c| c.count_equal(input(c, DType::I64, [4, 3]), input(c, I32, [4, 3]))),
    ]
}

fn places() -> Vec<Row> {
    // The last one, where several are the largest.
    let largest = |r: &[f64]| r.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as f64;
    let place = move |x: Operand| {
        Case::new([x], |c, t| c.argmax(t[0]))
            .is(move |x| {
                let places: Vec<f64> = x[0].data.chunks(x[0].ne[0]).map(largest).collect();
                Array { ne: [places.len(), 1, 1, 1], data: places }
            })
            .makes(I32)
            .laid(&[Layout::Plain, Layout::Gaps])
            .near(1e-6)
            .picks()
    };
    let argmax = Row::new("argmax", "ARGMAX")
        .all([[700, 9], [33, 7], [1000, 7]], |row, ne| row.with(place(f32(ne))))
        .must()
        .drawn(move |s| place(s.pick(&[F32], &|ne| ne[2] == 1 && ne[3] == 1)))
        .refuses(Refused::Shape, |c| c.argmax(input(c, F32, [4, 3, 2])))
        .refuses(Refused::Shape, |c| c.argmax(input(c, F32, [4, 3, 1, 2])))
        .refuses(Refused::DType, |c| c.argmax(input(c, I32, [4, 2])))
        .refuses(Refused::Shape, |c| c.argmax(c.transpose(input(c, F32, [4, 2]))?));
    let sort = |order: SortOrder| {
        move |row: &[f64]| {
            let mut places: Vec<usize> = (0..row.len()).collect();
            places.sort_by(
                |&a, &b| if order == SortOrder::Asc { row[a].total_cmp(&row[b]) } else { row[b].total_cmp(&row[a]) },
            );
            places.into_iter().map(|i| i as f64).collect::<Vec<_>>()
        }
    };
    let orders = [([67, 9], SortOrder::Asc), ([500, 6], SortOrder::Desc), ([100, 7], SortOrder::Desc)];
    let sorted = move |x: Operand, order| {
        let case = Case::new([x], move |c, t| c.argsort(t[0], order)).with(order);
        case.is(move |x| x[0].rows(sort(order))).makes(I32).laid(PLAIN).near(1e-6).picks()
    };
    let argsort = Row::new("argsort", "ARGSORT")
        .all(orders, |row, (ne, order)| row.with(sorted(f32(ne), order)))
        .must()
        // In any order, where elements are equal.
        .drawn(move |s| Case { reference: None, ..sorted(s.first(&[F32]), s.one(&[SortOrder::Asc, SortOrder::Desc])) });
    // In no order: compared in tests of their own.
    let first = |s: &mut dyn Source, make: Top| {
        let x = s.first(&[F32]);
        let k = s.int(1, i32::try_from(x.shape()[0]).unwrap_or(1).clamp(1, 64));
        Case::new([x], move |c, t| make(c, t[0], k)).with(k)
    };
    let top =
        |name, op, make: Top| Row::new(name, op).call(move |c, t| make(c, t[0], 1)).drawn(move |s| first(s, make));
    vec![
        argmax,
        argsort.no_meta(),
        top("argsort_top_k", "ARGSORT", Context::argsort_top_k),
        top("top_k", "TOP_K", Context::top_k),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = norms();
    rows.extend(sums());
    rows.extend(places());
    rows
}
