//! Rows of floats that become blocks: by a copy, as rows written by index, and as sums.

use ggml::Result;
use ggml::prelude::*;
use testkit::blocks::nearest;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// The types that floats become without a matrix of importance, of those that the tests can read.
const WRITTEN: [DType; 14] = [
    DType::Q1_0,
    DType::Q2_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::NVFP4,
    DType::TQ1_0,
    DType::TQ2_0,
];

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Asserts that `got` are `values` in blocks of this type: the nearest numbers where there is no fit, else numbers whose
/// error is as small as the format's bits allow.
fn assert_blocks(got: &Array, t: DType, values: &Array, context: &str) {
    if let Some(nearest) = nearest(t, &values.data) {
        return assert_close(got, &Array { ne: values.ne, data: nearest }, 1e-6, context);
    }
    assert_eq!(got.ne, values.ne, "{context}: shape");
    let square = |x: f64| x * x;
    let wrong: f64 = got.data.iter().zip(&values.data).map(|(a, b)| square(a - b)).sum();
    let error = (wrong / values.data.iter().copied().map(square).sum::<f64>()).sqrt();
    let bits = t.type_size() as f64 * 8.0 / t.block_size() as f64;
    let most = 1.5 * 2.0_f64.powf(1.0 - bits);
    assert!(error > 0.0 && error <= most, "{context}: error {error}, at most {most}");
}

#[test]
fn cast_to_blocks_takes_the_nearest_numbers() {
    for to in WRITTEN {
        for (from, layout, threads) in FLOATS.into_iter().zip(Layout::ROWS).zip([1, 2, 5]).map(|((a, b), c)| (a, b, c))
        {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, values) = lab.operand(&Array::sample(ne([512, 3, 2]), 5, -1.0, 1.0), from, layout);
            let got = lab.run(ctx.cast(x, to).unwrap()).unwrap();
            assert_blocks(&got, to, &values, &format!("{from} to {to} {layout:?}"));
        }
    }
}

/// Of rows of `f16` since ggml 0.28: before, threads shared a buffer that had room for one.
#[test]
fn set_rows_quantises_to_the_nearest_numbers() {
    for to in WRITTEN {
        for (from, layout, threads) in [
            (DType::F32, Layout::Plain, 1),
            (DType::F32, Layout::Gaps, 3),
            (DType::F16, Layout::Plain, 7),
            (DType::F16, Layout::Swapped, 2),
        ] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let before = ctx.cast(lab.plain(&Array::sample(ne([256, 40]), 6, -1.0, 1.0)).0, to).unwrap();
            let (rows, values) = lab.operand(&Array::sample(ne([256, 19]), 7, -1.0, 1.0), from, layout);
            let places = Array::of(ne([19]), |[i, ..]| (2 * i + 1) as f64);
            let (places, _) = lab.operand(&places, DType::I64, Layout::Plain);
            let y = ctx.set_rows(ctx.dup(before).unwrap(), rows, places).unwrap();
            let context = format!("{from} to {to} {layout:?} {threads}");
            if from == DType::F16 && cfg!(not(ggml_0_28)) {
                refused!(Unsupported, lab.accepted(y), "{context}");
                continue;
            }
            let got = lab.run_all(&[y, before]).unwrap();
            let part = |from: &Array, first: usize, rows: usize| {
                Array::of(ne([256, rows]), |[i, row, ..]| from.at([i, 2 * row + first, 0, 0]))
            };
            assert_blocks(&part(&got[0], 1, 19), to, &values, &context);
            assert_eq!(part(&got[0], 0, 20), part(&got[1], 0, 20), "{context}: other rows");
        }
    }
}

