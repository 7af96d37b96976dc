//! Randomly changed files: read, placed and read again, or refused.

use std::env;
use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use ggml::gguf::{Error as FileError, Load as _, Reader};
use ggml::{Device, Error};
use testkit::counted;

use crate::files::File;

/// The memory bound for reading: a multiple of the file's size, plus some bytes, mostly a stream's buffer.
const READING: (usize, usize) = (8, 12 << 10);
/// The same for placing the tensors three times, with a context each.
const PLACING: (usize, usize) = (8, 256 << 10);

/// The number of changed files; `cargo xtask fuzz-gguf` sets it.
const RUNS: &str = "GGML_FUZZ_RUNS";
const SEED: &str = "GGML_FUZZ_SEED";
const DEFAULT_RUNS: u64 = 20_000;

/// Memory aligned for zero-copy use by a device.
struct Aligned(Vec<[u64; 16]>, usize, usize);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut units = vec![[0; 16]; bytes.len().div_ceil(128) + 1];
        let first = units.as_ptr().addr().wrapping_neg() % 128;
        let space: &mut [u8] = bytemuck::cast_slice_mut(units.as_mut_slice());
        space[first..first + bytes.len()].copy_from_slice(bytes);
        Self(units, first, bytes.len())
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(self.0.as_slice())[self.1..self.1 + self.2]
    }
}

/// Peaks of allocated bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    read: usize,
    placed: usize,
}

type Both<'a> = (Reader<&'a [u8]>, Reader<Cursor<&'a [u8]>>);

/// Reads a file in both ways, with all its contents.
fn read(bytes: &[u8]) -> Result<Both<'_>, FileError> {
    let stream = Reader::from_stream(Cursor::new(bytes));
    let reader = match Reader::from_bytes(bytes) {
        Ok(reader) => reader,
        Err(e) => {
            assert_eq!(stream.unwrap_err().to_string(), e.to_string());
            return Err(e);
        }
    };
    let stream = stream.unwrap();
    assert!(stream.tensors().eq(reader.tensors()));
    for (key, value) in reader.key_values() {
        assert_eq!(reader.metadata(key).map(ggml::gguf::Value::type_name), Some(value.type_name()));
    }
    let total: usize = reader.tensors().map(|t| reader.data(t.name()).unwrap().len()).sum();
    assert!(total <= bytes.len(), "no byte belongs to two tensors");
    Ok((reader, stream))
}

/// Places the tensors in all ways, and reads them.
fn place(bytes: &[u8], device: Device) {
    let memory = device.buffer_type();
    let (reader, mut stream) = read(bytes).unwrap();
    let loaded = reader.load(memory).unwrap();
    let streamed = stream.stream(memory, |done, total| assert!(done <= total)).unwrap();
    let aligned = reader.data_offset().is_multiple_of(32) && reader.tensors().all(|t| t.offset().is_multiple_of(32));
    let mapped = Reader::from_bytes(Aligned::new(bytes)).unwrap().map(device);
    let mapped = match mapped {
        Ok(mapped) => Some(mapped),
        Err(e) => {
            assert!(!aligned && matches!(e, Error::Shape { .. }), "{e}");
            None
        }
    };
    for t in reader.tensors() {
        let (name, data) = (t.name(), reader.data(t.name()).unwrap());
        for weights in [Some(&loaded), Some(&streamed), mapped.as_ref()].into_iter().flatten() {
            assert_eq!(weights.read_bytes(name).unwrap(), data, "{name}");
        }
    }
}

/// Whether the file was accepted, and the memory used.
fn run(bytes: &[u8], device: Device) -> (bool, Taken) {
    let within = |(times, plus): (usize, usize), taken: usize| {
        assert!(taken <= bytes.len() * times + plus, "{taken} bytes for a file of {}", bytes.len());
        taken
    };
    let (taken, result) = counted::peak(|| read(bytes).map(drop));
    let read = within(READING, taken);
    if let Err(e) = result {
        assert!(matches!(e, FileError::Gguf { .. }), "{e}");
        return (false, Taken { read, placed: 0 });
    }
    let (taken, ()) = counted::peak(|| place(bytes, device));
    (true, Taken { read, placed: within(PLACING, taken) })
}

/// The input of one run; depends only on seed and number.
fn case(seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (file, other) = (File::valid(&mut rng), File::valid(&mut rng));
    file.mutated(&other, &mut rng)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn reader_accepts_valid_random_files() {
    let device = Device::cpu().unwrap();
    let mut rng = Rng::with_seed(1);
    for _ in 0..1000 {
        let file = File::valid(&mut rng);
        let (accepted, _) = run(&file.bytes, device);
        assert!(accepted, "{:?}", Reader::from_bytes(&file.bytes[..]).err());
    }
}

#[test]
fn reader_fuzz() {
    let runs = number(RUNS).unwrap_or(DEFAULT_RUNS);
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("fuzz-gguf: seed={seed}");
    let device = Device::cpu().unwrap();
    // The first error or tensor initialises static data, which is not measured.
    drop(read(b"GGUF"));
    place(&File::valid(&mut Rng::with_seed(1)).bytes, device);
    let start = Instant::now();
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let work = |first: u64| {
        let (mut accepted, mut most) = (0_u64, Taken::default());
        for i in (first..runs).step_by(usize::try_from(threads).unwrap()) {
            let bytes = case(seed, i);
            let (fine, taken) = panic::catch_unwind(AssertUnwindSafe(|| run(&bytes, device))).unwrap_or_else(|e| {
                eprintln!("fuzz-gguf: run {i} of seed {seed} failed: {bytes:?}");
                panic::resume_unwind(e)
            });
            accepted += u64::from(fine);
            most = Taken { read: most.read.max(taken.read), placed: most.placed.max(taken.placed) };
        }
        (accepted, most)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(move || work(first))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|e| panic::resume_unwind(e))).collect()
    });
    let ok: u64 = results.iter().map(|r| r.0).sum();
    let read = results.iter().map(|r| r.1.read).max().unwrap_or(0);
    let placed = results.iter().map(|r| r.1.placed).max().unwrap_or(0);
    let (err, time) = (runs - ok, start.elapsed().as_secs_f64());
    eprintln!("fuzz-gguf: runs={runs} ok={ok} err={err} max_alloc={read} max_alloc_placed={placed} seconds={time:.1}");
    assert!(runs < 1000 || (ok > runs / 20 && err > runs / 20), "both kinds are tried");
}
