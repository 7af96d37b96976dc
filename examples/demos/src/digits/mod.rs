//! What the digit examples share: the data, its split into training and test images, and the shape of the network.

pub mod data;
pub mod forward;
pub mod model;
