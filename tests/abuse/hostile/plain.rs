//! Devices in Rust that compute little, and refuse more: by size, by name, and for want of memory. They notice nodes that they
//! have not claimed.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytemuck::cast_slice;
use ggml::driver::{
    Driver, DriverBuffer, DriverInfo, DriverStream, Failure, NoEvent, Node, Nodes, Operand, Operation, Place,
    TensorView,
};
use ggml::prelude::*;
use ggml::{Registry, ops::UnaryOp};

type Done<T = ()> = Result<T, Failure>;

/// What a device accepts, and has.
pub(super) struct Rule {
    /// It takes no rows that are longer.
    pub(super) most: AtomicI64,
    /// It takes no nodes whose names begin with this letter.
    pub(super) refuses: AtomicU32,
    /// Bytes of memory.
    pub(super) limit: AtomicUsize,
    pub(super) used: AtomicUsize,
    /// Nodes that it computed and had not claimed.
    pub(super) unclaimed: AtomicUsize,
}

impl Rule {
    pub(super) fn accepts(&self, name: &str, rows: i64) -> bool {
        rows <= self.most.load(SeqCst) && !name.starts_with(|c| u32::from(c) == self.refuses.load(SeqCst))
    }
}

struct Plain {
    name: String,
    has_memory: bool,
    rule: Arc<Rule>,
}

/// Devices with memory of their own, or in that of the CPU.
pub(super) fn devices<const N: usize>(name: &str, has_memory: bool) -> [(Device, Arc<Rule>); N] {
    let rules: [_; N] = std::array::from_fn(|_| {
        Arc::new(Rule {
            most: AtomicI64::new(i64::MAX),
            refuses: AtomicU32::new(0),
            limit: AtomicUsize::new(usize::MAX / 2),
            used: AtomicUsize::new(0),
            unclaimed: AtomicUsize::new(0),
        })
    });
    let one = |(i, rule)| Plain { name: format!("{name}{i}"), has_memory, rule: Arc::clone(rule) };
    let made = Registry::register(name, rules.iter().enumerate().map(one)).unwrap().devices().unwrap();
    std::array::from_fn(|i| (made[i], Arc::clone(&rules[i])))
}

impl Driver for Plain {
    type Buffer = Memory;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        // A member of a meta device is a GPU.
        DriverInfo::new(self.name.clone(), DeviceType::Gpu).with_memory(self.has_memory)
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        claims(&self.rule, node)
    }

    fn allocate(&self, size: usize) -> Done<Memory> {
        if self.rule.used.fetch_add(size, SeqCst) + size > self.rule.limit.load(SeqCst) {
            self.rule.used.fetch_sub(size, SeqCst);
            return Err(Failure::new("too little"));
        }
        Ok(Memory { bytes: Mutex::new(vec![0xA5; size]), rule: Arc::clone(&self.rule) })
    }

    fn stream(&self, _: &str) -> Done<Stream> {
        Ok(Stream(Arc::clone(&self.rule)))
    }
}

pub(super) struct Memory {
    bytes: Mutex<Vec<u8>>,
    rule: Arc<Rule>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.rule.used.fetch_sub(self.bytes.lock().unwrap().len(), SeqCst);
    }
}

impl DriverBuffer for Memory {
    fn set(&self, _: TensorView<'_>, offset: usize, data: &[u8]) -> Done {
        self.bytes.lock().unwrap()[offset..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn get(&self, _: TensorView<'_>, offset: usize, data: &mut [u8]) -> Done {
        data.copy_from_slice(&self.bytes.lock().unwrap()[offset..][..data.len()]);
        Ok(())
    }

    fn fill(&self, offset: usize, len: usize, value: u8) -> Done {
        self.bytes.lock().unwrap()[offset..][..len].fill(value);
        Ok(())
    }
}

struct Stream(Arc<Rule>);

impl DriverStream<Plain> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, Plain>) -> Done {
        for mut node in nodes {
            if !claims(&self.0, &node) {
                self.0.unclaimed.fetch_add(1, SeqCst);
            }
            let lengths: Vec<_> = node.sources().map(|s| s.tensor().ne()[0] as usize).collect();
            let operation = node.operation()?;
            if matches!(node.result().place(), Some(Place::Host)) {
                node.on_host(|to, from| to.copy_from_slice(&kernel(&operation, &lengths, from)))?;
                continue;
            }
            let sources = node.sources().map(|s| read(&s)).collect::<Done<Vec<_>>>()?;
            let result = kernel(&operation, &lengths, &sources.iter().map(|s| &s[..]).collect::<Vec<_>>());
            let Some(Place::Buffer { buffer, offset }) = node.result().place() else {
                return Err(Failure::new("a result without memory"));
            };
            buffer.bytes.lock().unwrap()[offset..][..result.len()].copy_from_slice(&result);
        }
        Ok(())
    }
}

fn read(operand: &Operand<'_, Plain>) -> Done<Vec<u8>> {
    match operand.place() {
        Some(Place::Buffer { buffer, offset }) => {
            Ok(buffer.bytes.lock().unwrap()[offset..][..operand.tensor().nbytes()].to_vec())
        }
        _ => Err(Failure::new("an operand without memory")),
    }
}

fn claims(rule: &Rule, node: &Node<'_, Plain>) -> bool {
    let (operation, sources) = (node.operation(), || node.sources().map(|s| s.tensor()));
    let known = match operation {
        Ok(Operation::CountEqual) => sources().all(|s| s.dtype() == DType::I32),
        Ok(Operation::MulMat { .. }) => sources().all(|s| s.dtype() == DType::F32 && s.ne()[2..] == [1, 1]),
        Ok(
            Operation::Add | Operation::Mul | Operation::Scale { .. } | Operation::Unary(UnaryOp::Neg | UnaryOp::Relu),
        ) => sources().all(|s| s.dtype() == DType::F32 && s.ne() == node.result().tensor().ne()),
        _ => false,
    };
    let result = node.result().tensor();
    known && sources().all(TensorView::is_contiguous) && rule.accepts(&result.name(), result.ne()[0])
}

/// The result's bytes, of operands with rows of these lengths.
fn kernel(operation: &Operation, lengths: &[usize], from: &[&[u8]]) -> Vec<u8> {
    let f32s = |i: usize| -> Vec<f32> { from[i].chunks_exact(4).map(bytemuck::pod_read_unaligned).collect() };
    let each = |f: &dyn Fn(f32) -> f32| f32s(0).into_iter().map(f).collect::<Vec<_>>();
    let both = |f: &dyn Fn(f32, f32) -> f32| f32s(0).into_iter().zip(f32s(1)).map(|(a, b)| f(a, b)).collect();
    let result: Vec<f32> = match operation {
        Operation::CountEqual => {
            let equal = from[0].chunks(4).zip(from[1].chunks(4)).filter(|(a, b)| a == b).count();
            return (equal as i64).to_ne_bytes().to_vec();
        }
        Operation::Unary(UnaryOp::Neg) => each(&|x| -x),
        Operation::Unary(_) => each(&|x| x.max(0.0)),
        Operation::Scale { factor, bias } => each(&|x| x * factor + bias),
        Operation::Add => both(&|a, b| a + b),
        Operation::Mul => both(&|a, b| a * b),
        _ => {
            let (w, x, k) = (f32s(0), f32s(1), lengths[0]);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(w, x))).collect()
        }
    };
    cast_slice(&result).to_vec()
}
