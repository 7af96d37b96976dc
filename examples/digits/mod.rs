//! Code that the digit examples share: the data set, its split, and the network.
//!
//! This is not an example; `sched_demo` and `digits_train` include it.

pub(crate) mod data;
pub(crate) mod forward;
pub(crate) mod model;
