//! Helpers for the tests of meta devices.

use fastrand::Rng;
use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{GraphAllocator, TensorInfo};
use testkit::device::{here, members};

/// Splits a tensor by the suffix of its name: `.0` along axis 0, and so on; all others are mirrored.
pub(crate) fn by_name(t: &TensorInfo) -> SplitMode {
    match t.name.rsplit_once('.').and_then(|(_, axis)| axis.parse().ok()) {
        Some(axis) => SplitMode::Even { axis },
        None => SplitMode::Mirrored,
    }
}

/// A meta device of `n` CPUs.
pub(crate) fn cpus(n: usize) -> Device {
    MetaDevice::new(&vec![Device::cpu().unwrap(); n], by_name).unwrap().device()
}

/// A meta device of `n` members.
pub(crate) fn meta(n: usize) -> Device {
    MetaDevice::new(&members(n), by_name).unwrap().device()
}

/// Pseudorandom values in -1 to 1.
pub(crate) fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::with_seed(seed);
    (0..n).map(|_| 2.0 * rng.f32() - 1.0).collect()
}

/// A matrix of `rows` rows with `k` elements each.
pub(crate) struct Matrix {
    pub(crate) name: &'static str,
    pub(crate) dtype: DType,
    pub(crate) ne: [i64; 2],
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    pub(crate) fn new(name: &'static str, dtype: DType, ne: [i64; 2]) -> Self {
        let n = (ne[0] * ne[1]) as usize;
        let seed = name.bytes().map(u64::from).sum::<u64>() + n as u64;
        Self { name, dtype, ne, values: noise(n, seed) }
    }

    /// The bytes of its quantised blocks.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.dtype.quantize(&self.values, self.ne[0] as usize, None).unwrap()
    }

    /// The decoded values of the blocks.
    pub(crate) fn decoded(&self) -> Vec<f64> {
        self.dtype.dequantize(&self.bytes()).unwrap().into_iter().map(f64::from).collect()
    }

    /// The product with one column, by definition.
    pub(crate) fn times(&self, x: &[f64]) -> Vec<f64> {
        let k = self.ne[0] as usize;
        self.decoded().chunks(k).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }
}

pub(crate) fn place(device: Device, matrices: &[Matrix]) -> Weights {
    let mut builder = WeightsBuilder::new();
    for m in matrices {
        builder.tensor(m.name, m.dtype, m.ne).unwrap();
    }
    let mut weights = builder.place(device.buffer_type()).unwrap();
    for m in matrices {
        weights.set_bytes(m.name, &m.bytes()).unwrap();
    }
    weights
}

/// The result, once no other thread is in code of a driver: threads don't wait for that.
pub(crate) fn unless_busy<T>(mut f: impl FnMut() -> ggml::Result<T>) -> ggml::Result<T> {
    loop {
        match f() {
            Err(Error::Busy { .. }) if here().device_type() != DeviceType::Cpu => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// Computes `y` of an input `x` on a device. An input `positions` is set to 0, 1, 2, and so on.
pub(crate) fn run<'c>(
    device: Device,
    ctx: &'c Context,
    x: (&[f32], &[i64]),
    y: impl FnOnce(Tensor<'c>) -> ggml::Result<Tensor<'c>>,
) -> ggml::Result<Vec<f32>> {
    let input = ctx.input("x", DType::F32, shape(x.1))?;
    let y = y(input)?;
    let graph = ctx.graph([y])?;
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init()?;
    if device.name().contains("CPU") {
        backend.set_threads(x.0.len() % 2 + 1)?;
    }
    let mut memory = allocator.alloc(&graph, &mut backend)?;
    memory.set(input, x.0)?;
    if let Some(positions) = graph.tensor("positions") {
        let all: Vec<i32> = (0..positions.elements() as i32).collect();
        memory.set(positions, &all)?;
    }
    memory.compute()?;
    let first = memory.get::<f32>(y)?;
    memory.compute()?;
    assert_eq!(memory.get::<f32>(y)?, first, "and again");
    Ok(first)
}

pub(crate) fn shape(ne: &[i64]) -> [i64; 4] {
    let mut full = [1; 4];
    full[..ne.len()].copy_from_slice(ne);
    full
}

/// Fails unless the device refuses the graph for this reason, and a scheduler over it and the CPU refuses it, too.
#[track_caller]
pub(crate) fn assert_refused(device: Device, graph: &Graph<'_>, reason: &str, i: usize) {
    let mut allocator = GraphAllocator::new(device.buffer_type());
    let mut backend = device.init().unwrap();
    let error = allocator.alloc(graph, &mut backend).err().unwrap_or_else(|| panic!("{i}: {reason}: allocated"));
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(reason), "{i}: {error}");
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let error = sched.alloc(graph).err().unwrap_or_else(|| panic!("{i}: {reason}: scheduled"));
    assert!(matches!(error, Error::Unsupported { .. }), "{i}: {error}");
}

/// Fails if the root mean square difference exceeds `tolerance`.
#[track_caller]
pub(crate) fn assert_close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let square = |n: f64| n * n;
    let size: f64 = want.iter().map(|&w| square(w)).sum();
    let error: f64 = got.iter().zip(want).map(|(&g, &w)| square(f64::from(g) - w)).sum();
    let tolerance = tolerance.max(testkit::device::rounding());
    assert!(size > 0.0 && (error / size).sqrt() < tolerance, "{what}: off by {}", (error / size).sqrt());
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}
