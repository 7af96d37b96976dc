//! The kernels for every width of vectors that this processor has, against plain sums in f64.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]

use std::sync::Arc;

use ggml::Quantize as _;
use ggml::{Backend, Context, DType, Sched, Tensor};
use half::f16;

use super::linear::{Linear, Part, Then};
use super::math;
use super::matmul::set::choice::tests::levels;
use super::matmul::tests::{rounded, rounding};
use super::matmul::{self, Level, UnpackedPanels};

pub(crate) fn random(rng: &mut fastrand::Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.f32() * 2.0 - 1.0).collect()
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// What a graph of inputs makes, on so many threads.
pub(crate) fn compute<'c>(
    ctx: &'c Context,
    threads: usize,
    out: Tensor<'c>,
    floats: &[(Tensor<'c>, &[f32])],
    mask: Option<(Tensor<'c>, &[f16])>,
) -> Vec<f32> {
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(threads).unwrap();
    let mut sched = Sched::builder().backend(cpu).build().unwrap();
    let graph = ctx.graph([out]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    for &(t, numbers) in floats {
        run.set(t, numbers).unwrap();
    }
    if let Some((t, numbers)) = mask {
        run.set(t, numbers).unwrap();
    }
    run.compute().unwrap();
    run.get::<f32>(out).unwrap()
}

#[test]
fn matmul_kernel_equals_plain_rust() {
    let mut rng = fastrand::Rng::with_seed(1);
    // Of the last two, threads share the columns.
    for (depth, columns, rows) in
        [(1, 1, 1), (5, 33, 7), (600, 32, 3), (64, 32, 8), (40, 70, 9), (17, 96, 150), (600, 128, 5), (70, 320, 16)]
    {
        let (w, b) = (random(&mut rng, depth * columns), random(&mut rng, columns));
        let (x, residual) = (random(&mut rng, depth * rows), random(&mut rng, columns * rows));
        let (scale, shift) = (random(&mut rng, columns), random(&mut rng, columns));
        for (level, threads) in levels().flat_map(|level| [(level, 1), (level, 3)]) {
            let thens =
                [Then::Nothing, Then::Gelu, Then::AddNorm { scale: scale.clone(), shift: shift.clone(), eps: 0.1 }];
            for then in thens {
                let ctx = Context::new();
                let input = ctx.input("x", DType::F32, [depth as i64, rows as i64]).unwrap();
                let and = ctx.input("and", DType::F32, [columns as i64, rows as i64]).unwrap();
                let expected: Vec<f64> = x
                    .chunks(depth)
                    .zip(residual.chunks(columns))
                    .flat_map(|(x, residual)| {
                        let sums = w.chunks(depth).zip(&b).map(|(w, &b)| dot(w, x) + f64::from(b));
                        match &then {
                            Then::Nothing => sums.collect(),
                            Then::Gelu => sums.map(testkit::gelu_erf).collect(),
                            Then::AddNorm { .. } => {
                                let sums: Vec<_> = sums.zip(residual).map(|(x, &y)| x + f64::from(y)).collect();
                                normal(&sums, &scale, &shift, 0.1)
                            }
                        }
                    })
                    .collect();
                let with = matches!(then, Then::AddNorm { .. }).then_some(and);
                // In two parts.
                let parts = [0..columns / 2, columns / 2..columns].map(|part| {
                    let weights = bytemuck::cast_slice(&w[part.start * depth..part.end * depth]);
                    Part::at(level, DType::F32, weights, depth, &b[part])
                });
                // One column can't be divided.
                let mut linear = Linear::new(parts.into_iter().flatten().collect(), then).unwrap();
                linear.level = level;
                let linear = Arc::new(linear);
                let out = linear.apply(&ctx, input, with).unwrap();
                let mut floats = vec![(input, &x[..])];
                floats.extend(with.map(|and| (and, &residual[..])));
                let found = compute(&ctx, threads, out, &floats, None);
                // Each sum is rounded.
                let allowed = 3e-6 * (depth as f64 / 64.0).max(1.0).sqrt();
                close(&found, &expected, allowed, &format!("{depth} {columns} {rows} {level:?} {:?}", linear.then));
            }
        }
    }
}

fn normal(x: &[f64], scale: &[f32], shift: &[f32], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let deviation = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + eps).sqrt();
    let scaled = x.iter().zip(scale).zip(shift);
    scaled.map(|((x, &scale), &shift)| (x - mean) / deviation * f64::from(scale) + f64::from(shift)).collect()
}

pub(crate) fn close(found: &[f32], expected: &[f64], allowed: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= allowed * expected.abs().max(1.0), "{found} for {expected} at {i}: {what}");
    }
}

