//! Files read on demand, and data that closures provide.

use std::fs;
use std::io::{Cursor, Error as IoError, Read, Result as IoResult, Seek, SeekFrom};
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml_gguf::{DType, Error, Reader, Value, Writer};

use crate::on_disk::folder;
use crate::{everything, tensors};

/// Bytes that get fewer.
struct Shrinking(Vec<u8>, AtomicUsize);

impl AsRef<[u8]> for Shrinking {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1.load(Ordering::Relaxed)]
    }
}

/// All ways to read say the same, and name the tensor.
#[test]
fn a_file_cut_after_opening_is_told_alike() {
    let bytes = everything().to_bytes().unwrap();
    let folder = folder("cut");
    let path = folder.join("model.gguf");
    fs::write(&path, &bytes).unwrap();
    let mut file = Reader::open(&path).unwrap();
    let memory = Reader::from_bytes(Shrinking(bytes.clone(), bytes.len().into())).unwrap();
    let last = tensors().last().unwrap().0;
    let range = memory.range(last).unwrap();
    assert!(memory.data(last).is_ok() && file.read(last).is_ok(), "whole so far");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(range.end - 1).unwrap();
    memory.source().1.store(usize::try_from(range.end).unwrap() - 1, Ordering::Relaxed);
    let said = format!("the data of tensor `{last}`, bytes {} to {}, are gone", range.start, range.end);
    let e = memory.data(last).unwrap_err().to_string();
    assert!(e.contains(&said) && e.contains("GGUF: bytes: "), "{e}");
    let told = [
        file.read(last).unwrap_err(),
        file.read_into(last, 2, &mut [0]).unwrap_err(),
        file.copy(last, Vec::new()).unwrap_err(),
    ];
    for e in told {
        let text = e.to_string();
        assert!(matches!(e, Error::Gguf { .. }) && text.contains(&said) && text.contains("model.gguf: "), "{text}");
    }
    let again = file.into_memory().unwrap();
    assert!(again.data(last).unwrap_err().to_string().contains(&said));
    assert!(again.data("half").is_ok(), "what is still there is read");
    fs::remove_dir_all(folder).unwrap();
}

/// A file that fails to read from some byte on.
struct Broken(Cursor<Vec<u8>>, u64);

impl Read for Broken {
    fn read(&mut self, to: &mut [u8]) -> IoResult<usize> {
        if self.0.position() >= self.1 {
            return Err(IoError::other("bad sector"));
        }
        let n = to.len().min(16);
        self.0.read(&mut to[..n])
    }
}

impl Seek for Broken {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        self.0.seek(to)
    }
}

#[test]
fn reader_reports_errors_of_its_stream() {
    let bytes = everything().to_bytes().unwrap();
    let data = Reader::from_bytes(&bytes[..]).unwrap().data_offset();
    let broken = |at| Reader::from_stream(Broken(Cursor::new(bytes.clone()), at));
    for at in (0..data - 64).step_by(16) {
        let e = broken(at).unwrap_err();
        assert!(matches!(&e, Error::File { source, .. } if source.to_string() == "bad sector"), "{at}: {e}");
    }
    let mut reader = broken(data + 100).unwrap();
    let last = reader.tensors().last().unwrap().name().to_owned();
    assert!(matches!(reader.read(&last), Err(Error::File { .. })));
    assert!(matches!(reader.into_memory(), Err(Error::File { .. })));
}

#[test]
fn write_with_asks_for_declared_data() {
    let bytes = everything().to_bytes().unwrap();
    let reader = Reader::from_bytes(&bytes[..]).unwrap();
    let mut writer = Writer::new();
    writer.set_kv(&reader).unwrap();
    for (i, t) in reader.tensors().enumerate() {
        // Some have their data already.
        if i % 3 == 0 {
            writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
        } else {
            writer.declare(t.name(), t.dtype(), t.shape()).unwrap();
        }
    }
    let mut out = Vec::new();
    let mut asked = Vec::new();
    writer
        .write_to(&mut out, |t, out| {
            assert_eq!(reader.tensor(t.name()).unwrap(), t, "offsets are told as well");
            asked.push(t.name().to_owned());
            reader.data(t.name()).unwrap().chunks(7).try_for_each(|piece| out.write_all(piece))
        })
        .unwrap();
    assert_eq!(out, bytes);
    assert_eq!(asked.len(), tensors().len() - tensors().len().div_ceil(3));

    let folder = folder("told");
    let path = folder.join("model.gguf");
    fs::write(&path, "old").unwrap();
    let wrong = |n: usize| writer.write_with(&path, |t, out| out.write_all(&vec![0; t.size() + n - 1]));
    for (n, expected) in [(0, "were written"), (2, "were written")] {
        let e = wrong(n).unwrap_err();
        assert!(matches!(&e, Error::File { source, .. } if source.to_string().contains(expected)), "{e}");
    }
    let e = writer.write_with(&path, |_, _| Err(IoError::other("no idea"))).unwrap_err();
    assert!(e.to_string().contains("no idea") && e.to_string().contains("model.gguf"), "{e}");
    let e = writer.write(&path).unwrap_err();
    assert!(matches!(&e, Error::File { source, .. } if source.to_string().contains("there are no data")), "{e}");
    assert!(matches!(writer.to_bytes(), Err(Error::Gguf { .. })));
    assert!(matches!(writer.write_to(Vec::new(), |_, _| Ok(())), Err(Error::File { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    wrong(1).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), bytes.len());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn declare_checks_tensors() {
    let mut writer = Writer::new();
    writer.declare("a", DType::F32, [2]).unwrap();
    assert!(matches!(writer.declare("a", DType::F32, [2]), Err(Error::Duplicate { .. })));
    assert!(matches!(writer.tensor("a", DType::F32, [2], &[0; 8]), Err(Error::Duplicate { .. })));
    assert!(matches!(writer.declare("b", DType::Q4_0, [31]), Err(Error::Shape { .. })));
    assert!(matches!(writer.declare(&"n".repeat(64), DType::F32, [1]), Err(Error::Param { .. })));
}

#[test]
fn writer_removes_and_copies_keys() {
    let mut writer = Writer::new();
    for (i, key) in ["d", "b", "a", "c"].iter().enumerate() {
        writer.set(key, u64::try_from(i).unwrap()).unwrap();
    }
    assert_eq!(writer.remove("b"), Some(Value::U64(1)));
    assert_eq!(writer.remove("b"), None);
    writer.set("a", "new").unwrap().set("b", "again").unwrap();
    let keys = |writer: &Writer| {
        let reader = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
        reader.key_values().map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
    };
    let expected: [(String, Value); 4] = [
        ("d".into(), 0_u64.into()),
        ("a".into(), "new".into()),
        ("c".into(), 3_u64.into()),
        ("b".into(), "again".into()),
    ];
    assert_eq!(keys(&writer), expected);

    let mut other = Writer::new();
    other.set("x", 1_u8).unwrap().set("c", 2_u8).unwrap();
    other.set_kv(&Reader::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap();
    let keys: Vec<_> = keys(&other).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["x", "c", "d", "a", "b"]);
    assert_eq!(Reader::from_bytes(other.to_bytes().unwrap()).unwrap().metadata("c"), Some(&3_u64.into()));
}
