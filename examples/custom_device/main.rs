//! An accelerator for matrix products, by the crate `gemm`. ggml's scheduler gives it those, and all else to the CPU; both
//! work in the same memory. Prints its speed beside that of ggml's CPU kernels, and of BLAS with the feature `blas`.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a program for people to read, small numbers")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
#![allow(clippy::indexing_slicing, clippy::missing_assert_message, reason = "a driver's panic is an error of ggml's")]

use std::time::{Duration, Instant};

use gemm::Parallelism;
use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, Operation};
use ggml::prelude::*;
use ggml::{Registry, ops::MulMatOptions};

/// The device. Products with a dimension below `least` aren't worth it.
#[derive(Clone, Copy)]
pub(crate) struct Gemm {
    pub(crate) least: i64,
}

impl Driver for Gemm {
    type Buffer = NoBuffer;
    type Stream = Self;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("gemm".into(), DeviceType::Accelerator).with_description("The crate gemm")
    }

    /// Products of matrices of `f32`, without gaps, that are worth it.
    fn supports(&self, node: &Node<'_, Self>) -> bool {
        let plain = |how: MulMatOptions| how.acc.is_none() && how.src.is_none() && !how.hadamard;
        let fits = |t: ggml::driver::TensorView<'_>| {
            t.dtype() == DType::F32
                && t.is_contiguous()
                && t.ne()[2..] == [1, 1]
                && t.ne()[0].min(t.ne()[1]) >= self.least
        };
        matches!(node.operation(), Ok(Operation::MulMat(how)) if plain(how)) && node.sources().all(|s| fits(s.tensor()))
    }

    fn stream(&self, _params: &str) -> Result<Self, Failure> {
        Ok(*self)
    }
}

impl DriverStream<Self> for Gemm {
    fn compute(&mut self, nodes: Nodes<'_, Self>) -> Result<(), Failure> {
        for mut node in nodes {
            // ggml's [k, m] times [k, n] is [m, n], the first dimension innermost: the transpose of `a`, times `b`.
            let [a, b] = [0, 1].map(|i| node.source(i).map_or([0; 4], |s| s.tensor().ne()).map(|n| n as usize));
            let ([k, m, ..], [_, n, ..]) = (a, b);
            node.on_host(|to, from| {
                let to = bytemuck::cast_slice_mut::<u8, f32>(to);
                let [a, b] = [from[0], from[1]].map(bytemuck::cast_slice::<u8, f32>);
                assert_eq!((to.len(), a.len(), b.len()), (m * n, k * m, k * n));
                let [m_, k_] = [m, k].map(usize::cast_signed);
                // SAFETY: the three matrices have the sizes that the strides reach (checked above).
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        to.as_mut_ptr(),
                        m_,
                        1,
                        false,
                        a.as_ptr(),
                        1,
                        k_,
                        b.as_ptr(),
                        k_,
                        1,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        Parallelism::Rayon(0),
                    );
                }
            })?;
        }
        Ok(())
    }
}

/// Multiplies matrices of `n` rows and columns on `device`. Returns the time, and some of the result.
fn time(device: Option<Device>, n: usize) -> ggml::Result<(Duration, Vec<f32>)> {
    let ctx = Context::new();
    let [a, b] = [ctx.input("a", DType::F32, [n, n])?, ctx.input("b", DType::F32, [n, n])?];
    let product = ctx.mul_mat(a, b)?;
    let graph = ctx.graph([ctx.relu(product)?, product])?;
    let mut builder = Sched::builder();
    if let Some(device) = device {
        builder = builder.backend(device.init()?);
    }
    let mut sched = builder.backend(Backend::cpu()?).build()?;
    let mut run = sched.alloc(&graph)?;
    let there = run.backend_of(product).map(Backend::device);
    assert!(device.is_none() || there == device, "the scheduler must give the product to {device:?}, not {there:?}");
    let values: Vec<_> = (0..n * n).map(|i| ((i * 31) % 17) as f32 - 8.0).collect();
    run.set(a, &values)?;
    run.set(b, &values)?;
    let mut best = Duration::MAX;
    for _ in 0..(4_usize << 20) / (n * n) + 3 {
        let start = Instant::now();
        run.compute()?;
        best = best.min(start.elapsed());
    }
    Ok((best, run.get(product)?))
}

fn main() -> ggml::Result<()> {
    let gemm = Registry::register("Gemm", [Gemm { least: 32 }])?.devices()?;
    let blas = Device::by_name("BLAS").ok();
    println!("GFLOP/s of a product of f32 matrices, and relu on the CPU, on {} threads", Backend::cpu()?.threads());
    println!("{:>6} {:>8} {:>8} {:>8}", "size", "gemm", "CPU", "BLAS");
    for n in [64, 256, 512, 1024] {
        let (own, values) = time(gemm.first().copied(), n)?;
        let (cpu, expected) = time(None, n)?;
        assert_eq!(values, expected, "whole numbers, which every order of summation gives exactly");
        let blas = blas.map(|blas| time(Some(blas), n)).transpose()?.map(|(blas, _)| blas);
        let speed = |t: Option<Duration>| match t {
            Some(t) => format!("{:.1}", 2.0 * (n as f64).powi(3) / t.as_secs_f64() / 1e9),
            None => "-".into(),
        };
        println!("{n:>6} {:>8} {:>8} {:>8}", speed(Some(own)), speed(Some(cpu)), speed(blas));
    }
    Ok(())
}
