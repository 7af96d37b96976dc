//! Streamed files, zero-copy tensors, and data that closures provide.

use std::fs;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ggml::gguf::{self, Reader};
use ggml::prelude::*;
use testkit::fake_gpu::{FakeOptions, devices};

use crate::against_c::writer;
use crate::{everything, folder, tensors};

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
        let t = weights.tensor(&name).unwrap();
        assert_eq!((t.dtype(), t.ne()), (dtype, ne));
        assert_eq!(weights.read_bytes(&name).unwrap(), data, "{name}");
    }
}

#[test]
fn map_uses_tensors_in_place() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let file = Mapped::new(&everything(), &dropped);
    let there = file.as_ref().as_ptr_range();
    let reader = Reader::from_bytes(file).unwrap();
    assert!(there.contains(&reader.data("half").unwrap().as_ptr()));
    let size = reader.data_offset() + reader.tensors().last().map_or(0, |t| t.offset() + t.size() as u64);
    let weights = reader.map(cpu).unwrap();
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
    fs::write(&path, everything()).unwrap();
    // SAFETY: this test created the file and removes it; nobody else writes to it.
    let map = unsafe { memmap2::Mmap::map(&fs::File::open(&path).unwrap()) }.unwrap();
    let weights = Reader::from_bytes(map).unwrap().map(Device::cpu().unwrap()).unwrap();
    same_data(&weights);
    drop(weights);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn map_copies_what_goes_to_a_device_that_cannot_use_the_file() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let [(gpu, _)] = devices(FakeOptions::default());
    assert!(!gpu.capabilities().unwrap().buffer_from_host);
    let reader = Reader::from_bytes(Mapped::new(&everything(), &dropped)).unwrap();
    let copied = ["bias", "quantised"];
    let mut weights = reader.map(|leaf: &LeafInfo| if copied.contains(&leaf.name()) { gpu } else { cpu }).unwrap();
    same_data(&weights);
    assert_eq!(weights.buffers().len(), 2);
    weights.set("bias", &[1.0_f32; 5]).unwrap();
    assert_eq!(weights.tensor("bias").unwrap().read::<f32>().unwrap(), [1.0; 5]);
    assert!(matches!(weights.set_bytes("half", &[0; 32]), Err(Error::Frozen { .. })));

    // A graph that uses both kinds of weights.
    let ctx = Context::new();
    let doubled = ctx.add(weights.tensor("bias").unwrap(), weights.tensor("bias").unwrap()).unwrap();
    let graph = ctx.graph([doubled]).unwrap();
    let mut sched = Sched::builder().backend(gpu.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(doubled).unwrap(), [2.0; 5]);

    // If all tensors are copied, the file is not needed, but is kept all the same.
    let reader = Reader::from_bytes(Mapped::new(&everything(), &dropped)).unwrap();
    let weights = reader.map(gpu).unwrap();
    same_data(&weights);
    assert_eq!(weights.buffers().len(), 1);
}

#[test]
fn map_refuses_data_the_device_cannot_use() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let mut writer = writer(&Reader::from_bytes(everything()).unwrap());
    writer.set("general.alignment", 4_u32).unwrap();
    // The CPU needs no more than the elements do; what it can't use is copied.
    same_data(&Reader::from_bytes(Mapped::new(&writer.to_bytes().unwrap(), &dropped)).unwrap().map(cpu).unwrap());
    // Bytes at an unaligned address.
    let mut file = Mapped::new(&[&[0; 4], &everything()[..]].concat(), &dropped);
    (file.first, file.len) = (file.first + 4, file.len - 4);
    assert!(matches!(Reader::from_bytes(file).unwrap().map(cpu), Err(Error::Unsupported { .. })));
}

#[test]
fn stream_reads_a_file_in_chunks() {
    let folder = folder("stream");
    let path = folder.join("model.gguf");
    // More than two chunks, the last one short.
    let large: Vec<u8> = (0..9_000_001_u32).map(|i| i.to_ne_bytes()[0] ^ i.to_ne_bytes()[2]).collect();
    let mut writer = writer(&Reader::from_bytes(everything()).unwrap());
    writer.tensor("large", DType::I8, [9_000_001], &large).unwrap();
    writer.write(&path).unwrap();
    let memory = Device::cpu().unwrap().buffer_type();
    let mut reader = Reader::open(&path).unwrap();
    let mut told = Vec::new();
    let weights = reader.stream(memory, |done, total| told.push((done, total))).unwrap();
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
    assert!(matches!(reader.read("small"), Err(gguf::Error::NoSuch { .. })));
    assert!(matches!(reader.copy("small", Vec::new()), Err(gguf::Error::NoSuch { .. })));

    fs::remove_dir_all(folder).unwrap();
}

/// Memory whose file gets shorter.
struct Shrinking(Mapped, Arc<AtomicUsize>);

impl AsRef<[u8]> for Shrinking {
    fn as_ref(&self) -> &[u8] {
        &self.0.as_ref()[..self.1.load(Ordering::Relaxed)]
    }
}

