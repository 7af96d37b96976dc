//! Weights from a safetensors file, copied and where they lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::gguf::{Reader, Writer};
use ggml::prelude::*;

/// Bytes that begin at a multiple of 64, as a mapped file does, and tell when they are dropped.
struct Mapped {
    bytes: Vec<u8>,
    first: usize,
    len: usize,
    dropped: Arc<AtomicBool>,
}

impl Mapped {
    fn new(file: &[u8], dropped: &Arc<AtomicBool>) -> Self {
        let mut bytes = vec![0; file.len() + 64];
        let first = bytes.as_ptr().align_offset(64);
        bytes[first..first + file.len()].copy_from_slice(file);
        Self { bytes, first, len: file.len(), dropped: Arc::clone(dropped) }
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.first..self.first + self.len]
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
    }
}

/// A header of `len` bytes before a matrix of floats, a row of half floats, and a byte at an odd place before floats.
fn file(len: usize) -> Vec<u8> {
    let mut header = br#"{"up":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"half":{"dtype":"F16","shape":[3],"data_offsets":[24,30]},"#.to_vec();
    header.extend(br#""odd":{"dtype":"I8","shape":[1],"data_offsets":[30,31]},"bias":{"dtype":"F32","shape":[2],"data_offsets":[31,39]}}"#);
    header.resize(len, b' ');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(&header);
    for x in [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0] {
        bytes.extend(x.to_le_bytes());
    }
    bytes.extend([0x00, 0x3c, 0x00, 0x40, 0x00, 0x42, 7]); // 1, 2, 3; 7
    bytes.extend([10.0_f32, 20.0].map(f32::to_le_bytes).concat());
    bytes
}

#[expect(clippy::unnecessary_wraps, reason = "what a reader asks")]
fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn is_whole(weights: &Weights) {
    assert_eq!(weights.tensor("up").unwrap().ne(), [2, 3, 1, 1]);
    assert_eq!(weights.tensor("up").unwrap().read::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let half: Vec<f32> =
        weights.tensor("half").unwrap().read::<half::f16>().unwrap().iter().map(|x| x.to_f32()).collect();
    assert_eq!(half, [1.0, 2.0, 3.0]);
    assert_eq!(weights.tensor("odd").unwrap().read::<i8>().unwrap(), [7]);
    assert_eq!(weights.tensor("bias").unwrap().read::<f32>().unwrap(), [10.0, 20.0]);

    // 6 = 3 rows of 2 times 2 numbers, and a sum.
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let sum = ctx.add(x, weights.tensor("bias").unwrap()).unwrap();
    let y = ctx.mul_mat(weights.tensor("up").unwrap(), sum).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let run = sched.run(&graph, (x, &[-9.0_f32, -18.0])).unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [5.0, 11.0, 17.0]);
}

#[test]
fn safetensors_are_loaded() {
    let bytes = file(248);
    is_whole(&Reader::from_safetensors(&bytes[..], same).unwrap().load(Device::cpu().unwrap()).unwrap());
    let reader = Reader::from_safetensors(bytes, same).unwrap().map_source(std::io::Cursor::new);
    let mut reader = reader;
    is_whole(&reader.stream(Device::cpu().unwrap(), |_, _| ()).unwrap());
}

/// Where data begin at a multiple of their elements' size, they are used where they lie, wherever that is: the format
/// promises no more. The others are copied.
#[test]
fn safetensors_are_mapped_at_any_place_that_suits_their_elements() {
    for len in [248, 256, 264] {
        let dropped = Arc::new(AtomicBool::new(false));
        let mapped = Mapped::new(&file(len), &dropped);
        let (lies, at) = (mapped.as_ref().len(), mapped.as_ref().as_ptr().addr());
        let weights = Reader::from_safetensors(mapped, same).unwrap().map(Device::cpu().unwrap()).unwrap();
        is_whole(&weights);
        let frozen = |weights: &mut Weights, name: &str| {
            let bytes = weights.read_bytes(name).unwrap();
            matches!(weights.set_bytes(name, &bytes), Err(Error::Frozen { .. }))
        };
        let mut weights = weights;
        let in_place: Vec<_> = ["up", "half", "odd", "bias"].map(|name| frozen(&mut weights, name)).into();
        assert_eq!(in_place, [true, true, true, false], "`bias` begins at an odd byte");
        assert!(at.is_multiple_of(64) && lies > len);
        assert!(!dropped.load(Ordering::SeqCst), "the weights own the file");
        drop(weights);
        assert!(dropped.load(Ordering::SeqCst));
    }
}

#[test]
fn safetensors_become_gguf_and_come_back() {
    let bytes = file(248);
    let reader = Reader::from_safetensors(&bytes[..], same).unwrap();
    let mut writer = Writer::new();
    for t in reader.tensors() {
        writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
    }
    let gguf = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
    is_whole(&gguf.load(Device::cpu().unwrap()).unwrap());
    let again = Reader::from_safetensors(writer.to_safetensors().unwrap(), same).unwrap();
    is_whole(&again.load(Device::cpu().unwrap()).unwrap());
}
