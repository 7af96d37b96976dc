//! Numbers of all sizes: what is near to 0, what is large, and what a format would give back far larger than it was.

use ggml::DType;
use ggml::Quantize as _;

use super::{imatrix, refused, writable};

/// Numbers of all sizes, and weights of all sizes: nothing asserts, hangs, or makes numbers that are none. The largest
/// may be refused, since scales are fitted.
#[test]
fn quantize_accepts_values_of_all_magnitudes() {
    let mut rng = fastrand::Rng::with_seed(5);
    for t in writable() {
        let (mut made, mut tries) = (0, 0);
        let most = if t == DType::NVFP4 { 2688.0 } else { 65504.0 };
        let mut check = |data: &[f32], weights: Option<&[f32]>| {
            tries += 1;
            match t.quantize(data, 512, weights) {
                Ok(bytes) => {
                    made += 1;
                    assert!(t.dequantize(&bytes).unwrap().iter().all(|x| x.is_finite()), "{t}");
                }
                Err(error) => {
                    let (large, text) = (data.iter().any(|x| x.abs() > 1000.0), error.to_string());
                    let infinite = large && text.contains("infinite");
                    assert!(infinite || (weights.is_some() && text.contains("come back")), "{t}: {error}");
                }
            }
        };
        for (low, high) in [(-45, 4), (-45, -38), (-20, -15), (-16, -12), (-8, -3), (4, 4)] {
            let mut number = || {
                let x = 10.0_f32.powf(low as f32 + rng.f32() * (high - low) as f32) * (rng.f32() + 0.1);
                let x = x.min(most);
                [x, -x, 0.0, (x * 7.0).min(most)][rng.usize(0..4)]
            };
            let data: Vec<f32> = (0..512).map(|_| number()).collect();
            let weights: Vec<f32> = (0..512).map(|_| 10.0_f32.powf(rng.f32() * 19.0 - 9.5)).collect();
            check(&data, imatrix(t, 512).as_deref());
            check(&data, Some(&weights));
        }
        for weight in [1e-10, 1e10] {
            let data: Vec<f32> = (0..512).map(|i| [1e-14, -1.0, most][i % 3]).collect();
            check(&data, Some(&[weight; 512]));
        }
        for constant in [0.0, most, -most, 1.0, f32::MIN_POSITIVE] {
            check(&[constant; 512], imatrix(t, 512).as_deref());
        }
        assert!(made * 2 > tries, "{t}: {made} of {tries}");
        let zeros = t.dequantize(&t.quantize(&[0.0; 512], 512, imatrix(t, 512).as_deref()).unwrap()).unwrap();
        assert!(zeros.iter().all(|&x| x.abs() < 1e-6), "{t}: {zeros:?}");
    }
}

/// 256 numbers up to `most`, of which a block may have next to none, or of very different sizes.
fn shape(kind: usize, most: f32, rng: &mut fastrand::Rng) -> Vec<f32> {
    let mut number = |i: usize| {
        let x = 2.0 * rng.f32() - 1.0;
        match kind {
            0 => x,
            1 => [x, 0.0][usize::from(rng.f32() > 0.05)],
            2 => 1.0,
            3 => [1.0, x * 1e-3][usize::from(i != 17)],
            4 => x.abs(),
            5 => 0.9 + 0.1 * x,
            6 => x.signum() * 10.0_f32.powf(-8.0 * rng.f32()),
            _ => [x, x * 1e-4][i / 16 % 2],
        }
    };
    (0..256).map(|i| most * number(i)).collect()
}

