//! How much memory graphs take, in how many buffers, on a device whose buffers are small. A device in Rust knows which tensor
//! wrote each byte, so that memory that is taken too early shows.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ggml::driver::{
    Driver, DriverBuffer, DriverInfo, DriverStream, Failure, NoEvent, Node, Nodes, Operand, Place, TensorView,
};
use ggml::prelude::*;
use ggml::{GraphAllocator, Registry, Result, ops::PadOptions};

type Done<T = ()> = std::result::Result<T, Failure>;

/// By buffer, the name of the tensor that last wrote each byte.
type Bytes = BTreeMap<usize, Vec<String>>;

#[derive(Default)]
struct Ledger {
    bytes: Mutex<Bytes>,
    next: Mutex<usize>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sizes of all buffers, in the order in which they were allocated.
    fn sizes(&self) -> Vec<usize> {
        self.lock().values().map(Vec::len).collect()
    }
}

struct Small {
    name: String,
    max_size: usize,
    alignment: usize,
    /// How many bytes a buffer can have. The device doesn't tell: `max_size` is what it recommends.
    room: usize,
    ledger: Arc<Ledger>,
}

struct Memory {
    id: usize,
    ledger: Arc<Ledger>,
}

struct Stream(Arc<Ledger>);

impl Driver for Small {
    type Buffer = Memory;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        let info = DriverInfo::new(self.name.clone(), DeviceType::Gpu).with_memory(true);
        info.with_max_size(self.max_size).with_alignment(self.alignment)
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        true
    }

    fn allocate(&self, size: usize) -> Done<Memory> {
        if size > self.room {
            return Err(Failure::new("it has no such buffers"));
        }
        let mut next = self.ledger.next.lock().unwrap();
        *next += 1;
        self.ledger.lock().insert(*next, vec![String::new(); size]);
        Ok(Memory { id: *next, ledger: Arc::clone(&self.ledger) })
    }

    fn stream(&self, _: &str) -> Done<Stream> {
        Ok(Stream(Arc::clone(&self.ledger)))
    }
}

impl DriverBuffer for Memory {
    fn set(&self, t: TensorView<'_>, offset: usize, data: &[u8]) -> Done {
        self.ledger.lock().get_mut(&self.id).unwrap()[offset..][..data.len()].fill(t.name());
        Ok(())
    }

    fn get(&self, t: TensorView<'_>, offset: usize, data: &mut [u8]) -> Done {
        let bytes = self.ledger.lock();
        let other = bytes[&self.id][offset..][..data.len()].iter().find(|owner| **owner != t.name());
        other.map_or(Ok(()), |other| Err(Failure::new(format!("{} was overwritten by {other}", t.name()))))
    }

    fn fill(&self, _: usize, _: usize, _: u8) -> Done {
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.ledger.lock().remove(&self.id);
    }
}

impl DriverStream<Small> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, Small>) -> Done {
        let of = |operand: &Operand<'_, Small>| match operand.place() {
            Some(Place::Buffer { buffer, offset }) => Ok((buffer.id, offset..offset + operand.tensor().nbytes())),
            _ => Err(Failure::new("it has no memory here")),
        };
        for node in nodes {
            let mut bytes = self.0.lock();
            let (buffer, range) = of(&node.result())?;
            for source in node.sources() {
                // A view is called as what it is a view of, and its number.
                let name = source.tensor().name();
                let name = name.split(' ').next().unwrap_or_default();
                let (from, part) = of(&source)?;
                if let Some(other) = bytes[&from][part.clone()].iter().find(|owner| *owner != name) {
                    return Err(Failure::new(format!("{name} was overwritten by {other}")));
                }
                let shared = from == buffer && part.start < range.end && range.start < part.end;
                if shared && (part != range || !in_place(&node.op())) {
                    return Err(Failure::new(format!("{node:?} overwrites its source at {part:?} by {range:?}")));
                }
            }
            bytes.get_mut(&buffer).unwrap()[range].fill(node.result().tensor().name());
        }
        Ok(())
    }
}

