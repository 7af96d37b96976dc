//! Numbers to blocks and back: independent decoders, the error of each format, any bytes, and what is refused.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

mod sizes;

use ggml::gguf::{Load as _, Reader, Writer};
use ggml::{Context, DType, Device, Error, Quantize as _, WeightsBuilder};
use half::f16;
use testkit::{blocks, encode};

/// Numbers that look like weights: the sum of four uniform ones.
fn weights(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| (0..4).map(|_| rng.f32() - 0.5).sum()).collect()
}

/// The types that numbers can be converted to.
fn writable() -> impl Iterator<Item = DType> {
    let only_kernels = |t| matches!(t, DType::Q8_1 | DType::Q8_K);
    let known = DType::ALL.iter().copied().filter(|t| t.is_known());
    known.filter(move |&t| is_float(t) || (t.is_quantized() && !only_kernels(t)))
}

fn is_float(t: DType) -> bool {
    matches!(t, DType::F32 | DType::F16 | DType::BF16) || encode::is_f8(t)
}

/// Equal weights where the type needs some.
fn imatrix(t: DType, n: usize) -> Option<Vec<f32>> {
    t.requires_imatrix().then(|| vec![1.0; n])
}

/// The root of the mean square of the error, relative to that of the numbers.
fn error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let wrong: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (wrong / a.iter().map(|&a| square(a)).sum::<f64>()).sqrt()
}

/// The numbers in a block, from the format's definition, or `None` where the tests have none.
fn defined(t: DType, block: &[u8]) -> Option<Vec<f64>> {
    let plain = is_float(t) || matches!(t, DType::Q8_0 | DType::Q4_0);
    if plain { Some(encode::decode(t, block)) } else { blocks::decode(t, block) }
}

#[test]
fn dequantize_equals_independent_decoders() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut compared = 0;
    for &t in DType::ALL {
        for _ in 0..20 {
            // At an odd address, where no block may lie.
            let mut bytes = vec![0; t.type_size() * 5 + 1];
            rng.fill(&mut bytes);
            let bytes = &bytes[1..];
            let Ok(numbers) = t.dequantize(bytes) else {
                let reads = writable().any(|w| w == t);
                assert!(!reads, "{t}");
                continue;
            };
            assert_eq!(numbers.len() as i64, 5 * t.block_size(), "{t}");
            let expected: Option<Vec<_>> = bytes.chunks_exact(t.type_size()).map(|b| defined(t, b)).collect();
            for (i, (got, expected)) in numbers.iter().zip(expected.unwrap_or_default().concat()).enumerate() {
                let (got, near) = (f64::from(*got), 1e-6 * expected.abs());
                let same =
                    got == expected || (got - expected).abs() <= near || !(got.is_finite() && expected.is_finite());
                assert!(same, "{t} at {i}: {got}, expected {expected}");
                compared += 1;
            }
        }
    }
    let f8 = DType::ALL.iter().filter(|&&t| encode::is_f8(t) && t.is_known()).count();
    assert_eq!(compared, 20 * 5 * (899 + 64 + 2 * 256 + 32 + f8), "numbers in blocks of the formats above");
}

/// What is left of the numbers, in parts of their size: about as much as the format's bits can hold.
#[test]
fn quantize_error_matches_the_bits_of_the_type() {
    let data = weights(4 * 1024, 2);
    for t in writable() {
        let bits = t.type_size() as f64 * 8.0 / t.block_size() as f64;
        let bytes = t.quantize(&data, 1024, imatrix(t, 1024).as_deref()).unwrap();
        assert_eq!(bytes.len() as i64 * t.block_size(), 4096 * t.type_size() as i64, "{t}");
        assert!(t.validate_row_data(&bytes).unwrap(), "{t}");
        let back = t.dequantize(&bytes).unwrap();
        let (error, most) = (
            error(&data, &back),
            match t {
                DType::F32 => 0.0,
                DType::F16 => 2.0_f64.powi(-11),
                DType::BF16 => 2.0_f64.powi(-8),
                t if encode::is_f8(t) => 2.0_f64.powi(-4),
                // Its scale is the largest number, and there are only that, its negative, and 0.
                DType::Q2_0 | DType::TQ1_0 | DType::TQ2_0 => 0.9,
                _ => 1.5 * 2.0_f64.powf(1.0 - bits),
            },
        );
        assert!(error <= most, "{t}: error {error}, at most {most} with {bits} bits");
    }
}