/// All ways to place say the same, which is what reading says, and name the tensor.
#[test]
fn a_file_cut_after_opening_is_told_alike() {
    let (cpu, bytes) = (Device::cpu().unwrap(), everything());
    let [(gpu, _)] = devices(FakeOptions::default());
    let folder = folder("cut");
    let path = folder.join("model.gguf");
    fs::write(&path, &bytes).unwrap();
    let mut file = Reader::open(&path).unwrap();
    let (last, end) = file.tensors().last().map(|t| (t.name().to_owned(), file.range(t.name()).unwrap().end)).unwrap();
    let len = Arc::new(AtomicUsize::new(bytes.len()));
    let memory = || {
        let mapped = Mapped::new(&bytes, &Arc::new(AtomicBool::new(false)));
        Reader::from_bytes(Shrinking(mapped, Arc::clone(&len))).unwrap()
    };
    let readers = [memory(), memory(), memory()];
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(end - 1).unwrap();
    len.store(usize::try_from(end).unwrap() - 1, Ordering::Relaxed);
    let [loaded, mapped, copied] = readers;
    let read = Error::from(file.read(&last).unwrap_err());
    let told = [
        (read, "model.gguf"),
        (file.stream(cpu, |_, _| ()).unwrap_err(), "model.gguf"),
        (loaded.load(cpu).unwrap_err(), "bytes"),
        (mapped.map(cpu).unwrap_err(), "bytes"),
        (copied.map(gpu).unwrap_err(), "bytes"),
    ];
    for (e, name) in told {
        let text = e.to_string();
        let said = format!("{name}: the data of tensor `{last}`, bytes {} to {end}, are gone", end - 3);
        assert!(matches!(e, Error::Gguf { .. }) && text.contains(&said), "{text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn load_and_stream_skip_tensors_without_a_buffer_type() {
    let memory = Device::cpu().unwrap().buffer_type();
    let file = everything();
    let reader = Reader::from_bytes(&file[..]).unwrap();
    let mut stream = Reader::from_stream(Cursor::new(&file)).unwrap();
    let names: Vec<_> = reader.tensors().map(|t| t.name().to_owned()).collect();
    let all = reader.load(memory).unwrap();
    // Each tensor alone, every second one, and none.
    let wanted: [&dyn Fn(usize, usize) -> bool; 3] =
        [&|i, turn| i == turn, &|i, turn| i % 2 == turn % 2, &|_, _| false];
    for (wanted, turn) in wanted.iter().flat_map(|w| (0..names.len()).map(move |turn| (w, turn))) {
        let place =
            |leaf: &LeafInfo| wanted(names.iter().position(|n| n == leaf.name()).unwrap(), turn).then_some(memory);
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

#[test]
fn placing_closures_are_told_of_the_tensor() {
    let (cpu, dropped) = (Device::cpu().unwrap(), Arc::new(AtomicBool::new(false)));
    let [(gpu, _)] = devices(FakeOptions::default());
    let bytes = everything();
    let want: Vec<_> = tensors().into_iter().map(|(name, dtype, ne, data)| (name, dtype, ne, data.len())).collect();
    let mut told = Vec::new();
    let mut note = |leaf: &LeafInfo| {
        told.push((leaf.name().to_owned(), leaf.dtype(), leaf.shape().ne(), leaf.nbytes()));
        cpu
    };

    let loaded = Reader::from_bytes(&bytes).unwrap().load(&mut note);
    same_data(&loaded.unwrap());
    let mut stream = Reader::from_stream(Cursor::new(&bytes)).unwrap();
    let streamed = stream.stream(&mut note, |_, _| ());
    same_data(&streamed.unwrap());
    let mut mapped = Reader::from_bytes(Mapped::new(&bytes, &dropped))
        .unwrap()
        .map(|leaf: &LeafInfo| {
            note(leaf);
            if leaf.dtype() == DType::F16 { gpu } else { cpu }
        })
        .unwrap();
    same_data(&mapped);
    // Those that were copied, and they alone, may be changed.
    for (name, dtype, ..) in &want {
        let written = mapped.fill_bytes(name, 0);
        assert_eq!(written.is_ok(), *dtype == DType::F16, "{name}: {written:?}");
    }
    assert_eq!(told, [&want[..], &want, &want].concat());
}

#[test]
fn load_places_tensors_in_the_chosen_buffer_types() {
    let reader = Reader::from_bytes(everything()).unwrap();
    let memory = Device::cpu().unwrap().buffer_type();
    let mut asked = Vec::new();
    let weights = reader
        .load(|leaf: &LeafInfo| {
            asked.push(leaf.name().to_owned());
            memory
        })
        .unwrap();
    let names: Vec<_> = tensors().into_iter().map(|t| t.0).collect();
    assert_eq!(asked, names);
    for (name, dtype, ne, data) in tensors() {
        let t = weights.tensor(&name).unwrap();
        assert_eq!((t.dtype(), t.ne()), (dtype, ne));
        assert_eq!(weights.read_bytes(&name).unwrap(), data, "{name}");
    }
}
