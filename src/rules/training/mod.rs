//! Which operations ggml's backward pass can differentiate.

mod derivable;
mod passes;

pub(crate) use derivable::check;
pub(super) use passes::Backward;
