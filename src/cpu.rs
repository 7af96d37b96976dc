//! What the CPU backend was built for, and how it minds a processor's memories. Its threads are a
//! [`Backend`](crate::Backend)'s.

pub use crate::backend::{Numa, is_numa, numa_init};
pub use crate::device::{Features, features};
