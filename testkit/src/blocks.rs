//! Block types other than `q8_0` and `q4_0`, read from the formats' definitions, and the nearest numbers that the simple
//! ones can hold.

use ggml::prelude::*;
use half::f16;

use crate::e4m3::{e4m3, to_e4m3};

/// The numbers in a block, or `None` where this file has no decoder.
pub fn decode(t: DType, block: &[u8]) -> Option<Vec<f64>> {
    let half = |at: usize| f64::from(f16::from_le_bytes([block[at], block[at + 1]]));
    // 32 numbers of 4 bits from `at` on, the low halves of all bytes first.
    let nibbles = |at: usize| (0..32).map(move |i| block[at + i % 16] >> (4 * (i / 16)) & 15);
    // A fifth bit for each, from `at` on.
    let fifth = |at: usize| (0..32).map(move |i| block[at + i / 8] >> (i % 8) & 1);
    let five = |bits, rest| nibbles(rest).zip(fifth(bits)).map(|(low, high)| f64::from(low | high << 4));
    Some(match t {
        DType::Q1_0 => {
            (0..128).map(|i| if block[2 + i / 8] >> (i % 8) & 1 == 1 { half(0) } else { -half(0) }).collect()
        }
        DType::Q2_0 => (0..64).map(|i| half(0) * (f64::from(block[2 + i / 4] >> (2 * (i % 4)) & 3) - 1.0)).collect(),
        DType::Q4_1 => nibbles(4).map(|q| half(0) * f64::from(q) + half(2)).collect(),
        DType::Q5_0 => five(2, 6).map(|q| half(0) * (q - 16.0)).collect(),
        DType::Q5_1 => five(4, 8).map(|q| half(0) * q + half(2)).collect(),
        DType::MXFP4 => nibbles(1).map(|q| e2m1(q) * 2.0_f64.powi(i32::from(block[0]) - 127)).collect(),
        // A scale without a sign for each 16 numbers, of which the low halves of 8 bytes come first.
        DType::NVFP4 => (0..64)
            .map(|i| {
                let (part, i) = (i / 16, i % 16);
                let q = block[4 + 8 * part + i % 8] >> (4 * (i / 8)) & 15;
                e2m1(q) * e4m3(block[part] & 0x7f)
            })
            .collect(),
        DType::IQ4_NL => nibbles(2).map(|q| half(0) * NON_LINEAR[usize::from(q)]).collect(),
        // Scales of 6 bits less 32, put together of 4 and 2.
        DType::IQ4_XS => (0..256)
            .map(|i| {
                let (part, i) = (i / 32, i % 32);
                let low = block[4 + part / 2] >> (4 * (part % 2)) & 15;
                let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * part) & 3;
                let q = block[8 + 16 * part + i % 16] >> (4 * (i / 16)) & 15;
                half(0) * (f64::from(u16::from(low) | high << 4) - 32.0) * NON_LINEAR[usize::from(q)]
            })
            .collect(),
        // 256 numbers of 8 bits less 32, put together of 4 and 2, with a scale for each 16.
        DType::Q6_K => (0..256)
            .map(|i| {
                let (half_block, i) = (i / 128, i % 128);
                let low = block[64 * half_block + i % 64] >> (4 * (i / 64)) & 15;
                let high = block[128 + 32 * half_block + i % 32] >> (2 * (i / 32)) & 3;
                let scale = block[192 + 8 * half_block + i / 16].cast_signed();
                half(208) * f64::from(scale) * (f64::from(low | high << 4) - 32.0)
            })
            .collect(),
        // Five ternary digits are the fraction of a byte; the last bytes have four.
        DType::TQ1_0 => (0..256)
            .map(|i| {
                let (byte, digit) = match i {
                    0..160 => (i % 32, i / 32),
                    160..240 => (32 + (i - 160) % 16, (i - 160) / 16),
                    _ => (48 + (i - 240) % 4, (i - 240) / 4),
                };
                let fraction = (0..digit).fold(u32::from(block[byte]), |q, _| q * 3 % 256);
                half(52) * (f64::from(fraction * 3 / 256) - 1.0)
            })
            .collect(),
        DType::TQ2_0 => (0..256)
            .map(|i| {
                let q = block[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
                half(64) * (f64::from(q) - 1.0)
            })
            .collect(),
        _ => return None,
    })
}

/// What numbers become in blocks of this type, or `None` where a fit decides, or this file has no encoder.
pub fn nearest(t: DType, data: &[f64]) -> Option<Vec<f64>> {
    let block = usize::try_from(t.block_size()).unwrap();
    let most = |x: &[f64]| x.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let rounded = |x: f64| f64::from(f16::from_f64(x));
    let codes = |x: &[f64], scale: f64| x.iter().map(|x| near_code(x / scale) * scale).collect::<Vec<_>>();
    let of = |x: &[f64]| match t {
        // The mean size, with each number's sign.
        DType::Q1_0 => {
            let mean = rounded(x.iter().map(|x| x.abs()).sum::<f64>() / x.len() as f64);
            Some(x.iter().map(|&x| if x < 0.0 { -mean } else { mean }).collect())
        }
        // The largest size, its negative, or 0.
        DType::Q2_0 | DType::TQ1_0 | DType::TQ2_0 => {
            let most = most(x);
            Some(x.iter().map(|x| rounded(most) * (x / most).round()).collect())
        }
        // Four is the largest power of two among the codes.
        DType::MXFP4 => Some(codes(x, 2.0_f64.powf(most(x).log2().floor() - 2.0))),
        // A scale between two is rounded up.
        DType::NVFP4 => {
            let scale = |x: &[f64]| e4m3(to_e4m3(most(x) / 6.0 * (1.0 + 1e-9)));
            Some(x.chunks(16).flat_map(|x| codes(x, scale(x))).collect())
        }
        _ => None,
    };
    data.chunks_exact(block).map(of).collect::<Option<Vec<_>>>().map(|blocks: Vec<Vec<f64>>| blocks.concat())
}

/// A sign, two bits of exponent, and one of the fraction.
fn e2m1(q: u8) -> f64 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(q & 7)];
    if q < 8 { size } else { -size }
}

fn near_code(x: f64) -> f64 {
    (0..16).map(e2m1).min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs())).unwrap()
}

/// The numbers that the codes of `iq4_nl` and `iq4_xs` stand for.
const NON_LINEAR: [f64; 16] =
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];