/// Whether a result may be written over an operand while that is read, element by element.
fn in_place(op: &str) -> bool {
    matches!(op, "ADD" | "MUL" | "SCALE" | "SQR")
}

fn small(max_size: usize, alignment: usize) -> (Device, Arc<Ledger>) {
    limited(max_size, alignment, usize::MAX)
}

fn limited(max_size: usize, alignment: usize, room: usize) -> (Device, Arc<Ledger>) {
    static NUMBER: Mutex<usize> = Mutex::new(0);
    let mut number = NUMBER.lock().unwrap();
    *number += 1;
    let (name, ledger) = (format!("Small{number}"), Arc::new(Ledger::default()));
    let driver = Small { name: name.clone(), max_size, alignment, room, ledger: Arc::clone(&ledger) };
    (Registry::register(&name, [driver]).unwrap().devices().unwrap()[0], ledger)
}

/// Builds a graph whose inputs and results are named by numbers.
struct Build<'c> {
    ctx: &'c Context,
    inputs: Vec<Tensor<'c>>,
    n: usize,
}

impl<'c> Build<'c> {
    /// An input of so many bytes.
    fn input(&mut self, bytes: usize) -> Tensor<'c> {
        let x = self.ctx.input(&format!("x{}", self.inputs.len()), DType::F32, [bytes / 4]).unwrap();
        self.inputs.push(x);
        x
    }

    fn named(&mut self, t: Result<Tensor<'c>>) -> Tensor<'c> {
        self.n += 1;
        t.unwrap().named(&format!("r{}", self.n)).unwrap()
    }

    fn add(&mut self, a: Tensor<'c>, b: Tensor<'c>) -> Tensor<'c> {
        self.named(self.ctx.add(a, b))
    }

    fn scale(&mut self, a: Tensor<'c>) -> Tensor<'c> {
        self.named(self.ctx.scale(a, 2.0))
    }

    fn mean(&mut self, a: Tensor<'c>) -> Tensor<'c> {
        self.named(self.ctx.mean(a))
    }

    /// With so many more bytes.
    fn pad(&mut self, a: Tensor<'c>, bytes: i32) -> Tensor<'c> {
        self.named(self.ctx.pad(a, PadOptions::new().with_right([bytes / 4, 0, 0, 0])))
    }

    fn view(&mut self, of: Tensor<'c>, t: Result<Tensor<'c>>) -> Tensor<'c> {
        self.n += 1;
        t.unwrap().named(&format!("{} {}", of.name().split(' ').next().unwrap(), self.n)).unwrap()
    }
}

/// Allocates and computes, several times, and returns the sizes of the buffers that this took.
fn taken(
    device: Device,
    ledger: &Ledger,
    allocator: &mut GraphAllocator,
    build: impl for<'c> Fn(&mut Build<'c>) -> Tensor<'c>,
) -> Vec<usize> {
    let ctx = Context::new();
    let mut made = Build { ctx: &ctx, inputs: Vec::new(), n: 0 };
    let y = build(&mut made);
    let graph = ctx.graph([y]).unwrap();
    let mut backend = device.init().unwrap();
    for _ in 0..2 {
        let mut run = allocator.alloc(&graph, &mut backend).unwrap();
        for &x in &made.inputs {
            run.set(x, &vec![1.0_f32; x.elements()]).unwrap();
        }
        run.compute().unwrap();
        drop(run.get::<f32>(y).unwrap());
        run.compute().unwrap();
        for &x in &made.inputs {
            drop(run.get::<f32>(x).unwrap());
        }
    }
    assert_eq!(allocator.buffer_sizes().unwrap(), [ledger.sizes().iter().sum::<usize>()], "as the allocator says");
    ledger.sizes()
}

