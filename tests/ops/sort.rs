//! Sorting rows by index.

use ggml::Result;
use ggml::ops::SortOrder;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// The elements of a row at these indices.
fn picked(row: &[f64], places: &[f64]) -> Vec<f64> {
    places.iter().map(|&i| row[i as usize]).collect()
}

/// Asserts that indices are distinct and in range.
#[track_caller]
fn assert_distinct(places: &[f64], n: usize, context: &str) {
    let mut seen = vec![false; n];
    for &i in places {
        assert!(i >= 0.0 && (i as usize) < n, "{context}: {i} of {n}");
        assert!(!std::mem::replace(&mut seen[i as usize], true), "{context}: {i} twice");
    }
}

fn sorted(row: &[f64], order: SortOrder) -> Vec<f64> {
    let mut row = row.to_vec();
    row.sort_by(|a, b| if order == SortOrder::Asc { a.total_cmp(b) } else { b.total_cmp(a) });
    row
}

#[test]
fn argsort_orders_by_value() {
    for shape in [ne([1]), ne([2, 3]), ne([17, 2, 3]), ne([300, 3, 1, 2])] {
        for layout in Layout::ROWS {
            for threads in [1, 3] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                // Some values are equal.
                let sample = Array::sample(shape, 4, -50.0, 50.0).map(f64::round);
                let (x, values) = lab.operand(&sample, DType::F32, layout);
                for order in [SortOrder::Asc, SortOrder::Desc] {
                    let y = match ctx.argsort(x, order) {
                        Ok(y) => y,
                        refusal => {
                            // Planes with gaps between them.
                            assert!(layout != Layout::Plain && shape[2] * shape[3] > 1, "{shape:?} {layout:?}");
                            refused!(Shape, refusal);
                            continue;
                        }
                    };
                    assert_eq!((y.dtype(), y.ne()), (DType::I32, x.ne()));
                    let got = lab.run(y).unwrap();
                    for (row, places) in values.data.chunks(shape[0]).zip(got.data.chunks(shape[0])) {
                        assert_distinct(places, shape[0], "argsort");
                        assert_eq!(picked(row, places), sorted(row, order), "{shape:?} {order:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn top_k_finds_the_largest() {
    for (shape, k) in [(ne([1]), 1), (ne([9, 4]), 1), (ne([9, 4]), 9), (ne([200, 3, 2]), 7), (ne([64, 2]), 63)] {
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, values) = lab.plain(&Array::sample(shape, 4, -5.0, 5.0));
            // A view of all indices, which `cont` copies.
            let outputs = [ctx.top_k(x, k as i32).unwrap(), ctx.cont(ctx.argsort_top_k(x, k as i32).unwrap()).unwrap()];
            let got = lab.run_all(&outputs).unwrap();
            for (i, row) in values.data.chunks(shape[0]).enumerate() {
                let [any, ordered] = [0, 1].map(|n| &got[n].data[i * k..(i + 1) * k]);
                let want = &sorted(row, SortOrder::Desc)[..k];
                assert_distinct(any, shape[0], "top_k");
                assert_eq!(sorted(&picked(row, any), SortOrder::Desc), want, "{shape:?} {k}");
                assert_eq!(picked(row, ordered), want, "{shape:?} {k}");
            }
        }
    }
}

type Build = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;

#[test]
fn sorts_refuse_unsuitable_operands() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8, 3, 2]).unwrap();
    let sorts: [(&str, Build); 3] = [
        ("argsort", |c, a| c.argsort(a, SortOrder::Asc)),
        ("argsort_top_k", |c, a| c.argsort_top_k(a, 2)),
        ("top_k", |c, a| c.top_k(a, 2)),
    ];
    for (name, build) in sorts {
        for dtype in [DType::F16, DType::I32] {
            refused!(DType, build(&ctx, ctx.input("i", dtype, [8]).unwrap()), "{name}");
        }
        refused!(Shape, build(&ctx, ctx.transpose(x).unwrap()), "{name} of columns");
        refused!(
            Shape,
            build(&ctx, ctx.permute(x, [0, 2, 1, 3]).unwrap()),
            "h10: {name} of rows not equally far apart"
        );
        refused!(Shape, build(&ctx, ctx.input("long", DType::F32, [1_i64 << 31]).unwrap()), "{name}");
    }
    for k in [0, -1, 9, i32::MIN, i32::MAX] {
        refused!(Param, ctx.top_k(x, k), "{k}");
        refused!(Param, ctx.argsort_top_k(x, k), "{k}");
    }
}

/// Rows of `n` numbers with many patterns of NaN.
fn rows_with_nan(n: usize) -> Array {
    let kinds = 12;
    let sample = Array::sample([n, kinds, 1, 1], n as u64, -9.0, 9.0);
    Array::of(sample.ne, |[i, kind, ..]| {
        let (x, nan) = (sample.at([i, kind, 0, 0]), f64::NAN);
        let is_nan = match kind {
            0 => true,
            1 | 2 => false,
            3 => i == 0,
            4 => i + 1 == n,
            5 => i == n / 2,
            6 => i % 2 == 0,
            7 => i < n / 2,
            8 => i >= n / 2,
            9 => i % 16 == 15,
            _ => x > 0.0,
        };
        match (is_nan, kind) {
            (true, 2 | 6 | 10) => -nan,
            (true, _) => nan,
            (false, 1) => i as f64,
            (false, 2) => -(i as f64),
            // Some are infinite.
            (false, 11) => x / 0.0,
            (false, _) => x,
        }
    })
}

