//! A computation that ends with an exception, in a process with too little memory.

#![cfg(target_os = "linux")]
#![cfg(test)]

use std::process::Command;

use ggml::prelude::*;
use ggml::{Error, GraphAllocator};

/// The number of experts, of tokens, and of indices per token.
const EXPERTS: usize = 1 << 14;
const TOKENS: usize = 1 << 7;

const NAME: &str = "h92_interrupted_backend_is_poisoned";

/// A CPU backend frees its work buffer before it allocates a larger one, and keeps a dangling pointer if that fails.
#[test]
fn h92_interrupted_backend_is_poisoned() {
    const CHILD: &str = "GGML_TEST_INTERRUPTED";
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        return;
    }
    let ctx = Context::new();
    let [e, n] = [EXPERTS, TOKENS].map(|n| i64::try_from(n).unwrap());
    let experts = ctx.input("experts", DType::F32, [1, 1, e]).unwrap();
    let rows = ctx.input("rows", DType::F32, [1, 1, n]).unwrap();
    let ids = ctx.input("ids", DType::I32, [n, n]).unwrap();
    // The kernel's table has 8 bytes per expert and index: 2 GiB.
    let y = ctx.mul_mat_id(experts, rows, ids).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut one = Backend::cpu().unwrap();
    one.set_threads(1).unwrap();
    let mut memory = allocator.alloc(&graph, &mut one).unwrap();
    memory.set(experts, &vec![1.0_f32; EXPERTS]).unwrap();
    memory.set(rows, &[1.0_f32; TOKENS]).unwrap();
    let different: Vec<i32> = (0..TOKENS).flat_map(|_| 0..i32::try_from(n).unwrap()).collect();
    memory.set(ids, &different).unwrap();

    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|l| l.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live structure that the call writes to.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }, 0);
    let tight = libc::rlimit { rlim_cur: (size.unwrap() + (1 << 20)) * 1024, ..limit };
    // SAFETY: `tight` is a live structure that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const tight) }, 0);
    let result = memory.compute();
    assert!(matches!(result, Err(Error::Exception { .. })), "{result:?}");
    assert!(matches!(memory.get::<f32>(y), Err(Error::NotComputed { .. })));
    assert!(matches!(memory.compute(), Err(Error::Poisoned { .. })), "it is not used again");
    drop(memory);
    assert!(matches!(one.synchronize(), Err(Error::Poisoned { .. })), "nobody knows what it was doing");
    assert!(matches!(allocator.alloc(&graph, &mut one), Err(Error::Poisoned { .. })), "nor for another allocation");

    // A new backend works within the same limit.
    let small = ctx.graph([ctx.neg(rows).unwrap()]).unwrap();
    let mut other = Backend::cpu().unwrap();
    let mut memory = allocator.alloc(&small, &mut other).unwrap();
    memory.set(rows, &[1.0_f32; TOKENS]).unwrap();
    memory.compute().unwrap();
}