/// No number of a block of these is further off than half a step, which is the range over the number of steps.
#[test]
fn quantize_error_is_at_most_half_a_step() {
    let data = weights(32 * 64, 3);
    for (t, steps) in [(DType::Q8_0, 254.0), (DType::Q4_1, 15.0), (DType::Q5_1, 31.0)] {
        let back = t.dequantize(&t.quantize(&data, 32, None).unwrap()).unwrap();
        for (a, b) in data.chunks(32).zip(back.chunks(32)) {
            let (low, high) = a.iter().fold((f32::MAX, f32::MIN), |(l, h), &x| (l.min(x), h.max(x)));
            let range = if t == DType::Q8_0 { 2.0 * high.max(-low) } else { high - low };
            let worst = a.iter().zip(b).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
            // The scale and the minimum are rounded to 16 bits.
            assert!(worst <= range / steps * 0.5 + (range + low.abs()) * 1e-3, "{t}: {worst} of {range}");
        }
    }
}

#[test]
fn imatrix_reduces_the_error_of_heavy_columns() {
    let (n, data) = (512, weights(8 * 512, 4));
    let matters: Vec<f32> = (0..n).map(|i| if i % 8 == 0 { 100.0 } else { 0.1 }).collect();
    let part = |x: &[f32]| x.iter().copied().step_by(8).collect::<Vec<_>>();
    for t in [DType::Q4_0, DType::Q4_K, DType::IQ4_XS, DType::IQ2_XXS] {
        let of = |imatrix: &[f32]| {
            let back = t.dequantize(&t.quantize(&data, n, Some(imatrix)).unwrap()).unwrap();
            error(&part(&data), &part(&back))
        };
        let (with, without) = (of(&matters), of(&vec![1.0; n]));
        assert!(with < 0.9 * without, "{t}: {with} with weights, {without} without");
    }
}

/// The tables of these types are made when they are first used.
/// ggml itself leaves what was on its stack where there is nothing to scale.
#[test]
fn quantize_of_zeros_is_deterministic() {
    for zeros in [[0.0_f32; 64], [-0.0; 64], [1e-30; 64]] {
        let bytes = DType::IQ4_NL.quantize(&zeros, 64, None).unwrap();
        for block in bytes.chunks(18) {
            assert_eq!((&block[..2], &block[2..]), (&[0; 2][..], &[0x88; 16][..]));
        }
        assert!(DType::IQ4_NL.dequantize(&bytes).unwrap().iter().all(|x| *x == 0.0), "zeros");
    }
}

#[test]
fn quantize_works_in_several_threads() {
    let data = weights(2048, 6);
    for t in [DType::IQ2_XXS, DType::IQ3_S, DType::IQ1_S, DType::IQ2_S] {
        let convert = || t.quantize(&data, 1024, Some(&[1.0; 1024])).unwrap();
        let all: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4).map(|_| s.spawn(convert)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(all.iter().all(|bytes| *bytes == all[0]), "{t}");
    }
}

#[test]
fn quantize_to_plain_types_takes_any_value() {
    let data = [f32::NAN, f32::INFINITY, -0.0, 1e-40, 70000.0];
    let back = DType::F32.dequantize(&DType::F32.quantize(&data, 5, None).unwrap()).unwrap();
    assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), data.map(f32::to_bits));
    let back = DType::F16.dequantize(&DType::F16.quantize(&data, 1, None).unwrap()).unwrap();
    assert!(back[0].is_nan() && back[1..] == [f32::INFINITY, -0.0, 0.0, f32::INFINITY], "{back:?}");
    let back = DType::BF16.dequantize(&DType::BF16.quantize(&data, 5, None).unwrap()).unwrap();
    assert!(back[0].is_nan() && back[1] == f32::INFINITY && (back[4] - 70000.0).abs() < 300.0, "{back:?}");
    assert!(DType::Q4_K.quantize(&[], 256, None).unwrap().is_empty(), "no rows");
    assert!(DType::Q4_K.dequantize(&[]).unwrap().is_empty(), "no blocks");
}

/// Asserts that a conversion was refused for its parameter of this name.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "what a call returned")]
fn refused<T: std::fmt::Debug>(result: ggml::Result<T>, parameter: &str) {
    assert!(matches!(&result, Err(Error::Param { name, .. }) if *name == parameter), "{result:?}");
}

/// C checks some types only, and writes behind the buffer for the others.
#[test]
fn h31_quantize_requires_whole_blocks() {
    for t in writable() {
        let block = t.block_size() as usize;
        refused(t.quantize(&[0.0; 512], 0, imatrix(t, 0).as_deref()), "n_per_row");
        refused(t.quantize(&[0.0; 512], usize::MAX, None), "n_per_row");
        for n in [block + 1, block / 2, block * 3 / 2] {
            if n % block != 0 {
                refused(t.quantize(&vec![0.0; n], n, imatrix(t, n).as_deref()), "n_per_row");
            }
        }
        refused(t.quantize(&vec![0.0; 3 * block], 2 * block, imatrix(t, 2 * block).as_deref()), "data");
    }
}