/// ggml's own conversions say what blocks stand for. Matrices beside each other have types whose activations are rounded
/// differently.
#[test]
fn quantised_matmul_kernel_equals_dequantised_product() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (dtypes, depth, columns, rows) in [
        (&[DType::Q8_0][..], 32, 1, 1),
        (&[DType::Q8_0, DType::Q4_0], 96, 33, 6),
        (&[DType::Q4_0, DType::Q8_0, DType::Q8_0], 64, 70, 9),
        (&[DType::Q8_0], 800, 64, 70),
        (&[DType::Q8_0], 128, 33, 7),
        (&[DType::Q4_0, DType::Q8_0, DType::Q4_0], 1536, 64, 80),
    ] {
        let mut x = random(&mut rng, depth * rows);
        x[..16].fill(0.0);
        x[16..32].fill(1.0); // whose pairs are the largest
        let bias = random(&mut rng, columns);
        // Blocks of all sizes.
        let mut matrix = |dtype: DType| {
            let mut w = random(&mut rng, depth * columns);
            w.chunks_mut(32).for_each(|block| block.iter_mut().for_each(|x| *x *= rng.f32()));
            dtype.quantize(&w, depth, None).unwrap()
        };
        let matrices: Vec<_> = dtypes.iter().map(|&dtype| (dtype, matrix(dtype))).collect();
        for (level, threads) in levels().flat_map(|level| [(level, 1), (level, 3)]) {
            let ctx = Context::new();
            let input = ctx.input("x", DType::F32, [depth as i64, rows as i64]).unwrap();
            let part = |(dtype, w): &(DType, Vec<u8>)| Part::at(level, *dtype, w, depth, &bias).unwrap();
            let linear = Arc::new(Linear::new(matrices.iter().map(part).collect(), Then::Nothing).unwrap());
            let out = linear.apply(&ctx, input, None).unwrap();
            let found = compute(&ctx, threads, out, &[(input, &x)], None);
            let mut expected = vec![Vec::new(); rows];
            for (dtype, w) in &matrices {
                let panels = UnpackedPanels::new(level, *dtype, w, columns).unwrap();
                assert!(format!("{panels:?}").contains(dtype.name()), "{panels:?}");
                // The matrix is always unpacked, but pairs are limited as of few rows.
                let (mut stands_for, mut rounding) = (dtype.dequantize(w).unwrap(), rounding(level, *dtype, 1));
                if (level, *dtype) == (Level::Avx2, DType::Q8_0) && depth % 64 == 0 {
                    rounding.0 = 64;
                    join_scales(w, &mut stands_for);
                }
                let x = rounded(&x, rounding);
                for (expected, x) in expected.iter_mut().zip(x.chunks(depth)) {
                    let columns = stands_for.chunks(depth).zip(&bias);
                    expected.extend(columns.map(|(w, &b)| dot(w, x) + f64::from(b)));
                }
            }
            close(&found, &expected.concat(), 1e-5, &format!("{level:?} {dtypes:?} {depth} {columns} {rows}"));
        }
    }
}

/// Rounds the scales of two blocks of `q8_0` to 255 steps up to the larger of them.
fn join_scales(blocks: &[u8], stands_for: &mut [f32]) {
    for (blocks, numbers) in blocks.chunks(2 * 34).zip(stands_for.chunks_mut(2 * 32)) {
        let scales: Vec<_> = blocks.chunks(34).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
        let most = scales.iter().copied().fold(0.0, f32::max);
        for (scale, numbers) in scales.iter().zip(numbers.chunks_mut(32)) {
            let rounded = (scale / most * 255.0).round() / 255.0 * most;
            assert!((rounded - scale).abs() <= most / 500.0, "{rounded} for {scale}");
            for x in numbers {
                *x *= rounded / scale;
            }
        }
    }
}

