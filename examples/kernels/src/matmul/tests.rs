//! Products with matrices of each type, by each instruction set of this processor, against plain sums in f64.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]

use ggml::{Context, DType, Device, Quantize as _, Weights, WeightsBuilder};

use super::set::choice::tests::levels;
use super::{Level, multiplies, operation_of, product_at};
use crate::tests::{close, compute, dot, random};

const TYPES: [DType; 13] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// How values of so many rows are rounded: more than 32 together where scales are small integers; and with AVX2 and few rows so that
/// products of pairs with weights of 8 bits fit in 16.
pub(crate) fn rounding(level: Level, dtype: DType, rows: usize) -> (usize, Option<f32>) {
    let limited = level == Level::Avx2 && rows <= 16;
    let together = match dtype {
        DType::IQ4_XS if limited => 128,
        DType::Q4_K | DType::Q5_K | DType::Q6_K | DType::IQ4_XS => 256,
        _ => 32,
    };
    let pair = match dtype {
        DType::Q8_0 => Some(127.0),
        DType::IQ4_NL | DType::IQ4_XS => Some(134.0),
        _ => None,
    };
    (together, pair.filter(|_| limited))
}

/// A block rounded to so many steps up to `most`.
fn in_steps(block: &[f32], most: f32, steps: f32) -> Vec<f32> {
    let by = if most > 0.0 { steps / most } else { 0.0 };
    block.iter().map(|x| (x * by).round_ties_even() * (most / steps)).collect()
}

/// Blocks of so many numbers rounded to 127 steps, or to so many for the sum of two.
pub(crate) fn rounded(x: &[f32], (block, pair): (usize, Option<f32>)) -> Vec<f32> {
    let round = |block: &[f32]| {
        let mut most = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        if let Some(pair) = pair {
            most = block.chunks(2).fold(most, |most, x| most.max((x[0] + x[1]).abs() * (127.0 / pair)));
        }
        in_steps(block, most, 127.0)
    };
    x.chunks(block).flat_map(round).collect()
}

/// The matrix and the activations that are multiplied: as they are, as the blocks stand for them, or, of many rows with matrices of halves,
/// rounded to so many steps of the largest number.
fn factors(level: Level, dtype: DType, rows: usize, [w, x]: [&[f32]; 2]) -> [Vec<f32>; 2] {
    let rounded_to = |numbers: &[f32], block, steps| {
        let round = |block: &[f32]| {
            let most = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            in_steps(block, most, steps)
        };
        numbers.chunks(block).flat_map(round).collect()
    };
    match dtype {
        DType::F16 | DType::BF16 if (Level::Plain..=Level::Avx512).contains(&level) && rows > 8 => {
            [rounded_to(w, 256, 16383.0), rounded_to(x, 32, 4095.0)]
        }
        _ if is_float(dtype) => [w.to_vec(), x.to_vec()],
        _ => [w.to_vec(), rounded(x, rounding(level, dtype, rows))],
    }
}

fn matrix(dtype: DType, [depth, columns]: [usize; 2], bytes: &[u8]) -> Weights {
    let mut weights = WeightsBuilder::new();
    weights.tensor("w", dtype, [depth, columns]).unwrap();
    let mut weights = weights.place(Device::cpu().unwrap()).unwrap();
    weights.set_bytes("w", bytes).unwrap();
    weights
}

/// The product by a set; by ggml without one.
fn product(level: Level, weights: &Weights, x: &[f32], depth: usize, threads: usize) -> Vec<f32> {
    let ctx = Context::new();
    let input = ctx.input("x", DType::F32, [depth as i64, (x.len() / depth) as i64]).unwrap();
    let out = product_at(level, &ctx, [weights.tensor("w").unwrap(), input], None).unwrap();
    compute(&ctx, threads, out, &[(input, x)], None)
}

