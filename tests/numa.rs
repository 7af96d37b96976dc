//! Initialising NUMA support, which is possible only once per process.

#![cfg(test)]

use ggml::Threads;
use ggml::cpu::{self, Numa};
use ggml::prelude::*;

#[test]
fn numa_init_succeeds_once_before_any_backend() {
    assert!(!cpu::is_numa().unwrap(), "nobody has counted them");
    cpu::numa_init(Numa::Distribute).unwrap();
    let again = cpu::numa_init(Numa::Distribute);
    assert!(matches!(again, Err(Error::Unsupported { .. })), "{again:?}");
    let nodes = (0..8).take_while(|n| std::fs::exists(format!("/sys/devices/system/node/node{n}")).unwrap()).count();
    assert_eq!(cpu::is_numa().unwrap(), nodes > 1, "{nodes} nodes");

    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [64, 64]).unwrap();
    let y = ctx.mul_mat(x, x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(Threads::new(2).with_all(true)).unwrap();
    let mut sched = Sched::builder().backend(backend).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 64 * 64]).unwrap();
    run.compute().unwrap();
    assert!(run.get::<f32>(y).unwrap().iter().all(|y| y.to_bits() == 64.0_f32.to_bits()), "it computes");
}
