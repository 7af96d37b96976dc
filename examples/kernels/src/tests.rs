//! The kernels for every width of vectors that this processor has, against plain sums in f64.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "small numbers")]

use std::num::NonZeroUsize;
use std::sync::Arc;

use ggml::{Backend, Context, DType, Sched, Tensor};
use half::f16;
use pulp::Arch;

use super::attention::Attention;
use super::linear::{Linear, Part, Then};
use super::math;
use super::matmul::{self, Panels};

/// All that the processor can do.
fn archs() -> Vec<Arch> {
    let usual = [Arch::Scalar, Arch::new()].into_iter();
    #[cfg(target_arch = "x86_64")]
    let usual = usual.chain(pulp::x86::V3::try_new().map(Arch::V3));
    usual.collect()
}

fn random(rng: &mut fastrand::Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.f32() * 2.0 - 1.0).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// What a graph of inputs makes, on so many threads.
fn compute<'c>(
    ctx: &'c Context,
    threads: usize,
    out: Tensor<'c>,
    floats: &[(Tensor<'c>, &[f32])],
    mask: Option<(Tensor<'c>, &[f16])>,
) -> Vec<f32> {
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(NonZeroUsize::new(threads).unwrap().get()).unwrap();
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
    for (depth, columns, rows) in [(1, 1, 1), (5, 33, 7), (64, 32, 8), (40, 70, 9), (17, 96, 150)] {
        let (w, b) = (random(&mut rng, depth * columns), random(&mut rng, columns));
        let (x, residual) = (random(&mut rng, depth * rows), random(&mut rng, columns * rows));
        let (scale, shift) = (random(&mut rng, columns), random(&mut rng, columns));
        for (arch, threads) in archs().into_iter().flat_map(|arch| [(arch, 1), (arch, 3)]) {
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
                    Part::new(DType::F32, weights, depth, &b[part])
                });
                // One column can't be divided.
                let mut linear = Linear::new(parts.into_iter().flatten().collect(), then).unwrap();
                linear.arch = arch;
                let linear = Arc::new(linear);
                let out = linear.apply(&ctx, input, with).unwrap();
                let mut floats = vec![(input, &x[..])];
                floats.extend(with.map(|and| (and, &residual[..])));
                let found = compute(&ctx, threads, out, &floats, None);
                close(&found, &expected, 3e-6, &format!("{depth} {columns} {rows} {arch:?} {:?}", linear.then));
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

fn close(found: &[f32], expected: &[f64], allowed: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= allowed * expected.abs().max(1.0), "{found} for {expected} at {i}: {what}");
    }
}

/// ggml's own conversions say what blocks stand for.
#[test]
fn quantised_matmul_kernel_equals_dequantised_product() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (dtype, depth, columns, rows) in
        [(DType::Q8_0, 32, 1, 1), (DType::Q8_0, 96, 33, 6), (DType::Q4_0, 64, 70, 9), (DType::Q8_0, 384, 64, 70)]
    {
        let (w, mut x) = (random(&mut rng, depth * columns), random(&mut rng, depth * rows));
        x[..16].fill(0.0);
        let w = dtype.quantize(&w, depth, None).unwrap();
        let stands_for = dtype.dequantize(&w).unwrap();
        // Rounded as ggml rounds them, except the scale, which has 16 bits there.
        let rounded = DType::Q8_0.dequantize(&DType::Q8_0.quantize(&x, depth, None).unwrap()).unwrap();
        let bias = random(&mut rng, columns);
        let expected: Vec<_> = rounded
            .chunks(depth)
            .flat_map(|x| stands_for.chunks(depth).zip(&bias).map(move |(w, &b)| dot(w, x) + f64::from(b)))
            .collect();
        for threads in [1, 3] {
            if Panels::new(dtype, &w, columns).is_none() {
                assert!(!has_bytes(), "there are panels wherever there are the instructions");
                continue;
            }
            let ctx = Context::new();
            let input = ctx.input("x", DType::F32, [depth as i64, rows as i64]).unwrap();
            let part = Part::new(dtype, &w, depth, &bias).unwrap();
            let linear = Arc::new(Linear::new(vec![part], Then::Nothing).unwrap());
            let out = linear.apply(&ctx, input, None).unwrap();
            let found = compute(&ctx, threads, out, &[(input, &x)], None);
            close(&found, &expected, 1e-2, &format!("{dtype} {depth} {columns} {rows}"));
        }
    }
    assert!(Panels::new(DType::F16, &[0; 64], 1).is_none());
}

/// Whether the processor multiplies bytes.
fn has_bytes() -> bool {
    matmul::multiplies(DType::Q8_0, [256, 32, 1, 1])
}

