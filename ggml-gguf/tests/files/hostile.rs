//! Invalid files, each with a single fault.

use ggml_gguf::{Error, Reader};

use crate::on_disk::folder;

/// A file built without checks.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    /// Starts a file with these numbers of tensors and metadata entries.
    fn file(n_tensors: u64, n_metadata: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_metadata)
    }

    fn u32(self, n: u32) -> Self {
        self.bytes(&n.to_ne_bytes())
    }

    fn u64(self, n: u64) -> Self {
        self.bytes(&n.to_ne_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn tensor(self, name: &str, dims: &[i64], dtype: u32, offset: u64) -> Self {
        let n = u32::try_from(dims.len()).unwrap();
        let named = self.text(name).u32(n);
        let dims = dims.iter().fold(named, |raw, d| raw.bytes(&d.to_ne_bytes()));
        dims.u32(dtype).u64(offset)
    }

    /// Pads with zeros to a multiple of 32, then appends `n` zeros.
    fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}

const F32: u32 = 0;
const Q4_0: u32 = 2;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

fn refused(raw: &Raw, message: &str) {
    let e = Reader::from_bytes(raw.0.clone()).unwrap_err();
    assert!(matches!(e, Error::Gguf { .. }), "{e:?}");
    assert!(e.to_string().contains(message), "expected `{message}` in `{e}`");
}

#[test]
fn reader_accepts_the_unaltered_file() {
    let raw = Raw::file(2, 2).text("k").u32(BOOL).bytes(&[1]).text("general.alignment").u32(U32).u32(32);
    let raw = raw.tensor("a", &[3], F32, 0).tensor("b", &[32, 2], Q4_0, 32).data(32 + 36);
    let reader = Reader::from_bytes(raw.0).unwrap();
    assert_eq!(reader.data("b").unwrap().len(), 36);
    // As in ggml: a tensor without dimensions has one element, and version 2 is accepted.
    let scalar = Raw::file(1, 0).tensor("s", &[], F32, 0).data(4);
    assert_eq!(Reader::from_bytes(scalar.0).unwrap().data("s").unwrap().len(), 4);
    let old = Raw(b"GGUF".to_vec()).u32(2).u64(0).u64(0);
    assert_eq!(Reader::from_bytes(old.0).unwrap().version(), 2);
}

#[test]
fn reader_refuses_a_wrong_header() {
    refused(&Raw::default(), "4 bytes are expected at byte 0");
    refused(&Raw(b"GGML----".to_vec()), "this is not a GGUF file: it begins with \"GGML\"");
    for version in [0, 1, 4, u32::MAX] {
        refused(&Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0), "versions 2 to 3 are supported");
    }
    refused(&Raw(b"GGUF".to_vec()).u32(3_u32.swap_bytes()).u64(0).u64(0), "the other byte order");
    for n in [1, 1 << 40, u64::MAX] {
        refused(&Raw::file(n, 0), "tensors: ");
        refused(&Raw::file(0, n), "metadata: ");
    }
}

#[test]
fn reader_refuses_wrong_metadata() {
    let one = || Raw::file(0, 1);
    let padding = [0; 32];
    refused(&one().text("").bytes(&padding), "the key of metadata entry 0: a key must have at least one byte");
    refused(&one().u64(u64::MAX).bytes(&padding), "the text at byte 32 is longer than the rest of the file, 32 bytes");
    refused(&one().u64(1).bytes(&[0xff]).bytes(&padding), "not UTF-8");
    refused(&one().text("k").u32(13).bytes(&padding), "no type of values with the number 13");
    refused(&one().text("k").u32(u32::MAX).bytes(&padding), "no type of values");
    refused(&one().text("k").u32(BOOL).bytes(&[2]), "the value of `k`: a boolean is 2");
    refused(&one().text("k").u32(STRING).u64(2).bytes(&[b'a', 0xc3]), "not UTF-8 from its byte 1 on");
    refused(&one().text("k").u32(STRING).u64(1 << 40).bytes(&padding), "longer than the rest of the file");
    refused(&one().text("k").u32(ARRAY).u32(ARRAY).u64(0), "an array holds arrays");
    refused(&one().text("k").u32(ARRAY).u32(99).u64(0), "no type of values with the number 99");
    // Counts whose size in bytes overflows, or is one too large.
    for n in [9, 1 << 61, u64::MAX] {
        refused(&one().text("k").u32(ARRAY).u32(U32).u64(n).bytes(&padding), "entries of at least 4 bytes");
    }
    let twice = Raw::file(0, 2).text("k").u32(BOOL).bytes(&[1]).text("k").u32(U32).u32(1);
    refused(&twice, "the key `k` occurs twice");
}

#[test]
fn reader_refuses_a_wrong_alignment() {
    let one = || Raw::file(0, 1).text("general.alignment");
    for n in [0, 3, 33, u32::MAX] {
        refused(&one().u32(U32).u32(n), "general.alignment is not valid");
    }
    refused(&one().u32(STRING).text("32"), "general.alignment is not valid");
    // C takes the element type for the value's type, and then aborts.
    refused(&one().u32(ARRAY).u32(U32).u64(0), "general.alignment is not valid");
    refused(&one().u32(ARRAY).u32(U32).u64(2).u32(32).u32(32), "general.alignment is not valid");
    let far = Raw::file(1, 1).text("general.alignment").u32(U32).u32(1 << 31).tensor("t", &[1], F32, 0).data(64);
    refused(&far, "incomplete");
}

