//! What was written is read back.

use std::fs::File;

use ggml_gguf::{Array, DType, Error, Reader, Value, Writer};

use crate::independent::{self, Tensor};
use crate::{everything, tensors, values};

#[test]
fn reader_reads_what_the_writer_writes() {
    let bytes = everything().to_bytes().unwrap();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    assert_eq!((reader.version(), reader.alignment()), (3, 32));
    let read: Vec<_> = reader.key_values().map(|(k, v)| (k, v.clone())).collect();
    assert_eq!(read, values());
    assert_eq!(reader.tensors().count(), tensors().len());
    for (info, (name, dtype, ne, data)) in reader.tensors().zip(tensors()) {
        assert_eq!((info.name(), info.dtype(), info.shape().ne()), (name, dtype, ne));
        assert_eq!(info.size(), data.len());
        assert_eq!(reader.data(name).unwrap(), data);
        assert_eq!(reader.tensor(name).unwrap(), info);
    }

    // Writing it again gives the same bytes.
    let mut again = Writer::new();
    for (key, value) in reader.key_values() {
        again.set(key, value.clone()).unwrap();
    }
    for t in reader.tensors() {
        again.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
    }
    assert_eq!(again.to_bytes().unwrap(), bytes);
}

#[test]
fn independent_parser_reads_what_the_writer_writes() {
    let bytes = everything().to_bytes().unwrap();
    let file = independent::parse(&bytes);
    assert_eq!(file.version, 3);
    let expected: Vec<_> = values().into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    assert_eq!(file.metadata, expected);
    let tensor =
        |name: &str, dims: &[u64], dtype, offset| Tensor { name: name.into(), dims: dims.into(), dtype, offset };
    // Type numbers are those of the format; each tensor starts at the next multiple of 32.
    assert_eq!(
        file.tensors,
        [
            tensor("conv.weight", &[3, 3, 2, 2], 0, 0),
            tensor("bias", &[5], 0, 160),
            tensor("half", &[4, 4], 1, 192),
            tensor("ids", &[1], 26, 224),
            tensor("quantised", &[64, 2], 2, 256),
            tensor("super", &[256], 14, 352),
            tensor("thin", &[1, 1, 1, 3], 24, 576),
        ]
    );
    let data = file.described.next_multiple_of(32);
    assert!(bytes[file.described..data].iter().all(|&b| b == 0));
    for (t, (.., expected)) in file.tensors.iter().zip(tensors()) {
        let start = data + usize::try_from(t.offset).unwrap();
        assert_eq!(bytes[start..start + expected.len()], expected, "{}", t.name);
    }
    assert_eq!(bytes.len(), data + 576 + 32);
}

#[test]
fn alignment_key_sets_the_alignment() {
    let mut writer = Writer::new();
    writer.tensor("a", DType::I8, [1], &[1]).unwrap().tensor("b", DType::I8, [2], &[2, 3]).unwrap();
    for alignment in [1_u32, 8, 256] {
        writer.set("general.alignment", alignment).unwrap();
        let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
        assert_eq!(reader.alignment(), alignment);
        assert_eq!(reader.tensor("b").unwrap().offset(), u64::from(alignment));
        assert_eq!(reader.data("a").unwrap(), [1]);
        assert_eq!(reader.data("b").unwrap(), [2, 3]);
    }
    for refused in [Value::U32(0), Value::U32(24), Value::I32(32), vec![32_u32].into()] {
        let e = writer.set("general.alignment", refused).unwrap_err();
        assert!(matches!(e, Error::Param { name: "general.alignment", .. }), "{e}");
    }
    // After a refused value the old one remains.
    assert_eq!(Reader::from_bytes(writer.to_bytes().unwrap()).unwrap().alignment(), 256);
}

#[test]
fn values_keep_nul_bytes_and_nan_bits() {
    let nan = f32::from_bits(0x7fa0_0001);
    let mut writer = Writer::new();
    writer.set("text", "a\0b").unwrap().set("texts", vec!["\0".to_owned(), "c".to_owned()]).unwrap();
    writer.set("nan", nan).unwrap();
    let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
    assert_eq!(reader.metadata("text").unwrap().as_str(), Some("a\0b"));
    let texts = Value::Array(Array::String(vec!["\0", "c"].into()));
    assert_eq!(reader.metadata("texts"), Some(&texts));
    assert_eq!(reader.metadata("nan").unwrap().as_f32().map(f32::to_bits), Some(nan.to_bits()));
}

#[test]
fn setting_a_key_again_keeps_its_position() {
    let mut writer = Writer::new();
    writer.set("a", 1_u8).unwrap().set("b", 2_u8).unwrap().set("a", "new").unwrap();
    let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
    let read: Vec<_> = reader.key_values().collect();
    assert_eq!(read, [("a", &"new".into()), ("b", &2_u8.into())]);
}

