//! A device in Rust whose memory holds weights in an order of its own, larger than they are.

#![cfg(test)]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use ggml::Registry;
use ggml::driver::{
    Driver, DriverBuffer, DriverInfo, DriverStream, Failure, NoEvent, Node, Nodes, Operand, Operation, Place,
    TensorView, zeroed,
};
use ggml::prelude::*;

/// Plain bytes, and matrices by their offset: a column for each element of a row, as `f64`.
#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    packed: HashMap<usize, Vec<f64>>,
}

struct Memory(Mutex<Content>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

fn columns(t: TensorView<'_>) -> usize {
    t.ne()[0].try_into().unwrap()
}

impl DriverBuffer for Memory {
    fn set(&self, t: TensorView<'_>, offset: usize, data: &[u8]) -> Result<(), Failure> {
        let mut content = self.lock();
        if !t.is_weight() {
            content.bytes[offset..][..data.len()].copy_from_slice(data);
            return Ok(());
        }
        if data.len() != t.nbytes() {
            return Err(Failure::new("weights are written as a whole"));
        }
        let (rows, k): (Vec<f32>, _) = (floats(data), columns(t));
        let column = |i| rows.iter().skip(i).step_by(k).copied().map(f64::from);
        content.packed.insert(offset, (0..k).flat_map(column).collect());
        Ok(())
    }

    fn get(&self, t: TensorView<'_>, offset: usize, data: &mut [u8]) -> Result<(), Failure> {
        let content = self.lock();
        let Some(packed) = content.packed.get(&offset).filter(|_| t.is_weight()) else {
            data.copy_from_slice(&content.bytes[offset..][..data.len()]);
            return Ok(());
        };
        let m = packed.len() / columns(t);
        #[expect(clippy::cast_possible_truncation, reason = "they were `f32`")]
        let row = |j| packed.iter().skip(j).step_by(m).map(|&x| x as f32);
        let rows: Vec<f32> = (0..m).flat_map(row).collect();
        data.copy_from_slice(bytemuck::cast_slice(&rows));
        Ok(())
    }

    fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Failure> {
        self.lock().bytes[offset..][..len].fill(value);
        Ok(())
    }
}

struct Packing;

impl Driver for Packing {
    type Buffer = Memory;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("Packing0".into(), DeviceType::Accelerator).with_memory(true)
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        let plain = |t: TensorView<'_>| t.dtype() == DType::F32 && t.is_contiguous() && t.ne()[2..] == [1, 1];
        matches!(node.operation(), Ok(Operation::MulMat(how)) if !how.hadamard)
            && node.sources().all(|s| plain(s.tensor()))
    }

    fn alloc_size(&self, t: TensorView<'_>) -> usize {
        if t.is_weight() { 2 * t.nbytes() } else { t.nbytes() }
    }

    fn allocate(&self, size: usize) -> Result<Memory, Failure> {
        Ok(Memory(Mutex::new(Content { bytes: zeroed(size)?, packed: HashMap::new() })))
    }

    fn stream(&self, _: &str) -> Result<Self, Failure> {
        Ok(Self)
    }
}

fn place<'a>(operand: Option<&Operand<'a, Packing>>) -> Result<(&'a Memory, usize), Failure> {
    match operand.and_then(Operand::place) {
        Some(Place::Buffer { buffer, offset }) => Ok((buffer, offset)),
        _ => Err(Failure::new("the operand lies in no buffer of this device")),
    }
}

impl DriverStream<Self> for Packing {
    fn compute(&mut self, nodes: Nodes<'_, Self>) -> Result<(), Failure> {
        for node in nodes {
            let (Some(w), Some(x)) = (node.source(0), node.source(1)) else {
                return Err(Failure::new("a product has two operands"));
            };
            let k = columns(w.tensor());
            let (memory, at) = place(Some(&w))?;
            let packed = memory.lock().packed.get(&at).cloned().ok_or_else(|| Failure::new("no packed weights"))?;
            let m = packed.len() / k;
            let (memory, at) = place(Some(&x))?;
            let x: Vec<f32> = floats(&memory.lock().bytes[at..][..x.tensor().nbytes()]);
            let mut y = Vec::new();
            for row in x.chunks(k) {
                let mut sums = vec![0.0; m];
                for (column, &x) in packed.chunks(m).zip(row) {
                    sums.iter_mut().zip(column).for_each(|(sum, w)| *sum += w * f64::from(x));
                }
                #[expect(clippy::cast_possible_truncation, reason = "the result's type")]
                y.extend(sums.into_iter().map(|sum| sum as f32));
            }
            let (memory, at) = place(Some(&node.result()))?;
            memory.lock().bytes[at..][..4 * y.len()].copy_from_slice(bytemuck::cast_slice(&y));
        }
        Ok(())
    }
}

#[test]
fn memory_of_a_device_in_rust_holds_repacked_weights() {
    let device = Registry::register("Packing", [Packing]).unwrap().devices().unwrap()[0];
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::F32, [3, 2]).unwrap();
    builder.tensor("b", DType::F32, [2, 4]).unwrap();
    let mut weights = builder.place(device).unwrap();
    let (a, b) = ([1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0_f32, -1.0, 2.0, 0.0, 0.0, 2.0, 1.0, 1.0]);
    weights.set("a", &a).unwrap();
    weights.set("b", &b).unwrap();
    assert_eq!(weights.tensor("a").unwrap().read::<f32>().unwrap(), a);
    assert_eq!(weights.tensor("b").unwrap().read::<f32>().unwrap(), b);

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [3, 2]).unwrap();
    let hidden = ctx.mul_mat(weights.tensor("a").unwrap(), x).unwrap();
    let y = ctx.mul_mat(weights.tensor("b").unwrap(), ctx.relu(hidden).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    assert_eq!(run.backend_of(y).map(Backend::device), Some(device));
    run.set(x, &[1.0_f32, 0.0, 0.0, 0.0, 1.0, -1.0]).unwrap();
    run.compute().unwrap();
    // The columns of x give 1, 4 and -1, -1; the latter become 0.
    assert_eq!(run.get::<f32>(y).unwrap(), [-3.0, 2.0, 8.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
}
