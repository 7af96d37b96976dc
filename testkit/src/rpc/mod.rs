//! Helpers for the tests of the safe API over RPC.

pub mod raw;

use ggml::rpc::Connection;
use ggml::{Backend, DType, Result, Sched, Weights, WeightsBuilder};

/// A scheduler for the connection's first device.
pub fn sched(connection: &Connection) -> Result<Sched> {
    Sched::builder().backend(connection.devices()[0].init()?).backend(Backend::cpu()?).build()
}

/// One number on the connection's first device.
pub fn weights(connection: &Connection, value: f32) -> Result<Weights> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [1])?;
    let mut weights = builder.place(connection.devices()[0].buffer_type())?;
    weights.set("w", &[value])?;
    Ok(weights)
}