#[test]
fn value_accessors_convert_losslessly() {
    assert_eq!(Value::from(7_u16).as_u64(), Some(7));
    assert_eq!(Value::from(-7_i8).as_u64(), None);
    assert_eq!(Value::from(-7_i8).as_i64(), Some(-7));
    assert_eq!(Value::from(u64::MAX).as_u64(), Some(u64::MAX));
    assert_eq!(Value::from(u64::MAX).as_i64(), None);
    assert_eq!(Value::from(0.5_f32).as_f64(), Some(0.5));
    assert_eq!(Value::from(0.5_f64).as_f32(), None);
    assert_eq!(Value::from(true).as_bool(), Some(true));
    assert_eq!(Value::from(1_u8).as_bool(), None);
    assert_eq!(Value::from("x").as_str(), Some("x"));
    assert_eq!(Value::from("x").as_u64(), None);
    let array = Value::from(vec![1.0_f32, 2.0]);
    assert_eq!((array.type_name(), array.as_array().unwrap().type_name()), ("arr", "f32"));
    assert_eq!(array.as_array().unwrap().len(), 2);
    assert_eq!(Value::from("x").as_array(), None);
}

#[test]
fn writer_refuses_keys_and_values_that_ggml_cannot_read() {
    let mut writer = Writer::new();
    for key in ["", "a\0b", &"k".repeat(1 << 16)] {
        assert!(matches!(writer.set(key, 1_u8), Err(Error::Param { name: "key", .. })), "{key:?}");
    }
    for name in ["n".repeat(64), "a\0b".to_owned()] {
        assert!(matches!(writer.tensor(&name, DType::I8, [1], &[0]), Err(Error::Param { name: "name", .. })));
    }
    writer.tensor(&"n".repeat(63), DType::I8, [1], &[0]).unwrap();
    assert!(matches!(writer.tensor(&"n".repeat(63), DType::I8, [1], &[0]), Err(Error::Duplicate { .. })));
    for (dtype, ne) in [(DType::I8, [0, 1]), (DType::I8, [-1, 1]), (DType::Q4_0, [31, 1]), (DType::F32, [i64::MAX, 2])]
    {
        assert!(matches!(writer.tensor("t", dtype, ne, &[0]), Err(Error::Shape { .. })), "{dtype} {ne:?}");
    }
    let e = writer.tensor("t", DType::F32, [2], &[0; 7]).unwrap_err();
    assert!(matches!(e, Error::Length { expected: 8, got: 7, .. }), "{e}");
    assert_eq!(Reader::from_bytes(writer.to_bytes().unwrap()).unwrap().tensors().count(), 1);
}

#[test]
fn unknown_tensor_error_lists_the_names() {
    let reader = Reader::from_bytes(everything().to_bytes().unwrap()).unwrap();
    let message = reader.data("conv").unwrap_err().to_string();
    assert!(message.contains("no tensor named `conv`") && message.contains("conv.weight, half"), "{message}");
    assert_eq!(reader.metadata("general.arch"), None);
}

/// Long strings of an array are read in pieces, which may end inside a character.
#[test]
fn long_strings_of_an_array_are_read_whole() {
    let texts: Vec<String> = (0..8).map(|i| "x".repeat(250 + i) + &"世ü😀".repeat(200)).collect();
    let mut writer = Writer::new();
    writer.set("texts", texts.clone()).unwrap();
    let bytes = writer.to_bytes().unwrap();
    let reader = Reader::from_bytes(&bytes).unwrap();
    assert_eq!(reader.metadata("texts"), Some(&texts.into()));
    // A byte that can't start a character, at every position.
    let first = bytes.windows(250).position(|w| w.iter().all(|&b| b == b'x')).unwrap();
    for i in (0..1500).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[first + i] = 0xff;
        let e = Reader::from_bytes(bytes).unwrap_err().to_string();
        let at = e.split("from its byte ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        // The position of the byte, or of the start of the character that it interrupts.
        assert!((i.saturating_sub(3)..=i).contains(&at.parse().unwrap()), "{i}: {e}");
    }
}

#[test]
fn writer_refuses_sizes_that_ggml_would_not_read() {
    let most = 1_usize << 30;
    let mut writer = Writer::new();
    // Zeroed pages take no memory.
    let e = writer.set("k", vec![0_u8; most + 1]).map(|_| ()).unwrap_err();
    assert!(matches!(&e, Error::Param { value, .. } if &**value == "an array of 1073741825 values"), "{e}");
    writer.set("k", vec![0_u8; most]).unwrap();
}

/// The longest key and name are read back, and printed values name no control characters.
#[test]
fn limits_are_those_of_the_reader() {
    let (key, name) = ("k".repeat((1 << 16) - 1), "n".repeat(63));
    let mut writer = Writer::new();
    writer.set(&key, "a\u{1b}[2J").unwrap().tensor(&name, DType::I8, [1], &[1]).unwrap();
    let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
    assert_eq!(reader.metadata(&key).unwrap().to_string(), r#""a\u{1b}[2J""#);
    assert_eq!(reader.data(&name).unwrap(), [1]);
}

/// What `Reader::open` returns needs no type to be named.
#[test]
fn functions_take_readers_of_files() {
    fn keys(reader: &Reader) -> usize {
        reader.key_values().count()
    }
    let path = crate::on_disk::folder("default").join("model.gguf");
    everything().write(&path).unwrap();
    let reader: Reader<File> = Reader::open(&path).unwrap();
    assert_eq!(keys(&reader), values().len());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}