/// A number's value in a sort: NaN counts as infinite.
fn ranked(x: f64) -> f64 {
    if x.is_nan() { f64::INFINITY } else { x }
}

/// With NaN, `<` is no order, and a sort by it undefined. Results must hold each index once, for any row.
#[test]
fn argsort_returns_each_index_once_even_with_nan() {
    for n in [1, 2, 3, 15, 16, 17, 31, 33, 64, 100, 257, 1000, 4099] {
        let rows = rows_with_nan(n);
        for threads in [1, 2] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, values) = lab.plain(&rows);
            assert!(values.data.iter().any(|x| x.is_nan()), "NaN comes through");
            let k = n.div_ceil(3);
            let outputs = [
                ctx.argsort(x, SortOrder::Asc).unwrap(),
                ctx.argsort(x, SortOrder::Desc).unwrap(),
                ctx.cont(ctx.argsort_top_k(x, k as i32).unwrap()).unwrap(),
                ctx.top_k(x, k as i32).unwrap(),
                ctx.top_k(x, n as i32).unwrap(),
            ];
            let got = lab.run_all(&outputs).unwrap();
            for (kind, row) in values.data.chunks(n).enumerate() {
                let row: Vec<f64> = row.iter().map(|&x| ranked(x)).collect();
                let context = format!("{n} numbers, row {kind}");
                for (y, order) in got.iter().zip([SortOrder::Asc, SortOrder::Desc, SortOrder::Desc]) {
                    let places = &y.data[kind * y.ne[0]..(kind + 1) * y.ne[0]];
                    assert_distinct(places, n, &context);
                    assert_eq!(picked(&row, places), sorted(&row, order)[..y.ne[0]], "{context}");
                }
                for y in &got[3..] {
                    let places = &y.data[kind * y.ne[0]..(kind + 1) * y.ne[0]];
                    assert_distinct(places, n, &context);
                    let values = sorted(&picked(&row, places), SortOrder::Desc);
                    assert_eq!(values, sorted(&row, SortOrder::Desc)[..y.ne[0]], "{context}");
                }
            }
        }
    }
}

/// The clamp that builders put before sorts: on the CPU it keeps every number and removes NaN.
#[test]
fn clamp_to_infinity_removes_only_nan() {
    let exact =
        [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f32::MAX.into(), f32::MIN.into(), f32::from_bits(1).into()];
    for n in [1, 7, 8, 33, 100] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.plain(&Array::of(ne([n, 3]), |[i, kind, ..]| match (i % 3, kind) {
            (_, 0) => exact[i % exact.len()],
            (0, 1) | (_, 2) => f64::NAN,
            (1, 1) => -f64::NAN,
            _ => i as f64,
        }));
        let got = lab.run(ctx.clamp(x, f32::NEG_INFINITY, f32::INFINITY).unwrap()).unwrap();
        let bits = |a: &Array| a.data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&values.map(ranked)), "{n}");
    }
}

/// Indices from rows with NaN and infinities are in range.
#[test]
fn argsort_indices_are_in_range_for_get_rows() {
    let n = 40;
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, _) = lab.plain(&rows_with_nan(n));
    let (table, rows) = lab.plain(&Array::sample(ne([3, n]), 7, 0.0, 1.0));
    let flat = |t| ctx.reshape(ctx.cont(t).unwrap(), [12 * 5]);
    assert!(ctx.get_rows(table, flat(ctx.argsort_top_k(x, 5).unwrap()).unwrap()).is_err(), "a copy is not trusted");
    let places = ctx.top_k(x, 5).unwrap();
    let picked = ctx.get_rows(table, ctx.reshape(places, [12 * 5]).unwrap()).unwrap();
    let got = lab.run_all(&[picked, places]).unwrap();
    let want = Array::of(ne([3, 60]), |[i, j, ..]| rows.at([i, got[1].data[j] as usize, 0, 0]));
    assert_close(&got[0], &want, 0.0, "rows by place");
    let few = ctx.input("few", DType::F32, [3, 39]).unwrap();
    refused!(Shape, ctx.get_rows(few, ctx.reshape(places, [60]).unwrap()), "a table of fewer rows");
    // Nothing may write to trusted indices.
    let other = ctx.input("other", DType::I32, [5, 12]).unwrap();
    refused!(Shape, ctx.cpy(other, places));
}

/// The graph gives access to the clamp before a sort, which can be used like any tensor.
#[test]
fn argsort_clamp_cannot_be_overwritten() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let sort = ctx.argsort(x, SortOrder::Asc).unwrap();
    let graph = ctx.graph([sort]).unwrap();
    let clamp = graph.sources(sort).next().unwrap();
    refused!(Shape, ctx.log_inplace(clamp));
    refused!(Shape, ctx.cpy(x, ctx.view(clamp, [4], [16; 3], 0).unwrap()));
    ctx.log(clamp).unwrap();
    ctx.log_inplace(ctx.clamp(x, -1.0, 1.0).unwrap()).unwrap();
}
