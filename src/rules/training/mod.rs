//! Operations that ggml's backward pass can derive.

mod derivable;
mod passes;

pub(crate) use derivable::check;