/// The difference from the sums of what blocks stand for, which ggml's conversion says, and of rounded activations, is
/// that of sums in `f32`. The matrix has any bytes: scales of all sizes, infinite, and NaN.
#[test]
fn random_blocks_by_each_set() {
    let mut rng = fastrand::Rng::with_seed(11);
    let shapes = [
        (256, 32, 1),
        (512, 96, 2),
        (256, 64, 3),
        (512, 32, 5),
        (768, 32, 8),
        (512, 64, 9),
        (1280, 32, 16),
        (512, 32, 17),
        (256, 64, 37),
    ];
    for dtype in TYPES {
        let mut compared = [0; 2];
        for (depth, columns, rows) in shapes {
            let size = dtype.row_size(depth as i64).unwrap();
            let mut w: Vec<_> = (0..size * columns).map(|_| rng.u8(..)).collect();
            if is_float(dtype) {
                // Any bits are not often numbers of one size.
                w = dtype.quantize(&random(&mut rng, depth * columns), depth, None).unwrap();
            }
            if dtype == DType::MXFP4 {
                // Not those for which ggml's conversion has no finite number, or sums have none.
                w.iter_mut().step_by(17).for_each(|e| *e %= 200);
            }
            let stands_for = dtype.dequantize(&w).unwrap();
            let mut x = random(&mut rng, depth * rows);
            x[..40].fill(0.0);
            let by = rng.f32() * 1e3;
            x.iter_mut().skip(64).step_by(3).for_each(|x| *x *= by);
            let weights = matrix(dtype, [depth, columns], &w);
            let threads = 1 + rows % 3;
            for level in levels() {
                assert!(operation_of(level, dtype).is_some(), "{level:?} {dtype}");
                let found = product(level, &weights, &x, depth, threads);
                let [w, used] = factors(level, dtype, rows, [&stands_for, &x]);
                let pairs = used.chunks(depth).flat_map(|x| w.chunks(depth).map(move |w| (w, x)));
                for (i, (found, (w, x))) in found.iter().zip(pairs).enumerate() {
                    let what = format!("{level:?} {dtype} {depth} {columns} {rows}, {threads} threads, number {i}");
                    let finite = w.iter().all(|w| w.is_finite());
                    compared[usize::from(finite)] += 1;
                    if !finite {
                        assert!(!found.is_finite() || x.iter().all(|&x| x == 0.0), "{found}: {what}");
                        continue;
                    }
                    let largest = w.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
                    let size = f64::from(largest) * x.iter().map(|x| f64::from(x.abs())).sum::<f64>();
                    if size > f64::from(f32::MAX) / 4.0 {
                        continue; // what is added on the way may be too large
                    }
                    let (expected, allowed) = (dot(w, x), 3e-6 * size);
                    assert!(
                        (f64::from(*found) - expected).abs() <= allowed,
                        "{found} for {expected} ± {allowed}: {what}"
                    );
                }
            }
        }
        let [not_finite, finite] = compared.map(|n| n / levels().count());
        assert!(finite > 1500, "{dtype}: {compared:?}");
        assert!(not_finite > 20 || is_float(dtype) || dtype == DType::MXFP4, "{dtype}: {compared:?}");
    }
}

/// The difference from ggml's product is that of two roundings of activations, and no more.
#[test]
fn products_are_ggmls_but_for_rounding() {
    let mut rng = fastrand::Rng::with_seed(12);
    let (depth, columns) = (512, 32);
    for dtype in TYPES {
        let w = random(&mut rng, depth * columns);
        let importance = vec![1.0; depth];
        let w = dtype.quantize(&w, depth, Some(&importance)).or_else(|_| dtype.quantize(&w, depth, None)).unwrap();
        let stands_for = dtype.dequantize(&w).unwrap();
        let weights = matrix(dtype, [depth, columns], &w);
        for rows in [1, 4, 11, 20] {
            let x = random(&mut rng, depth * rows);
            let theirs = product(Level::None, &weights, &x, depth, 1);
            for level in levels() {
                let ours = product(level, &weights, &x, depth, 1);
                for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                    // Both round to half a step of the largest, 1, at most, or of a pair, 2; ggml's scales have 11 bits.
                    // It rounds activations for f16 and bf16 to these.
                    let steps = if rounding(level, dtype, rows).1.is_some() { 1.5 } else { 1.0 };
                    let bits = if is_float(dtype) { 0.004 } else { steps / 127.0 + 0.0005 };
                    let allowed =
                        stands_for[i % columns * depth..][..depth].iter().map(|w| w.abs()).sum::<f32>() * bits;
                    assert!((ours - theirs).abs() <= allowed, "{ours}, {theirs} ± {allowed}: {level:?} {dtype} {rows}");
                }
            }
        }
    }
}

