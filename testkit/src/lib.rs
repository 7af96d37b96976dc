//! What tests and benchmarks share: references in 64-bit floats, inputs with values, servers in processes of their own, and
//! an allocator that counts.

#![allow(clippy::indexing_slicing, clippy::missing_errors_doc, reason = "a test fails by panicking, and prints")]
#![allow(clippy::missing_assert_message, clippy::missing_panics_doc, reason = "a test fails by panicking, and prints")]
#![allow(clippy::panic, clippy::print_stderr, clippy::unwrap_used, reason = "a test fails by panicking, and prints")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small numbers")]
#![allow(clippy::cast_sign_loss, reason = "small numbers")]
#![allow(clippy::must_use_candidate, reason = "private")]
#![allow(clippy::return_self_not_must_use, missing_debug_implementations, missing_docs, reason = "private")]
#![allow(clippy::float_cmp, clippy::cast_precision_loss, reason = "small numbers, exact results")]

pub mod array;
pub mod bench;
pub mod blocks;
pub mod cases;
pub mod counted;
pub mod device;
mod e4m3;
pub mod encode;
mod erf;
pub mod fake_gpu;
pub mod host_cpu;
mod kernels;
pub mod layout;
pub mod network;
pub mod nothing;
#[cfg(feature = "rpc")]
pub mod rpc;
#[cfg(feature = "rpc")]
pub mod server;
pub mod trials;

pub use erf::{erf, gelu_erf};

/// Asserts that training, given a seed and a number of threads, is decided by the seed alone.
pub fn assert_seed_decides<T: PartialEq>(trained: impl Fn(u64, usize) -> T) {
    let one = trained(1, 1);
    assert!(trained(1, 1) == one, "not the same again");
    assert!(trained(1, 2) == one, "not the same on two threads");
    assert!(trained(2, 1) != one, "the same for another seed");
}