/// Where a fit leaves numbers out, what it makes of them may be of any size: `iq1_m` without weights makes tenfold numbers
/// of zeros beside a single one. Fits with like weights are never that far off.
#[test]
fn quantize_refuses_values_that_would_decode_far_larger() {
    let mut rng = fastrand::Rng::with_seed(11);
    let largest = |block: &[f32]| block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let mut refusals = 0;
    for t in writable().filter(|t| t.is_quantized()) {
        for (kind, exponent) in (0..8).flat_map(|kind| (-12..5).step_by(2).map(move |e| (kind, e))) {
            let most = (10.0_f32.powi(exponent) * (1.0 + 5.0 * rng.f32())).min(65504.0);
            let data = shape(kind, most, &mut rng);
            let wild: Vec<f32> = (0..256).map(|_| 10.0_f32.powf(rng.f32() * 19.0 - 9.5)).collect();
            for weights in [None, Some(&[1.0; 256][..]), Some(&wild)] {
                if weights.is_none() && t.requires_imatrix() {
                    continue;
                }
                let result = t.quantize(&data, 256, weights);
                let Ok(bytes) = &result else {
                    let like = weights.is_some_and(|w| w[0] == 1.0);
                    let expected = if t == DType::NVFP4 { most > 2688.0 } else { !like };
                    assert!(expected, "{t}, {kind} up to {most}: {result:?}");
                    refused(result, "data");
                    refusals += usize::from(t != DType::NVFP4);
                    continue;
                };
                let (back, block) = (t.dequantize(bytes).unwrap(), t.block_size() as usize);
                for (data, back) in data.chunks(block).zip(back.chunks(block)) {
                    let (was, is) = (largest(data), largest(back));
                    assert!(is <= 4.0 * was + 1e-6, "{t}, {kind} up to {most}: {was} came back as {is}");
                    let constant = kind == 2 && most > 0.01 && weights.is_none_or(|w| w[0] == 1.0);
                    assert!(!constant || is >= was / 2.0, "{t}: {was} came back as {is}");
                }
            }
        }
    }
    assert!(refusals > 20, "{refusals} refusals");
}

/// A single number in a block, by hand: one code of `iq1_m` is an eighth, and a fit that sees no other number may take it.
#[test]
fn quantize_to_iq1_m_does_not_magnify_a_single_value() {
    let mut refusals = 0;
    for i in 0..100 {
        let mut data = [0.0; 256];
        data[40] = 1.0 + i as f32 / 100.0;
        match DType::IQ1_M.quantize(&data, 256, None) {
            Ok(bytes) => assert!(DType::IQ1_M.dequantize(&bytes).unwrap().iter().all(|x| x.abs() < 8.0)),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("block at 0") && text.contains("imatrix"), "{text}");
                refusals += 1;
            }
        }
        let back = DType::IQ1_M.dequantize(&DType::IQ1_M.quantize(&data, 256, Some(&[1.0; 256])).unwrap()).unwrap();
        assert!(back.iter().all(|x| x.abs() < 3.0), "{back:?}");
    }
    assert!(refusals > 0, "no fit took the least code");
}

/// Its scales end where those of other types go on.
#[test]
fn quantize_to_nvfp4_accepts_values_up_to_2688() {
    refused(DType::NVFP4.quantize(&[2689.0; 64], 64, None), "data");
    let back = DType::NVFP4.dequantize(&DType::NVFP4.quantize(&[2688.0; 64], 64, None).unwrap()).unwrap();
    assert!(back.iter().all(|&x| x == 2688.0), "{back:?}");
}

/// Fitted with weights, a minimum may lie below all numbers.
#[test]
fn quantize_refuses_infinite_scales() {
    let mut rng = fastrand::Rng::with_seed(10);
    let mut refusals = 0;
    for _ in 0..300 {
        let data: Vec<f32> = (0..32).map(|_| -65504.0 + 30000.0 * rng.f32() * rng.f32()).collect();
        let weights: Vec<f32> = (0..32).map(|_| if rng.bool() { 1e-10 } else { 1e10 }).collect();
        let result = DType::Q4_1.quantize(&data, 32, Some(&weights));
        refusals += u32::from(result.is_err());
        match result {
            Ok(bytes) => assert!(DType::Q4_1.dequantize(&bytes).unwrap().iter().all(|x| x.is_finite())),
            Err(_) => refused(result, "data"),
        }
        let tenth: Vec<f32> = data.iter().map(|x| x / 10.0).collect();
        assert!(DType::Q4_1.quantize(&tenth, 32, Some(&weights)).is_ok());
    }
    assert!(refusals > 0, "no fit was too large");
}

/// Else the inverse of a scale would be infinite, and its product with 0 no number.
#[test]
fn quantize_flushes_tiny_values_to_zero() {
    for t in writable().filter(|t| t.is_quantized()) {
        let of = |x: f32| {
            let data: Vec<f32> = (0..512).map(|i| if i % 2 == 0 { x } else { -x }).collect();
            t.quantize(&data, 512, imatrix(t, 512).as_deref()).unwrap()
        };
        assert_eq!(of(1e-21), of(0.0), "{t}");
    }
    assert_ne!(
        DType::MXFP4.quantize(&[1e-19; 32], 32, None).unwrap(),
        DType::MXFP4.quantize(&[0.0; 32], 32, None).unwrap()
    );
}