/// The same, for an allocator of its own, which says how much it would take before.
fn new(max_size: usize, alignment: usize, build: impl for<'c> Fn(&mut Build<'c>) -> Tensor<'c>) -> Vec<usize> {
    let (device, ledger) = small(max_size, alignment);
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let ctx = Context::new();
    let y = build(&mut Build { ctx: &ctx, inputs: Vec::new(), n: 0 });
    let said = allocator.sizes(&ctx.graph([y]).unwrap()).unwrap();
    let sizes = taken(device, &ledger, &mut allocator, build);
    assert_eq!(said, [sizes.iter().sum::<usize>()], "as was said before");
    drop(allocator);
    assert!(ledger.sizes().is_empty(), "what an allocator took is freed with it");
    sizes
}

#[track_caller]
fn assert_taken(sizes: &[usize], max_size: usize, buffers: usize, total: usize) {
    assert!(sizes.iter().all(|&size| size <= max_size), "{sizes:?}: none above {max_size}");
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (buffers, total), "{sizes:?}");
}

/// Three inputs of 8 bytes, which stay, and two results at a time.
#[test]
fn graphs_larger_than_a_buffer_take_several() {
    let sizes = new(16, 8, |b| {
        let [x, y, z] = [8; 3].map(|n| b.input(n));
        let product = b.named(b.ctx.mul(x, y));
        let sum = b.add(y, z);
        let both = b.add(product, x);
        b.add(sum, both)
    });
    assert_taken(&sizes, 16, 3, 40);
}

/// Of 32 bytes 8 are left, too few for 24.
#[test]
fn a_tensor_that_does_not_fit_into_what_is_left_gets_a_buffer() {
    let sizes = new(32, 8, |b| {
        let (x, y) = (b.input(16), b.input(8));
        b.named(b.ctx.concat(x, y, 0))
    });
    assert_taken(&sizes, 32, 2, 48);
}

/// A device may say less than it can. It is asked, and says what it can't.
#[test]
fn a_tensor_above_the_maximum_is_asked_for() {
    let sizes = new(16, 8, |b| {
        let x = b.input(24);
        b.scale(x)
    });
    assert_eq!(sizes, [24, 24]);
    let (device, ledger) = small(16, 8);
    let mut builder = WeightsBuilder::new();
    builder.tensor("small", DType::F32, [2]).unwrap();
    builder.tensor("fits", DType::F32, [4]).unwrap();
    let weights = builder.place(device).unwrap();
    assert_eq!(ledger.sizes(), [8, 16]);
    drop(weights);
}

/// ggml keeps 16 buffers at most: the last one takes what is left, whatever the maximum.
#[test]
fn the_last_of_sixteen_buffers_takes_the_rest() {
    let sizes = new(8, 8, |b| {
        let all: Vec<_> = (0..20).map(|_| b.input(8)).collect();
        let first = b.scale(all[0]);
        all.into_iter().skip(1).fold(first, |sum, x| b.add(sum, x))
    });
    assert_eq!(sizes.len(), 16, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 21 * 8, "{sizes:?}");
    assert!(sizes[..15].iter().all(|&size| size == 8) && sizes[15] == 48, "{sizes:?}");
}

/// 8 bytes are left in the first buffer when the second is made for 16.
#[test]
fn what_is_left_of_a_buffer_is_used_later() {
    let sizes = new(16, 8, |b| {
        let x = b.input(8);
        let padded = b.pad(x, 8);
        b.mean(padded)
    });
    assert_taken(&sizes, 16, 2, 16 + 16);
}

#[test]
fn views_take_no_memory() {
    let sizes = new(32, 8, |b| {
        let (x, y) = (b.input(16), b.input(8));
        let square = b.view(x, b.ctx.reshape(x, [2, 2]));
        let turned = b.view(x, b.ctx.permute(square, [1, 0, 2, 3]));
        let last = b.view(x, b.ctx.view_1d(turned, 2, 8));
        b.add(last, y)
    });
    assert_taken(&sizes, 32, 1, 16 + 8 + 8);
}

