//! Streamed files, zero-copy tensors, and data that closures provide.

use std::fs;
use std::io::{Cursor, Error as IoError, Read, Result as IoResult, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::gguf::{Reader, TensorInfo, Value, Writer};
use ggml::prelude::*;

use crate::on_disk::folder;
use crate::{everything, tensors};

/// A file in memory, aligned to 64 bytes, that records its drop.
struct Mapped {
    units: Vec<[u64; 8]>,
    first: usize,
    len: usize,
    dropped: Arc<AtomicBool>,
}

impl Mapped {
    fn new(bytes: &[u8], dropped: &Arc<AtomicBool>) -> Self {
        let mut units = vec![[0; 8]; bytes.len().div_ceil(64) + 1];
        let first = units.as_ptr().addr().wrapping_neg() % 64;
        let space: &mut [u8] = bytemuck::cast_slice_mut(units.as_mut_slice());
        space[first..first + bytes.len()].copy_from_slice(bytes);
        Self { units, first, len: bytes.len(), dropped: Arc::clone(dropped) }
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(self.units.as_slice())[self.first..self.first + self.len]
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

fn same_data(weights: &Weights) {
    for (name, dtype, ne, data) in tensors() {
        let t = weights.tensor(name).unwrap();
        assert_eq!((t.dtype(), t.ne()), (dtype, ne));
        assert_eq!(weights.read_bytes(name).unwrap(), data, "{name}");
    }
}

#[test]
fn map_uses_tensors_in_place() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let file = Mapped::new(&everything().to_bytes().unwrap(), &dropped);
    let there = file.as_ref().as_ptr_range();
    let reader = Reader::from_bytes(file).unwrap();
    assert!(there.contains(&reader.data("half").unwrap().as_ptr()));
    let size = reader.data_offset() + reader.tensors().last().map_or(0, |t| t.offset() + t.size() as u64);
    let weights = reader.map(cpu, |_| None).unwrap();
    same_data(&weights);
    // A single buffer over the whole file: nothing was copied.
    assert_eq!(weights.buffers().len(), 1);
    assert!(weights.buffers()[0].size() as u64 >= size);
    assert!(!dropped.load(Ordering::Relaxed));
    drop(weights);
    assert!(dropped.load(Ordering::Relaxed), "the file is kept no longer than the weights");
}

#[test]
fn map_uses_a_mapped_file() {
    let folder = folder("mapped");
    let path = folder.join("model.gguf");
    everything().write(&path).unwrap();
    // SAFETY: this test created the file and removes it; nobody else writes to it.
    let map = unsafe { memmap2::Mmap::map(&fs::File::open(&path).unwrap()) }.unwrap();
    let weights = Reader::from_bytes(map).unwrap().map(Device::cpu().unwrap(), |_| None).unwrap();
    same_data(&weights);
    drop(weights);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn map_copies_the_chosen_tensors() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let reader = Reader::from_bytes(Mapped::new(&everything().to_bytes().unwrap(), &dropped)).unwrap();
    let copied = ["bias", "quantised"];
    let mut weights = reader.map(cpu, |name| copied.contains(&name).then(|| cpu.buffer_type())).unwrap();
    same_data(&weights);
    assert_eq!(weights.buffers().len(), 2);
    weights.set("bias", &[1.0_f32; 5]).unwrap();
    assert_eq!(weights.tensor("bias").unwrap().read::<f32>().unwrap(), [1.0; 5]);
    assert!(matches!(weights.set_bytes("half", &[0; 32]), Err(Error::Frozen { .. })));

    // A graph that uses both kinds of weights.
    let ctx = Context::new();
    let doubled = ctx.add(weights.tensor("bias").unwrap(), weights.tensor("bias").unwrap()).unwrap();
    let graph = ctx.graph([doubled]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(doubled).unwrap(), [2.0; 5]);

    // If all tensors are copied, the file is not needed, but is kept all the same.
    let reader = Reader::from_bytes(Mapped::new(&everything().to_bytes().unwrap(), &dropped)).unwrap();
    let weights = reader.map(cpu, |_| Some(cpu.buffer_type())).unwrap();
    same_data(&weights);
    assert_eq!(weights.buffers().len(), 1);
}

#[test]
fn map_refuses_data_the_device_cannot_use() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let mut writer = everything();
    writer.set("general.alignment", 4_u32).unwrap();
    let reader = Reader::from_bytes(Mapped::new(&writer.to_bytes().unwrap(), &dropped)).unwrap();
    assert!(matches!(reader.map(cpu, |_| None), Err(Error::Shape { .. })));
    // Bytes at an unaligned address.
    let mut file = Mapped::new(&[&[0; 4], &everything().to_bytes().unwrap()[..]].concat(), &dropped);
    (file.first, file.len) = (file.first + 4, file.len - 4);
    assert!(matches!(Reader::from_bytes(file).unwrap().map(cpu, |_| None), Err(Error::Unsupported { .. })));
}

#[test]
fn stream_reads_a_file_in_chunks() {
    let folder = folder("stream");
    let path = folder.join("model.gguf");
    // More than two chunks, the last one short.
    let large: Vec<u8> = (0..9_000_001_u32).map(|i| i.to_ne_bytes()[0] ^ i.to_ne_bytes()[2]).collect();
    let mut writer = everything();
    writer.tensor("large", DType::I8, [9_000_001], &large).unwrap();
    writer.write(&path).unwrap();
    let memory = Device::cpu().unwrap().buffer_type();
    let mut reader = Reader::open(&path).unwrap();
    let mut told = Vec::new();
    let weights = reader.stream(|_| memory, |done, total| told.push((done, total))).unwrap();
    same_data(&weights);
    assert!(weights.read_bytes("large").unwrap() == large, "the pieces are where they belong");
    let total: u64 = reader.tensors().map(|t| t.size() as u64).sum();
    assert!(told.iter().all(|t| t.1 == total) && told.is_sorted() && told.len() > tensors().len() + 2, "{told:?}");
    assert_eq!((told.first(), told.last()), (Some(&(0, total)), Some(&(total, total))));

    // The other ways to read.
    assert!(reader.read("large").unwrap() == large);
    let mut copy = Vec::new();
    reader.copy("large", &mut copy).unwrap();
    assert!(copy == large);
    assert!(matches!(reader.read("small"), Err(Error::NoSuch { .. })));
    assert!(matches!(reader.copy("small", Vec::new()), Err(Error::NoSuch { .. })));

    // The file is truncated after its header was read.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5_000_000).unwrap();
    for e in [
        reader.stream(|_| memory, |_, _| ()).unwrap_err(),
        reader.read("large").unwrap_err(),
        reader.copy("large", Vec::new()).unwrap_err(),
    ] {
        assert!(matches!(&e, Error::File { path, .. } if path.contains("model.gguf")), "{e}");
    }
    let memory = reader.into_memory().unwrap();
    assert!(matches!(memory.data("large"), Err(Error::Gguf { .. })));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn load_and_stream_skip_tensors_without_a_buffer_type() {
    let memory = Device::cpu().unwrap().buffer_type();
    let file = everything().to_bytes().unwrap();
    let reader = Reader::from_bytes(&file[..]).unwrap();
    let mut stream = Reader::from_stream(Cursor::new(&file)).unwrap();
    let names: Vec<_> = reader.tensors().map(|t| t.name().to_owned()).collect();
    let all = reader.load(|_| memory).unwrap();
    // Each tensor alone, every second one, and none.
    let wanted: [&dyn Fn(usize, usize) -> bool; 3] =
        [&|i, turn| i == turn, &|i, turn| i % 2 == turn % 2, &|_, _| false];
    for (wanted, turn) in wanted.iter().flat_map(|w| (0..names.len()).map(move |turn| (w, turn))) {
        let place = |name: &str| wanted(names.iter().position(|n| n == name).unwrap(), turn).then_some(memory);
        let expected: Vec<_> =
            names.iter().enumerate().filter(|&(i, _)| wanted(i, turn)).map(|(_, name)| name).collect();
        let total: u64 = expected.iter().map(|name| reader.tensor(name).unwrap().size() as u64).sum();
        let mut last = None;
        for weights in
            [reader.load(place).unwrap(), stream.stream(place, |done, all| last = Some((done, all))).unwrap()]
        {
            assert_eq!(weights.iter().count(), expected.len());
            for name in &expected {
                assert!(weights.read_bytes(name).unwrap() == all.read_bytes(name).unwrap(), "{name}");
            }
        }
        assert_eq!(last, Some((total, total)));
    }
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
    let memory = Device::cpu().unwrap().buffer_type();
    assert!(matches!(reader.stream(|_| memory, |_, _| ()), Err(Error::File { .. })));
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

#[test]
fn placing_closures_get_the_tensor_info() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let bytes = everything().to_bytes().unwrap();
    let want: Vec<_> = tensors().into_iter().map(|(name, dtype, ne, data)| (name, dtype, ne, data.len())).collect();
    let mut told = Vec::new();
    let mut note = |t: &TensorInfo| told.push((t.name().to_owned(), t.dtype(), t.shape().ne(), t.size()));
    let is_half = |t: &TensorInfo| (t.dtype() == DType::F16).then(|| cpu.buffer_type());

    let loaded = Reader::from_bytes(&bytes).unwrap().load_with_info(|t| {
        note(t);
        cpu
    });
    same_data(&loaded.unwrap());
    let mut stream = Reader::from_stream(Cursor::new(&bytes)).unwrap();
    let streamed = stream.stream_with_info(
        |t| {
            note(t);
            cpu
        },
        |_, _| (),
    );
    same_data(&streamed.unwrap());
    let mut mapped = Reader::from_bytes(Mapped::new(&bytes, &dropped))
        .unwrap()
        .map_with_info(cpu, |t| {
            note(t);
            is_half(t)
        })
        .unwrap();
    same_data(&mapped);
    // Those that were copied, and they alone, may be changed.
    for (name, dtype, ..) in &want {
        let written = mapped.fill_bytes(name, 0);
        assert_eq!(written.is_ok(), *dtype == DType::F16, "{name}: {written:?}");
    }
    let told: Vec<_> = told.iter().map(|(name, dtype, ne, size)| (name.as_str(), *dtype, *ne, *size)).collect();
    assert_eq!(told, [&want[..], &want, &want].concat());
}
