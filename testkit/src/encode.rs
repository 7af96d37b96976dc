//! Encodes and decodes element types, written from the formats' definitions.

use ggml::prelude::*;
use half::{bf16, f16};

use crate::blocks;
use crate::e4m3::{e4m3, to_e4m3};

/// The types of blocks that most models use.
pub const BLOCKS: [DType; 10] = {
    use DType::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K]
};

/// The encoded bytes of numbers, and the values that they decode to.
pub fn encode(dtype: DType, data: &[f64]) -> (Vec<u8>, Vec<f64>) {
    fn plain<const N: usize>(
        data: &[f64],
        to: impl Fn(f64) -> [u8; N],
        back: impl Fn([u8; N]) -> f64,
    ) -> (Vec<u8>, Vec<f64>) {
        (data.iter().flat_map(|&x| to(x)).collect(), data.iter().map(|&x| back(to(x))).collect())
    }
    match dtype {
        DType::F32 => plain(data, |x| (x as f32).to_le_bytes(), |b| f32::from_le_bytes(b).into()),
        DType::F64 => plain(data, f64::to_le_bytes, f64::from_le_bytes),
        DType::F16 => plain(data, |x| f16::from_f64(x).to_le_bytes(), |b| f16::from_le_bytes(b).into()),
        DType::BF16 => plain(data, |x| bf16::from_f64(x).to_le_bytes(), |b| bf16::from_le_bytes(b).into()),
        DType::I8 => plain(data, |x| (x as i8).to_le_bytes(), |b| i8::from_le_bytes(b).into()),
        DType::I16 => plain(data, |x| (x as i16).to_le_bytes(), |b| i16::from_le_bytes(b).into()),
        DType::I32 => plain(data, |x| (x as i32).to_le_bytes(), |b| i32::from_le_bytes(b).into()),
        DType::I64 => plain(data, |x| (x as i64).to_le_bytes(), |b| i64::from_le_bytes(b) as f64),
        t if is_f8(t) => plain(data, |x| [to_e4m3(x)], |[b]| e4m3(b)),
        DType::Q8_0 => by_32(data, q8_0),
        DType::Q4_0 => by_32(data, q4_0),
        _ => panic!("the tests don't write {dtype}"),
    }
}

/// Whether it is the 8-bit float, which older versions of ggml don't have.
pub fn is_f8(dtype: DType) -> bool {
    dtype.name() == "f8_e4m3"
}

fn by_32(data: &[f64], block: impl Fn(&[f64]) -> (Vec<u8>, Vec<f64>)) -> (Vec<u8>, Vec<f64>) {
    let (bytes, values): (Vec<_>, Vec<_>) = data.chunks_exact(32).map(block).unzip();
    (bytes.concat(), values.concat())
}

/// A block of `q8_0`: a scale and 32 signed bytes.
fn q8_0(x: &[f64]) -> (Vec<u8>, Vec<f64>) {
    let most = x.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let scale = f16::from_f64(most / 127.0);
    let d = f64::from(scale);
    let q: Vec<i8> = x.iter().map(|x| if d == 0.0 { 0 } else { (x / d).round().clamp(-127.0, 127.0) as i8 }).collect();
    let bytes = scale.to_le_bytes().into_iter().chain(q.iter().map(|q| q.cast_unsigned())).collect();
    (bytes, q.iter().map(|&q| d * f64::from(q)).collect())
}

/// A scale and 32 numbers of 4 bits with an offset of 8, element `i` and element `i + 16` in one byte.
fn q4_0(x: &[f64]) -> (Vec<u8>, Vec<f64>) {
    let most = x.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let scale = f16::from_f64(most / 7.0);
    let d = f64::from(scale);
    let q: Vec<u8> =
        x.iter().map(|x| if d == 0.0 { 8 } else { ((x / d).round() + 8.0).clamp(0.0, 15.0) as u8 }).collect();
    let bytes = scale.to_le_bytes().into_iter().chain((0..16).map(|i| q[i] | q[i + 16] << 4)).collect();
    (bytes, q.iter().map(|&q| d * (f64::from(q) - 8.0)).collect())
}

/// The values that bytes of this type decode to.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn plain<const N: usize>(bytes: &[u8], to: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&b| to(b)).collect()
    }
    match dtype {
        DType::F32 => plain(bytes, |b| f32::from_le_bytes(b).into()),
        DType::F64 => plain(bytes, f64::from_le_bytes),
        DType::F16 => plain(bytes, |b| f16::from_le_bytes(b).into()),
        DType::BF16 => plain(bytes, |b| bf16::from_le_bytes(b).into()),
        DType::I8 => plain(bytes, |b| i8::from_le_bytes(b).into()),
        DType::I16 => plain(bytes, |b| i16::from_le_bytes(b).into()),
        DType::I32 => plain(bytes, |b| i32::from_le_bytes(b).into()),
        DType::I64 => plain(bytes, |b| i64::from_le_bytes(b) as f64),
        t if is_f8(t) => plain(bytes, |[b]| e4m3(b)),
        DType::Q8_0 => bytes
            .chunks_exact(34)
            .flat_map(|b| {
                let d = f64::from(f16::from_le_bytes([b[0], b[1]]));
                b[2..].iter().map(move |&q| d * f64::from(q.cast_signed()))
            })
            .collect(),
        DType::Q4_0 => bytes
            .chunks_exact(18)
            .flat_map(|b| {
                let d = f64::from(f16::from_le_bytes([b[0], b[1]]));
                let (low, high) = (b[2..].iter().map(|q| q & 15), b[2..].iter().map(|q| q >> 4));
                low.chain(high).map(move |q| d * (f64::from(q) - 8.0)).collect::<Vec<_>>()
            })
            .collect(),
        _ => {
            let read = |b: &[u8]| blocks::decode(dtype, b).unwrap_or_else(|| panic!("the tests don't read {dtype}"));
            bytes.chunks_exact(dtype.type_size()).flat_map(read).collect()
        }
    }
}

/// The tolerance of a result of this type, including a few rounding steps before.
pub fn precision(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.5e-3,
        DType::BF16 => 8e-3,
        t if is_f8(t) => 0.07,
        _ => 2e-5,
    }
}