/// Sums and scaled values take the memory of an operand that nothing else needs.
#[test]
fn results_take_the_memory_of_their_operands() {
    for n in [2, 5, 20] {
        let sizes = new(64, 8, |b| {
            let x = b.input(16);
            let first = b.scale(x);
            (1..n).fold(first, |y, _| b.scale(y))
        });
        assert_taken(&sizes, 64, 1, 16 + 16);
    }
    // 40 bytes of inputs fill the first buffer; a sum of 8 and a padded 32 the second; the third holds another 32.
    let sizes = new(40, 8, |b| {
        let (x, y, z) = (b.input(24), b.input(8), b.input(8));
        let sum = b.add(y, z);
        let padded = b.pad(x, 8);
        let double = b.scale(padded);
        let both = b.add(padded, double);
        let end = b.view(both, b.ctx.view_1d(both, 2, 8));
        b.add(sum, end)
    });
    assert_taken(&sizes, 40, 3, 40 + 40 + 32);
}

/// Two results of 16 bytes side by side are free when 32 are needed, the second since before the first.
#[test]
fn free_blocks_side_by_side_are_one() {
    for max_size in [56, usize::MAX] {
        let sizes = new(max_size, 8, |b| {
            let x = b.input(16);
            let first = b.scale(x);
            let second = b.named(b.ctx.sqr(first));
            let mean = b.mean(second);
            let part = b.view(first, b.ctx.view_1d(first, 1, 0));
            let sum = b.add(mean, part);
            b.pad(sum, 28)
        });
        assert_taken(&sizes, max_size, 1, 16 + 2 * 16 + 8);
    }
}

/// 24 bytes in the first buffer are free again when the second, with 4, has as much left as is needed.
#[test]
fn memory_that_was_used_before_comes_first() {
    let sizes = new(32, 4, |b| {
        let x = b.input(8);
        let padded = b.pad(x, 16);
        let mean = b.mean(padded);
        b.mean(mean)
    });
    assert_taken(&sizes, 32, 2, 8 + 24 + 4);
}

/// Another graph needs as many buffers, of which one is larger: all are allocated anew, and the old ones are freed.
#[test]
fn an_allocator_grows_by_buffer() {
    let (device, ledger) = small(32, 4);
    let mut allocator = GraphAllocator::new(device.buffer_type());
    for (first, second, expected) in [(24, 16, vec![24, 32]), (20, 20, vec![20, 20, 20]), (24, 8, vec![32, 8])] {
        let sizes = taken(device, &ledger, &mut allocator, |b| {
            let (x, y) = (b.input(first), b.input(second));
            let begin = if first == second { x } else { b.view(x, b.ctx.view_1d(x, second / 4, 0)) };
            b.add(begin, y)
        });
        assert_eq!(sizes, expected, "{first} and {second} bytes");
    }
}

/// Weights and states ask the device for a tensor above `max_size`, in a buffer of its own, as graphs do.
#[test]
fn weights_above_the_maximum_are_asked_for() {
    let builder = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("a", DType::F32, [4]).unwrap();
        builder.tensor("large", DType::F32, [32]).unwrap();
        builder.tensor("b", DType::F32, [4]).unwrap();
        builder
    };
    let (device, ledger) = small(64, 8);
    assert_eq!(builder().size(device).unwrap(), 16 + 128 + 16);
    let weights = builder().place(device).unwrap();
    assert_eq!(ledger.sizes(), [16, 128, 16]);
    let state = builder().place_state(device).unwrap();
    assert_eq!(ledger.sizes(), [16, 128, 16, 16, 128, 16]);
    drop((weights, state));
    assert!(ledger.sizes().is_empty());

    let (device, ledger) = limited(64, 8, 64);
    let error = builder().place(device).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes: Some(128), .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("128 bytes") && text.contains("it has no such buffers"), "{text}");
    assert!(ledger.sizes().is_empty(), "what was allocated before is freed");
}
