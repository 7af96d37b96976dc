//! What the digit examples share: the data, its split into training and test images, and the shape of the network.
//!
//! It is no example of its own; `sched_demo` and `digits_train` include it.

pub(crate) mod data;
pub(crate) mod forward;
pub(crate) mod model;