#[test]
fn mul_mat_equals_dequantised_product() {
    let mut rng = fastrand::Rng::with_seed(7);
    let shapes = [
        (256, 32, 1),
        (512, 96, 2),
        (256, 64, 3),
        (768, 32, 5),
        (1280, 64, 7),
        (2304, 32, 2),
        (256, 64, 8),
        (512, 96, 9),
        (256, 160, 37),
        (4096, 32, 140),
    ];
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K] {
        for (depth, columns, rows) in shapes {
            let shape = [depth as i64, columns as i64, 1, 1];
            assert_eq!(matmul::multiplies(dtype, shape), has_bytes(), "{dtype} {shape:?}");
            if !has_bytes() {
                continue; // ggml computes it, which rounds activations otherwise
            }
            let (w, mut x) = (random(&mut rng, depth * columns), random(&mut rng, depth * rows));
            x[..40].fill(0.0);
            let w = dtype.quantize(&w, depth, None).unwrap();
            let stands_for = dtype.dequantize(&w).unwrap();
            let rounded = match dtype {
                DType::F16 => x.clone(),
                // But for their scale, which has 16 bits there.
                _ => DType::Q8_0.dequantize(&DType::Q8_0.quantize(&x, depth, None).unwrap()).unwrap(),
            };
            let expected: Vec<_> =
                rounded.chunks(depth).flat_map(|x| stands_for.chunks(depth).map(move |w| dot(w, x))).collect();
            let mut weights = ggml::WeightsBuilder::new();
            weights.tensor("w", dtype, [depth, columns]).unwrap();
            let mut weights = weights.place(ggml::Device::cpu().unwrap()).unwrap();
            weights.set_bytes("w", &w).unwrap();
            for threads in [1, 3] {
                let ctx = Context::new();
                let input = ctx.input("x", DType::F32, [depth as i64, rows as i64]).unwrap();
                let out = matmul::mul_mat(&ctx, weights.tensor("w").unwrap(), input).unwrap();
                let found = compute(&ctx, threads, out, &[(input, &x)], None);
                let allowed = if dtype == DType::F16 { 1e-5 } else { 1e-3 } * (depth as f64).sqrt();
                close(&found, &expected, allowed, &format!("{dtype} {depth} {columns} {rows}"));
            }
        }
    }
    // What the kernels don't compute, ggml does.
    assert!(!matmul::multiplies(DType::Q5_0, [256, 32, 1, 1]) && !matmul::multiplies(DType::Q8_0, [256, 33, 1, 1]));
    assert!(!matmul::multiplies(DType::Q8_0, [288, 32, 1, 1]) && !matmul::multiplies(DType::Q8_0, [256, 32, 2, 1]));
    let ctx = Context::new();
    let [w, x] = [("w", 3), ("x", 5)].map(|(name, n)| ctx.input(name, DType::F32, [40, n]).unwrap());
    let (a, b) = (random(&mut rng, 120), random(&mut rng, 200));
    let expected: Vec<_> = b.chunks(40).flat_map(|x| a.chunks(40).map(move |w| dot(w, x))).collect();
    let found = compute(&ctx, 2, matmul::mul_mat(&ctx, w, x).unwrap(), &[(w, &a), (x, &b)], None);
    close(&found, &expected, 1e-5, "f32");
}

#[test]
fn attention_kernel_equals_plain_rust() {
    let mut rng = fastrand::Rng::with_seed(2);
    // The numbers of tokens of the sentences.
    for (size, heads, lengths) in [(4, 2, &[3][..]), (32, 3, &[40, 40]), (32, 1, &[70, 1, 33]), (40, 2, &[9, 31, 32])] {
        let (width, longest) = (size * heads, *lengths.iter().max().unwrap());
        let x = random(&mut rng, 3 * width * longest * lengths.len());
        let scale = 3.0 / size as f32;
        let mut expected = Vec::new();
        for (x, &n) in x.chunks(3 * width * longest).zip(lengths) {
            let tokens: Vec<_> = x.chunks(3 * width).collect();
            for query in &tokens {
                for head in (0..width).step_by(size) {
                    let scores = tokens[..n].iter().map(|k| dot(&query[head..][..size], &k[width + head..][..size]));
                    let weights: Vec<_> = scores.map(|s| (s * f64::from(scale)).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    expected.extend((0..size).map(|i| {
                        let values = tokens.iter().map(|v| f64::from(v[2 * width + head + i]));
                        values.zip(&weights).map(|(v, w)| v * w).sum::<f64>() / total
                    }));
                }
            }
        }
        let mask: Vec<_> = lengths
            .iter()
            .flat_map(|&n| (0..longest).map(move |i| if i < n { f16::ZERO } else { f16::NEG_INFINITY }))
            .collect();
        for (arch, threads) in archs().into_iter().flat_map(|arch| [(arch, 1), (arch, 3)]) {
            let ctx = Context::new();
            let (n, sentences) = (longest as i64, lengths.len() as i64);
            let qkv = ctx.input("qkv", DType::F32, [3 * width as i64, n, sentences]).unwrap();
            let padded = lengths.iter().any(|&n| n < longest);
            let masked = padded.then(|| ctx.input("mask", DType::F16, [n, 1, 1, sentences]).unwrap());
            let out = Attention { arch, width, heads, scale }.apply(&ctx, qkv, masked).unwrap();
            let found = compute(&ctx, threads, out, &[(qkv, &x)], masked.map(|t| (t, &mask[..])));
            close(&found, &expected, 3e-6, &format!("{size} {heads} {lengths:?} {arch:?} {threads}"));
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
fn softmax_kernel_equals_exponentials() {
    let mut rng = fastrand::Rng::with_seed(3);
    for n in [1, 15, 16, 17, 100] {
        for spread in [0.0, 1.0, 80.0] {
            let scores: Vec<_> = random(&mut rng, n).iter().map(|x| x * spread).collect();
            let all: Vec<_> = scores.iter().map(|&x| (f64::from(x) * 0.5).exp()).collect();
            let total: f64 = all.iter().sum();
            let mut found = scores.clone();
            let sum = math::soft_max(&mut found, 0.5);
            for (found, expected) in found.iter().zip(all) {
                let error = f64::from(found / sum) - expected / total;
                assert!(error.abs() <= 3e-7, "{error:e} of {} at {n}, {spread}", expected / total);
            }
        }
    }
}