#[test]
fn quantize_refuses_values_that_blocks_cannot_hold() {
    for t in writable().filter(|t| t.is_quantized()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65505.0, -1e30] {
            let mut data = weights(1024, 7);
            data[1000] = bad;
            refused(t.quantize(&data, 512, Some(&[1.0; 512])), "data");
        }
    }
}

#[test]
fn quantize_checks_the_imatrix() {
    let data = weights(1024, 8);
    for t in [DType::IQ2_XXS, DType::IQ2_XS, DType::IQ1_S] {
        assert!(t.requires_imatrix());
        refused(t.quantize(&data, 512, None), "imatrix");
    }
    assert!(!DType::Q4_K.requires_imatrix());
    for n in [0, 511, 513, 1024] {
        refused(DType::Q4_K.quantize(&data, 512, Some(&vec![1.0; n])), "imatrix");
    }
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-11, 1e11] {
        let mut weights = [1.0; 512];
        weights[511] = bad;
        refused(DType::Q4_K.quantize(&data, 512, Some(&weights)), "imatrix");
    }
}

#[test]
fn quantize_refuses_types_without_a_conversion() {
    for &t in DType::ALL {
        if !writable().any(|w| w == t) {
            let n = t.block_size() as usize;
            let result = t.quantize(&vec![0.0; n], n, None);
            assert!(matches!(result, Err(Error::DType { .. })), "{t}: {result:?}");
            let result = t.dequantize(&vec![0; t.type_size()]);
            assert!(matches!(result, Err(Error::DType { .. })), "{t}: {result:?}");
        }
        if t.type_size() > 1 && t.is_known() {
            refused(t.dequantize(&vec![0; t.type_size() + 1]), "bytes");
            refused(t.validate_row_data(&vec![0; t.type_size() - 1]), "bytes");
        }
    }
}

#[test]
fn validate_row_data_refuses_values_that_are_not_finite() {
    let check = |t: DType, bytes: &[u8]| t.validate_row_data(bytes).unwrap();
    let numbers = |x: f32| [0.0, 1.0, x].map(f32::to_le_bytes).concat();
    assert!(check(DType::F32, &numbers(2.0)));
    assert!(!check(DType::F32, &numbers(f32::NAN)) && !check(DType::F32, &numbers(f32::INFINITY)));
    let mut block = DType::Q8_0.quantize(&weights(64, 9), 64, None).unwrap();
    assert!(check(DType::Q8_0, &block));
    block[34..36].copy_from_slice(&f16::NAN.to_le_bytes());
    assert!(!check(DType::Q8_0, &block), "the second block's scale");
    // At an odd address, and in more than one part.
    let mut many = vec![0; (1 << 20) * 2 + 5];
    assert!(check(DType::F16, &many[1..many.len()]));
    many[(1 << 20) * 2 + 3..].copy_from_slice(&f16::INFINITY.to_le_bytes());
    assert!(!check(DType::F16, &many[1..many.len()]));
}

/// A file can have types that only later versions of ggml know. C would look them up beyond the end of its tables.
#[test]
fn types_of_later_versions_are_errors() {
    let cpu = Device::cpu().unwrap();
    let mut unknown = 0;
    for &t in DType::ALL {
        let (n, size) = (t.block_size(), t.type_size());
        let bytes = vec![0; size];
        let mut writer = Writer::new();
        writer.tensor("t", t, [n], &bytes).unwrap();
        let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
        assert_eq!(reader.tensor("t").unwrap().dtype(), t);
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [n]).unwrap();
        let made = [
            ctx.input("t", t, [n]).err(),
            WeightsBuilder::new().tensor("t", t, [n]).err(),
            reader.load(cpu).err(),
            cpu.buffer_type().holds(t, [n, 1]).err(),
            t.validate_row_data(&bytes).err(),
        ];
        let columns = usize::try_from(n).unwrap();
        let rest = [
            ctx.cast(x, t).err(),
            ctx.add_cast(x, x, t).err(),
            t.quantize(&vec![0.0; columns], columns, Some(&vec![1.0; columns])).err(),
            t.dequantize(&bytes).err(),
        ];
        unknown += usize::from(!t.is_known());
        for e in &made {
            assert_eq!(e.is_none(), t.is_known(), "{t}: {e:?}");
        }
        // Few of the known types are for these.
        assert!(t.is_known() || rest.iter().all(Option::is_some), "{t}: {rest:?}");
        if !t.is_known() {
            let texts = made.iter().chain(&rest).flatten().map(ToString::to_string);
            // By ggml's name or the constant's.
            texts.for_each(|text| assert!(text.to_lowercase().contains(t.name()), "{text}"));
        }
    }
    assert_eq!(unknown, usize::from(!cfg!(ggml_0_28)));
}
