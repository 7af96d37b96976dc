//! RPC servers that have layers.

use std::sync::Mutex;

use anyhow::{Context as _, Result};
use ggml::Device;
use ggml::rpc::{self, Connection, Options};

/// The connections, which last as long as the program.
static CONNECTIONS: Mutex<Vec<Connection>> = Mutex::new(Vec::new());

/// The devices of the servers at these addresses, except for servers that were lost.
pub(super) fn devices(addresses: &[String], options: &Options) -> Result<Vec<Device>> {
    let mut connections = CONNECTIONS.lock().ok().context("a thread panicked")?;
    let mut devices = Vec::new();
    for address in addresses {
        if connections.iter().all(|c| c.endpoint() != address) {
            connections.push(rpc::connect_with(address, options)?);
        }
        let connection = connections.iter().find(|c| c.endpoint() == address);
        devices.extend(connection.filter(|c| c.check().is_ok()).into_iter().flat_map(Connection::devices));
    }
    Ok(devices)
}
