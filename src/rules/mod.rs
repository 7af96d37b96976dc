//! Which operations may run, by backend: every table in one place.

pub(crate) mod cpu;
pub(crate) mod indices;
pub(crate) mod meta;
pub(crate) mod run;
pub(crate) mod training;

mod blas;
mod vulkan;
