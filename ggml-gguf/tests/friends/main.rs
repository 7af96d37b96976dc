//! Formats of other crates: serde's, and files of the crate `safetensors`, whose own functions write and read what is
//! compared.

#![cfg(test)]

use std::collections::HashMap;

use ggml_gguf::{Array, DType, Error, Reader, Shape, Strings, Value, Writer};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

#[test]
fn serde_keeps_each_value_and_its_type() {
    let array = Value::Array;
    let values = [
        (Value::from(255_u8), r#"{"u8":255}"#),
        (Value::from(-1_i8), r#"{"i8":-1}"#),
        (Value::from(u16::MAX), r#"{"u16":65535}"#),
        (Value::from(i16::MIN), r#"{"i16":-32768}"#),
        (Value::from(7_u32), r#"{"u32":7}"#),
        (Value::from(-7_i32), r#"{"i32":-7}"#),
        (Value::from(u64::MAX), r#"{"u64":18446744073709551615}"#),
        (Value::from(i64::MIN), r#"{"i64":-9223372036854775808}"#),
        (Value::from(0.5_f32), r#"{"f32":0.5}"#),
        (Value::from(0.1_f64), r#"{"f64":0.1}"#),
        (Value::from(true), r#"{"bool":true}"#),
        (Value::from("Grüße\n"), r#"{"str":"Grüße\n"}"#),
        (array(Array::I8(vec![-1, 1])), r#"{"arr":{"i8":[-1,1]}}"#),
        (array(Array::String(vec!["a", "", "Ω"].into())), r#"{"arr":{"str":["a","","Ω"]}}"#),
        (array(Array::String(Strings::default())), r#"{"arr":{"str":[]}}"#),
    ];
    for (value, text) in values {
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value);
    }
    assert!(serde_json::from_str::<Value>(r#"{"u8":256}"#).is_err(), "a value must fit its type");
    assert!(serde_json::from_str::<Value>(r#"{"arr":{"arr":[]}}"#).is_err(), "arrays don't nest");
}

#[test]
fn serde_names_types_and_lists_dimensions() {
    for &dtype in DType::ALL {
        let text = serde_json::to_string(&dtype).unwrap();
        assert_eq!(text, format!("\"{dtype}\""));
        assert_eq!(serde_json::from_str::<DType>(&text).unwrap(), dtype);
    }
    let e = serde_json::from_str::<DType>("\"f33\"").unwrap_err();
    assert!(e.to_string().contains("no element type named `f33`; there are: f32"), "{e}");

    assert_eq!(serde_json::to_string(&Shape::from([3, 2])).unwrap(), "[3,2,1,1]");
    for (text, ne) in [("[3]", [3, 1, 1, 1]), ("[3,2,1,1]", [3, 2, 1, 1]), ("[0,-1]", [0, -1, 1, 1])] {
        assert_eq!(serde_json::from_str::<Shape>(text).unwrap().ne(), ne);
    }
    assert!(serde_json::from_str::<Shape>("[]").is_err());
    assert!(serde_json::from_str::<Shape>("[1,1,1,1,1]").is_err(), "five dimensions");
}

/// A file that the crate `safetensors` writes.
fn theirs(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views =
        tensors.iter().map(|&(name, dtype, shape, data)| (name, TensorView::new(dtype, shape.to_vec(), data).unwrap()));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned()), ("a".to_owned(), "b".to_owned())]);
    safetensors::serialize(views, Some(metadata)).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "what a reader asks")]
fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn some_tensors() -> Vec<u8> {
    theirs(&[
        ("scalar", Dtype::I64, &[], &[1, 0, 0, 0, 0, 0, 0, 0]),
        ("half", Dtype::F16, &[3], &[1, 2, 3, 4, 5, 6]),
        ("brain", Dtype::BF16, &[1, 2], &[7, 8, 9, 10]),
        ("rows", Dtype::F32, &[3, 2], &(0..24).collect::<Vec<u8>>()),
        ("bytes", Dtype::I8, &[2, 1, 1, 3], &[1, 2, 3, 4, 5, 6]),
        ("mask", Dtype::BOOL, &[2], &[0, 1]),
    ])
}

#[test]
fn safetensors_are_read_with_shapes_reversed() {
    let file = some_tensors();
    let reader = Reader::from_safetensors(&file[..], |name| (name != "mask").then(|| format!("model.{name}"))).unwrap();
    let expected = [
        ("model.scalar", DType::I64, [1, 1, 1, 1]),
        ("model.rows", DType::F32, [2, 3, 1, 1]),
        ("model.brain", DType::BF16, [2, 1, 1, 1]),
        ("model.half", DType::F16, [3, 1, 1, 1]),
        ("model.bytes", DType::I8, [3, 1, 1, 2]),
    ];
    let mut found: Vec<_> = reader.tensors().map(|t| (t.name(), t.dtype(), t.shape().ne())).collect();
    let mut sorted = expected.to_vec();
    found.sort_unstable_by_key(|t| t.0);
    sorted.sort_unstable_by_key(|t| t.0);
    assert_eq!(found, sorted);
    let theirs = SafeTensors::deserialize(&file).unwrap();
    for t in reader.tensors() {
        let stored = theirs.tensor(t.name().strip_prefix("model.").unwrap()).unwrap();
        assert_eq!(reader.data(t.name()).unwrap(), stored.data(), "{}", t.name());
        let range = reader.range(t.name()).unwrap();
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        assert_eq!(&file[range], stored.data());
    }
    let metadata: Vec<_> = reader.key_values().map(|(key, value)| (key, value.as_str())).collect();
    assert_eq!(metadata, [("a", Some("b")), ("format", Some("pt"))]);

    // By a stream of the same bytes, too.
    let mut stream = reader.map_source(std::io::Cursor::new);
    assert_eq!(stream.read("model.half").unwrap(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn safetensors_are_refused_with_the_tensor_and_the_reason() {
    let refused = |file: &[u8], name: fn(&str) -> Option<String>| {
        let e = Reader::from_safetensors(file, name).unwrap_err();
        assert!(matches!(e, Error::Gguf { .. }), "{e}");
        e.to_string()
    };
    let e = refused(&some_tensors(), same);
    assert!(
        e.contains("tensor `mask`: ggml has no type BOOL, but F64, F32") && e.contains("leave the tensor out"),
        "{e}"
    );
    let empty = theirs(&[("none", Dtype::F32, &[2, 0], &[])]);
    let e = refused(&empty, same);
    assert!(e.contains("tensor `none`: f32, in safetensors [2, 0]: every dimension must be at least 1"), "{e}");
    let e = refused(&theirs(&[("deep", Dtype::I8, &[1; 5], &[1])]), same);
    assert!(e.contains("tensor `deep`") && e.contains("at most 4 dimensions"), "{e}");
    let e = refused(&theirs(&[("w", Dtype::I8, &[1], &[1])]), |_| Some("x".repeat(64)));
    assert!(e.contains("tensor `w`: its name can't be `xxx") && e.contains("at most 63 bytes"), "{e}");
    let two = theirs(&[("a", Dtype::I8, &[1], &[1]), ("b", Dtype::I8, &[1], &[1])]);
    assert!(refused(&two, |_| Some("c".to_owned())).contains("two tensors get the name `c`"));
    assert!(refused(b"GGUF", same).contains("safetensors"));
    assert!(Reader::from_safetensors(&two[..], |_| None).unwrap().tensors().next().is_none());
}

/// Whatever was cut off or changed: an error, or tensors whose data lie in the file.
#[test]
fn damaged_safetensors_are_errors() {
    let file = theirs(&[("w", Dtype::F32, &[2, 2], &[3; 16]), ("v", Dtype::I8, &[5], &[4; 5])]);
    for len in 0..file.len() {
        assert!(Reader::from_safetensors(&file[..len], same).is_err(), "cut to {len} bytes");
    }
    let mut read = 0;
    for at in 0..file.len() {
        for byte in [0, b'"', b'0', b'9', b'[', b'}', 0xff] {
            let mut damaged = file.clone();
            damaged[at] = byte;
            let Ok(reader) = Reader::from_safetensors(damaged, same) else { continue };
            read += 1;
            for t in reader.tensors() {
                assert_eq!(reader.data(t.name()).unwrap().len(), t.size());
            }
        }
    }
    assert!(read > 0, "changed names and data do no harm");
}

#[test]
fn safetensors_are_written_for_their_own_crate() {
    let mut writer = Writer::new();
    writer.set("format", "pt").unwrap().set("layers", 2_u32).unwrap();
    writer.tensor("bytes", DType::I8, [3, 1, 1, 2], &[1, 2, 3, 4, 5, 6]).unwrap();
    writer.tensor("rows", DType::F32, [2, 3], &(0..24).collect::<Vec<u8>>()).unwrap();
    writer.tensor("one", DType::BF16, [1], &[9, 9]).unwrap();
    let file = writer.to_safetensors().unwrap();
    assert_eq!(file, writer.to_safetensors().unwrap(), "the same contents give the same bytes");

    let read = SafeTensors::deserialize(&file).unwrap();
    let rows = read.tensor("rows").unwrap();
    assert_eq!((rows.dtype(), rows.shape(), rows.data()), (Dtype::F32, &[3, 2][..], &(0..24).collect::<Vec<u8>>()[..]));
    let bytes = read.tensor("bytes").unwrap();
    assert_eq!((bytes.dtype(), bytes.shape(), bytes.data()), (Dtype::I8, &[2, 1, 1, 3][..], &[1, 2, 3, 4, 5, 6][..]));
    assert_eq!(read.tensor("one").unwrap().shape(), [1]);
    let (n, metadata) = SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(n % 8, 0, "the data are aligned");
    assert_eq!(metadata.offset_keys(), ["rows", "one", "bytes"], "in the order of their alignment");
    let texts = metadata.metadata().as_ref().unwrap();
    assert_eq!((texts["format"].as_str(), texts["layers"].as_str()), ("pt", "2"));

    // And read back.
    let reader = Reader::from_safetensors(file, same).unwrap();
    assert_eq!(reader.tensor("bytes").unwrap().shape().ne(), [3, 1, 1, 2]);

    // Data from a closure, into a file.
    let path = std::env::temp_dir().join(format!("ggml-gguf-{}.safetensors", std::process::id()));
    let mut writer = Writer::new();
    writer.declare("ones", DType::I8, [2, 500]).unwrap();
    writer.write_safetensors_with(&path, |t, out| out.write_all(&vec![1; t.size()])).unwrap();
    let file = std::fs::read(&path).unwrap();
    let short = writer.write_safetensors_with(&path, |_, out| out.write_all(&[1]));
    assert!(short.unwrap_err().to_string().contains("tensor `ones` has 1000 bytes, but 1 were written"));
    assert_eq!(std::fs::read(&path).unwrap(), file, "a write that fails changes nothing");
    std::fs::remove_file(path).unwrap();
    assert_eq!(SafeTensors::deserialize(&file).unwrap().tensor("ones").unwrap().data(), [1; 1000]);
}

#[test]
fn safetensors_hold_no_quantised_types() {
    let mut writer = Writer::new();
    writer.tensor("w", DType::Q8_0, [32], &[0; 34]).unwrap();
    let e = writer.to_safetensors().unwrap_err().to_string();
    assert!(e.contains("safetensors have no type q8_0, which tensor `w` has"), "{e}");
    let mut writer = Writer::new();
    writer.declare("w", DType::F32, [1]).unwrap();
    assert!(writer.to_safetensors().unwrap_err().to_string().contains("there are no data"));
    writer.declare("__metadata__", DType::F32, [1]).unwrap();
    writer.set("a", 1_u8).unwrap();
    assert!(writer.to_safetensors().unwrap_err().to_string().contains("`__metadata__` is no name"));
}