/// A row with a NaN or an infinity has no finite product, and no other row has one of it.
#[test]
fn nan_and_infinities_stay_in_their_row() {
    let mut rng = fastrand::Rng::with_seed(13);
    let (depth, columns) = (256, 32);
    for dtype in TYPES {
        let w: Vec<_> = random(&mut rng, depth * columns).iter().map(|x| x + 2.0).collect();
        let weights = matrix(dtype, [depth, columns], &dtype.quantize(&w, depth, None).unwrap());
        for (level, rows) in levels().flat_map(|level| [1, 2, 4, 8, 9, 17].map(|rows| (level, rows))) {
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0xff80_0001)] {
                let mut x = random(&mut rng, depth * rows);
                let row = rng.usize(..rows);
                x[row * depth + rng.usize(..depth)] = odd;
                let found = product(level, &weights, &x, depth, 1);
                for (i, found) in found.chunks(columns).enumerate() {
                    let finite = found.iter().filter(|x| x.is_finite()).count();
                    let expected = if i == row { 0 } else { columns };
                    assert_eq!(finite, expected, "{level:?} {dtype} {odd} in {row} of {rows}: {i}");
                }
            }
        }
    }
}

/// A column of the matrix with a NaN or an infinity has no finite product, and no other column has one of it.
#[test]
fn nan_and_infinities_stay_in_their_column() {
    let mut rng = fastrand::Rng::with_seed(15);
    let (depth, columns) = (512, 32);
    for (dtype, rows) in
        [DType::F32, DType::F16, DType::BF16].into_iter().flat_map(|t| [1, 5, 8, 9, 20].map(|n| (t, n)))
    {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut w: Vec<_> = random(&mut rng, depth * columns);
            let column = rng.usize(..columns);
            w[column * depth + rng.usize(..depth)] = odd;
            let weights = matrix(dtype, [depth, columns], &dtype.quantize(&w, depth, None).unwrap());
            let x: Vec<_> = random(&mut rng, depth * rows).iter().map(|x| x + 2.0).collect();
            for level in levels() {
                for (i, found) in product(level, &weights, &x, depth, 1).iter().enumerate() {
                    assert_eq!(found.is_finite(), i % columns != column, "{level:?} {dtype} {rows} {odd}: {i}");
                }
            }
        }
    }
}

/// Of numbers of one size, products of halves are nearer to those of the same numbers in f64 than products with activations that are
/// rounded to halves, as ggml's are on most processors; where some are much larger, they aren't much farther.
#[test]
fn products_of_halves_are_about_as_exact_as_with_rounded_activations() {
    let mut rng = fastrand::Rng::with_seed(16);
    let (depth, columns, rows) = (1024, 32, 32);
    let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| (0..6).map(|_| rng.f32() - 0.5).sum()).collect() };
    for (dtype, share) in [(DType::F16, 1.0), (DType::BF16, 0.2)] {
        for (every, by, most) in [(1, 1.0, 0.9), (64, 10.0, 2.0), (512, 100.0, 3.0)] {
            let [mut w, mut x] = [columns, rows].map(|n| normal(depth * n));
            x.iter_mut().step_by(every).for_each(|x| *x *= by);
            w.iter_mut().skip(32).step_by(every).for_each(|w| *w *= by / 4.0);
            let w = dtype.quantize(&w, depth, None).unwrap();
            let stands_for = dtype.dequantize(&w).unwrap();
            let weights = matrix(dtype, [depth, columns], &w);
            let products = |x: &[f32]| -> Vec<f64> {
                x.chunks(depth).flat_map(|x| stands_for.chunks(depth).map(move |w| dot(w, x))).collect()
            };
            let expected = products(&x);
            let error = |found: &[f64]| found.iter().zip(&expected).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
            let theirs = error(&products(&dtype.dequantize(&dtype.quantize(&x, depth, None).unwrap()).unwrap()));
            for level in levels() {
                let found = product(level, &weights, &x, depth, 1);
                let ours = error(&found.into_iter().map(f64::from).collect::<Vec<_>>());
                assert!(
                    ours <= most * share * theirs,
                    "{level:?} {dtype}: {ours:e}, with rounded activations {theirs:e}; {by} times each {every}th"
                );
            }
        }
    }
}

/// Where all numbers are the largest of their blocks, sums of integers are the largest that there are.
#[test]
fn the_largest_sums_fit() {
    let (depth, columns) = (512, 32);
    for (dtype, rows) in TYPES.into_iter().flat_map(|dtype| [1, 4, 9, 20].map(|rows| (dtype, rows))) {
        for sign in [1.0, -1.0] {
            let w = dtype.quantize(&vec![1.0; depth * columns], depth, None);
            let w = w.or_else(|_| dtype.quantize(&vec![1.0; depth * columns], depth, Some(&vec![1.0; depth]))).unwrap();
            let one = dtype.dequantize(&w).unwrap()[0];
            let weights = matrix(dtype, [depth, columns], &w);
            for level in levels() {
                let found = product(level, &weights, &vec![sign; depth * rows], depth, 1);
                let expected = vec![f64::from(sign * one) * depth as f64; rows * columns];
                close(&found, &expected, 0.02, &format!("{level:?} {dtype} {rows} {sign}"));
            }
        }
    }
}