#[test]
fn gelu_equals_the_integral() {
    for i in -2000..=2000 {
        let x = i as f32 / 200.0;
        let (found, expected) = (f64::from(math::gelu(x)), testkit::gelu_erf(f64::from(x)));
        assert!((found - expected).abs() <= 2e-7 * f64::from(x).abs().max(1.0), "{found} for {expected} of {x}");
    }
    assert_eq!(
        [math::gelu(f32::INFINITY), math::gelu(-1e30)].map(f32::to_bits),
        [f32::INFINITY, -0.0].map(f32::to_bits)
    );
    assert!(math::gelu(f32::NAN).is_nan());
}

#[test]
fn exp_equals_the_exponential() {
    for i in 0..=17_400 {
        let x = -(i as f32) / 200.0;
        let error = (f64::from(math::exp(x)) / f64::from(x).exp() - 1.0).abs();
        assert!(error <= 3e-7, "{error:e} of {x}");
    }
    assert_eq!([-87.1, -1e30, f32::NEG_INFINITY].map(|x| math::exp(x).to_bits()), [0; 3]);
    // A NaN may carry any bits.
    for bits in [0x7fc0_0000, 0x7fc0_0001, 0xffff_ffff, 0x7fff_fe01] {
        assert!(math::exp(f32::from_bits(bits)).is_nan(), "{bits:x}");
    }
}

/// Operands that a kernel can't read, or that are none of its.
#[test]
fn other_operands_are_refused() {
    let refused = |made: anyhow::Result<Tensor<'_>>, why: &str| {
        let error = made.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let ctx = Context::new();
    let input = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let turned = |dtype, [a, b, c, d]: [i64; 4]| ctx.transpose(input(dtype, [b, a, c, d])).unwrap();
    assert!(Part::new(DType::F32, &[], 0, &[1.0]).is_err() && Part::new(DType::F32, &[], 1 << 60, &[1.0; 4]).is_err());
    assert!(Part::new(DType::Q8_0, &[], 0, &[1.0]).is_err() && Part::new(DType::F32, &[], 4, &[]).is_err());
    let part = || Part::new(DType::F32, &[0; 24], 3, &[1.0, 2.0]).unwrap();
    let linear = Arc::new(Linear::new(vec![part()], Then::Nothing).unwrap());
    refused(linear.apply(&ctx, turned(DType::F32, [3, 5, 1, 1]), None), "contiguous");
    refused(linear.apply(&ctx, input(DType::F16, [3, 5, 1, 1]), None), "f32");
    let then = Then::AddNorm { scale: vec![1.0; 2], shift: vec![1.0; 2], eps: 0.1 };
    let linear = Arc::new(Linear::new(vec![part()], then).unwrap());
    let x = input(DType::F32, [3, 5, 1, 1]);
    refused(linear.apply(&ctx, x, Some(turned(DType::F32, [2, 5, 1, 1]))), "contiguous");
}

/// It is left to ggml, which says what to do.
#[test]
fn a_transposed_operand_of_mul_mat_is_an_error() {
    let ctx = Context::new();
    let w = ctx.input("w", DType::F16, [256, 32]).unwrap();
    let x = ctx.transpose(ctx.input("x", DType::F32, [5, 256]).unwrap()).unwrap();
    let graph = ctx.graph([matmul::mul_mat(&ctx, w, x).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let error = sched.alloc(&graph).unwrap_err().to_string();
    assert!(error.contains("use `cont`"), "{error}");

    let w = ctx.transpose(ctx.input("w", DType::F16, [32, 256]).unwrap()).unwrap();
    let x = ctx.input("x", DType::F32, [256, 5]).unwrap();
    let error = matmul::mul_mat(&ctx, w, x).unwrap_err().to_string();
    assert!(error.contains("use `cont`"), "{error}");
}