/// Rows of `f16` since ggml 0.28, to types that are no blocks.
#[test]
fn set_rows_converts_to_plain_types() {
    for from in [DType::F32, DType::F16] {
        for (to, most) in [(DType::F32, 1e-6), (DType::F16, 1e-3), (DType::BF16, 8e-3), (DType::I32, 0.0)] {
            for (layout, threads) in Layout::ROWS.into_iter().zip([1, 2, 5]) {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (before, _) = lab.operand(&Array::of(ne([37, 11]), |_| 5.0), to, Layout::Plain);
                let (rows, values) = lab.operand(&Array::sample(ne([37, 11]), 7, -90.0, 90.0), from, layout);
                let (places, _) =
                    lab.operand(&Array::of(ne([11]), |[i, ..]| (10 - i) as f64), DType::I32, Layout::Plain);
                let y = ctx.set_rows(ctx.dup(before).unwrap(), rows, places).unwrap();
                let context = format!("{from} to {to} {layout:?}");
                if from == DType::F16 && to != DType::F16 && cfg!(not(ggml_0_28)) {
                    refused!(Unsupported, lab.accepted(y), "{context}");
                    continue;
                }
                let want = Array::of(values.ne, |[i, row, ..]| values.at([i, 10 - row, 0, 0]));
                let want = if to == DType::I32 { want.map(f64::trunc) } else { want };
                assert_close(&lab.run(y).unwrap(), &want, most, &context);
            }
        }
    }
}

/// The kernels convert rows of blocks to floats, add, and quantise them again.
#[test]
fn sums_become_blocks_of_the_nearest_numbers() {
    type Sum = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;
    let sums: [Sum; 2] = [|c, a, b| c.add(a, b), |c, a, b| c.add1(a, c.view_1d(b, 1, 0)?)];
    for t in WRITTEN {
        for (threads, (add, whole)) in [1, 3].into_iter().zip(sums.into_iter().zip([true, false])) {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let blocks = ctx.cast(lab.plain(&Array::sample(ne([256, 5]), 6, -1.0, 1.0)).0, t).unwrap();
            let (b, of_b) = lab.plain(&Array::sample(ne([256, 5]), 7, -1.0, 1.0));
            let got = lab.run_all(&[add(&ctx, blocks, b).unwrap(), blocks]).unwrap();
            let term = |i| if whole { of_b.at(i) } else { of_b.data[0] };
            let sum = Array::of(got[1].ne, |i| got[1].at(i) + term(i));
            assert_blocks(&got[0], t, &sum, &format!("{t}, {whole}"));
        }
    }
}

#[test]
fn concat_joins_blocks_in_each_dimension() {
    for t in [DType::Q8_0, DType::Q4_0, DType::MXFP4, DType::TQ1_0] {
        let block = t.block_size() as usize;
        for (layout, dim) in Layout::ROWS.into_iter().flat_map(|layout| (0..4).map(move |dim| (layout, dim))) {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, 3);
            let of = |seed, long: usize| {
                let mut shape = [2 * block, 3, 2, 2];
                shape[dim] = if dim == 0 { long * block } else { long };
                let plain = match t {
                    DType::Q8_0 | DType::Q4_0 => lab.operand(&Array::sample(shape, seed, -1.0, 1.0), t, layout).0,
                    _ => ctx.cast(lab.plain(&Array::sample(shape, seed, -1.0, 1.0)).0, t).unwrap(),
                };
                (plain, shape[dim])
            };
            let ((a, split), (b, rest)) = (of(5, 1), of(6, 4));
            let y = ctx.concat(a, b, dim).unwrap();
            let got = lab.run_all(&[y, ctx.cont(a).unwrap(), ctx.cont(b).unwrap()]).unwrap();
            let mut shape = got[1].ne;
            shape[dim] = split + rest;
            let want = Array::of(shape, |mut i| {
                if i[dim] < split {
                    return got[1].at(i);
                }
                i[dim] -= split;
                got[2].at(i)
            });
            assert_close(&got[0], &want, 0.0, &format!("{t} {layout:?} {dim}"));
        }
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    refused!(DType, ctx.concat(of(DType::Q8_0, [32, 2]), of(DType::Q4_0, [32, 2]), 1));
    refused!(Shape, ctx.concat(of(DType::Q8_0, [32, 2]), of(DType::Q8_0, [64, 2]), 1));
}
