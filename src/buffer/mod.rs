//! Memory on devices: buffers, buffer types and pinned host memory.

pub(crate) mod extra;
mod info;
mod pinned;
mod raw;

pub use crate::device::BufferType;
pub use info::BufferUsage;
pub use pinned::Pinned;
pub use raw::Buffer;

pub(crate) use crate::device::{check_alive, fills_words, out_of_memory, type_of};
pub(crate) use raw::host_alignment;
