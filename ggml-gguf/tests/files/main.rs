//! GGUF files: written, read and damaged. The tests of the crate `ggml` compare with ggml's own functions.

#![cfg(test)]

mod hostile;
mod independent;
mod mutated;
mod on_disk;
mod round_trip;
mod streamed;

use ggml_gguf::{Array, DType, Strings, Value, Writer};

/// A value of every type, with its extremes.
fn values() -> Vec<(&'static str, Value)> {
    let array = |a| Value::Array(a);
    vec![
        ("general.architecture", "test".into()),
        ("u8", 255_u8.into()),
        ("i8", (-128_i8).into()),
        ("u16", u16::MAX.into()),
        ("i16", i16::MIN.into()),
        ("u32", u32::MAX.into()),
        ("i32", i32::MIN.into()),
        ("u64", u64::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f32", f32::MIN_POSITIVE.into()),
        ("f64", f64::MAX.into()),
        ("yes", true.into()),
        ("no", false.into()),
        ("text", "Grüße, 世界".into()),
        ("no text", "".into()),
        ("u8s", array(Array::U8(vec![0, 1, 255]))),
        ("i8s", array(Array::I8(vec![-128, 127]))),
        ("u16s", array(Array::U16(vec![0, 65535]))),
        ("i16s", array(Array::I16(vec![-32768, 32767]))),
        ("u32s", array(Array::U32(vec![7; 5]))),
        ("i32s", array(Array::I32(vec![-1]))),
        ("u64s", array(Array::U64(vec![1 << 63]))),
        ("i64s", array(Array::I64(vec![-1, 0, 1]))),
        ("f32s", array(Array::F32(vec![-0.0, f32::INFINITY, 1.5]))),
        ("f64s", array(Array::F64(vec![0.1, -1e300]))),
        ("bools", array(Array::Bool(vec![true, false, true]))),
        ("texts", array(Array::String(vec!["a", "", "Ω"].into()))),
        ("none", array(Array::F32(vec![]))),
        ("no texts", array(Array::String(Strings::default()))),
    ]
}

/// Tensors of several types; some sizes are multiples of the alignment, others not.
fn tensors() -> Vec<(&'static str, DType, [i64; 4], Vec<u8>)> {
    [
        ("conv.weight", DType::F32, [3, 3, 2, 2], 144),
        ("bias", DType::F32, [5, 1, 1, 1], 20),
        ("half", DType::F16, [4, 4, 1, 1], 32),
        ("ids", DType::I32, [1, 1, 1, 1], 4),
        ("quantised", DType::Q4_0, [64, 2, 1, 1], 72),
        ("super", DType::Q6_K, [256, 1, 1, 1], 210),
        ("thin", DType::I8, [1, 1, 1, 3], 3),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (name, dtype, ne, size))| {
        // Small odd numbers, different per tensor; as i32 or f32 none of them is special.
        (name, dtype, ne, (0..size).map(|b| u8::try_from((b * 7 + i * 31) % 251).unwrap()).collect())
    })
    .collect()
}

fn everything() -> Writer {
    let mut writer = Writer::new();
    for (key, value) in values() {
        writer.set(key, value).unwrap();
    }
    for (name, dtype, ne, data) in tensors() {
        writer.tensor(name, dtype, ne, &data).unwrap();
    }
    writer
}

/// The file that the tests of the crate `ggml` read, too, with both implementations.
#[cfg(target_endian = "little")]
#[test]
fn kept_file_is_what_the_writer_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/everything.gguf");
    let bytes = everything().to_bytes().unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == bytes, "`UPDATE=1 cargo test -p ggml-gguf kept_file` writes it again");
}