#[test]
fn what_the_kernels_do_not_compute_ggml_does() {
    assert!(!multiplies(DType::Q2_K, [256, 32, 1, 1]) && !multiplies(DType::Q8_0, [256, 33, 1, 1]));
    assert!(!multiplies(DType::Q8_0, [288, 32, 1, 1]) && !multiplies(DType::Q8_0, [256, 32, 2, 1]));
    let mut rng = fastrand::Rng::with_seed(7);
    let ctx = Context::new();
    let [w, x] = [("w", 3), ("x", 5)].map(|(name, n)| ctx.input(name, DType::F32, [40, n]).unwrap());
    let (a, b) = (random(&mut rng, 120), random(&mut rng, 200));
    let expected: Vec<_> = b.chunks(40).flat_map(|x| a.chunks(40).map(move |w| dot(w, x))).collect();
    let found = compute(&ctx, 2, super::mul_mat(&ctx, w, x).unwrap(), &[(w, &a), (x, &b)], None);
    close(&found, &expected, 1e-5, "f32");
}

/// Each row of the product is that of the expert that it picks, by each set and type; tasks share the columns.
#[test]
fn experts_multiply_the_rows_that_pick_them() {
    let mut rng = fastrand::Rng::with_seed(14);
    // Experts that nobody picks, one that all pick, and one activation for all experts of a token.
    let shapes =
        [([256, 64, 4], [2, 1], 1), ([512, 32, 3], [3, 3], 5), ([256, 96, 8], [2, 1], 23), ([256, 32, 1], [1, 1], 20)];
    for (dtype, ([depth, columns, experts], [used, several], tokens)) in
        TYPES.into_iter().flat_map(|dtype| shapes.map(|shape| (dtype, shape)))
    {
        let w = random(&mut rng, depth * columns * experts);
        let importance = vec![1.0; depth];
        let w = dtype.quantize(&w, depth, Some(&importance)).or_else(|_| dtype.quantize(&w, depth, None)).unwrap();
        let stands_for = dtype.dequantize(&w).unwrap();
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", dtype, [depth, columns, experts]).unwrap();
        let mut weights = builder.place(Device::cpu().unwrap()).unwrap();
        weights.set_bytes("w", &w).unwrap();
        let x = random(&mut rng, depth * several * tokens);
        let ids: Vec<i32> = (0..tokens)
            .flat_map(|_| {
                let mut all: Vec<_> = (0..i32::try_from(experts).unwrap()).collect();
                rng.shuffle(&mut all);
                all.truncate(used);
                all
            })
            .collect();
        for level in levels() {
            let expected: Vec<_> = (0..used * tokens)
                .flat_map(|row| {
                    let rows = ids.iter().filter(|&&id| id == ids[row]).count();
                    let expert = &stands_for[usize::try_from(ids[row]).unwrap() * depth * columns..][..depth * columns];
                    let x = &x[(row / used * several + (row % used).min(several - 1)) * depth..][..depth];
                    let [expert, x] = factors(level, dtype, rows, [expert, x]);
                    expert.chunks(depth).map(|w| dot(w, &x)).collect::<Vec<_>>()
                })
                .collect();
            let ctx = Context::new();
            let input = ctx.input("x", DType::F32, [depth, several, tokens]).unwrap();
            let picked = ctx.input("ids", DType::I32, [used, tokens]).unwrap();
            let out = product_at(level, &ctx, [weights.tensor("w").unwrap(), input], Some(picked)).unwrap();
            assert_eq!(out.ne(), [columns as i64, used as i64, tokens as i64, 1]);
            let graph = ctx.graph([out]).unwrap();
            let mut cpu = ggml::Backend::cpu().unwrap();
            cpu.set_threads(1 + tokens % 3).unwrap();
            let mut sched = ggml::Sched::builder().backend(cpu).build().unwrap();
            let mut run = sched.alloc(&graph).unwrap();
            run.set(input, &x).unwrap();
            run.set(picked, &ids).unwrap();
            run.compute().unwrap();
            close(&run.get::<f32>(out).unwrap(), &expected, 1e-4, &format!("{level:?} {dtype} {tokens}"));
        }
    }
}