#[test]
fn reader_refuses_wrong_tensor_infos() {
    let one = |name: &str, dims: &[i64], dtype, offset| Raw::file(1, 0).tensor(name, dims, dtype, offset).data(64);
    refused(&one(&"n".repeat(64), &[1], F32, 0), "has 64 bytes; 63 are the most");
    refused(&one("a\0b", &[1], F32, 0), "no NUL");
    refused(&one("t", &[1, 1, 1, 1, 1], F32, 0), "it has 5 dimensions");
    refused(&Raw::file(1, 0).text("t").u32(u32::MAX).data(64), "it has 4294967295 dimensions");
    for dims in [&[0][..], &[-1], &[1, i64::MIN], &[4, 0, 4]] {
        refused(&one("t", dims, F32, 0), "every dimension must be at least 1");
    }
    for dims in [&[i64::MAX][..], &[i64::MAX, i64::MAX], &[1 << 32, 1 << 32], &[1 << 16, 1 << 16, 1 << 16, 1 << 16]] {
        refused(&one("t", dims, F32, 0), "exceeds the address space");
    }
    refused(&one("t", &[33], Q4_0, 0), "multiple of the type's block size");
    // 4, 5, 31 to 33 and 36 to 38 are removed types; 44 is ggml's number of types.
    for dtype in [4, 5, 31, 36, 44, 1000, u32::MAX] {
        refused(&one("t", &[32], dtype, 0), "no element type with the number");
    }
    for offset in [1, 32, u64::MAX] {
        refused(&one("t", &[1], F32, offset), "but 0 is expected");
    }
    let twice = Raw::file(2, 0).tensor("t", &[1], F32, 0).tensor("t", &[1], F32, 32).data(64);
    refused(&twice, "the tensor `t` occurs twice");
    let overlapping = Raw::file(2, 0).tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 0).data(64);
    refused(&overlapping, "but 32 is expected");
}

#[test]
fn reader_refuses_truncated_data() {
    let described = |dims: &[i64]| Raw::file(1, 0).tensor("t", dims, F32, 0);
    refused(&described(&[1]), "incomplete");
    refused(&described(&[17]).data(64), "incomplete");
    refused(&described(&[1 << 40]).data(64), "incomplete");
    assert!(Reader::from_bytes(described(&[16]).data(64).0).is_ok());
    let most = i64::MAX / 16;
    let three = [("a", 0), ("b", 1), ("c", 2)].iter().fold(Raw::file(3, 0), |raw, &(name, i)| {
        raw.tensor(name, &[most], F32, i * u64::try_from(most * 4).unwrap().next_multiple_of(32))
    });
    refused(&three.data(64), "incomplete");
}

/// Names from the file appear in the error message, and so reach a terminal.
#[test]
fn reader_errors_escape_and_truncate_names() {
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J\r";
    let long = evil.repeat(4000);
    let one = |key: &str| Raw::file(0, 1).text(key).u32(BOOL).bytes(&[2]);
    let twice = |key: &str| Raw::file(0, 2).text(key).u32(BOOL).bytes(&[1]).text(key).u32(BOOL).bytes(&[1]);
    let tensors = Raw::file(2, 0).tensor(evil, &[1], F32, 0).tensor(evil, &[1], F32, 32).data(36);
    let offset = Raw::file(1, 0).tensor(evil, &[1], F32, 32).data(64);
    let short = Raw::file(1, 0).tensor(evil, &[64], F32, 0).data(36);
    let dimensions = Raw::file(1, 0).tensor(evil, &[1; 5], F32, 0).data(36);
    for raw in [one(evil), one(&long), twice(evil), twice(&long), tensors, offset, short, dimensions] {
        let text = Reader::from_bytes(raw.0).unwrap_err().to_string();
        assert!(text.starts_with("GGUF: ") && text.contains("\\u{1b}]0;title\\u{7}\\u{9b}2J\\r"), "{text:?}");
        assert!(!text.chars().any(char::is_control) && text.len() < 500, "{} bytes: {text:?}", text.len());
    }
    let good = Reader::from_bytes(Raw::file(1, 0).tensor(evil, &[1], F32, 0).data(4).0).unwrap();
    for e in [good.tensor(evil).map(drop), good.tensor(&long).map(drop), good.tensor("none").map(drop)] {
        let Err(e) = e else { continue };
        let text = e.to_string();
        assert!(!text.chars().any(char::is_control) && text.len() < 500, "{} bytes: {text:?}", text.len());
    }
}

/// A sparse file: only its beginning is on disk.
#[cfg(target_os = "linux")]
#[test]
fn reader_limits_strings_and_arrays_like_ggml() {
    use std::fs;

    let folder = folder("limits");
    let path = folder.join("sparse.gguf");
    let sparse = |raw: Raw, len: u64| {
        fs::write(&path, raw.0).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        Reader::open(&path).unwrap_err().to_string()
    };
    let value = |kind| Raw::file(0, 1).text("k").u32(kind);
    let most = 1_u64 << 30;
    let text = sparse(Raw::file(0, 1).u64(1 << 16), 16 * most);
    assert!(text.contains("has 65536 bytes; 65535 are the most"), "{text}");
    let text = sparse(value(STRING).u64(most + 1), 16 * most);
    assert!(text.contains("has 1073741825 bytes; 1073741824 are the most"), "{text}");
    for kind in [U32, BOOL, STRING] {
        let text = sparse(value(ARRAY).u32(kind).u64(most + 1), 16 * most);
        assert!(
            text.contains("1073741825 entries are announced") && text.contains("1073741824 are the most"),
            "{text}"
        );
    }
    fs::remove_dir_all(folder).unwrap();
}
