//! CPU features and NUMA. Threads are set on a [`Backend`](crate::Backend).

pub use crate::backend::{Numa, is_numa, numa_init};
pub use crate::device::{Features, features};
