//! RPC servers that have layers.

use std::sync::Mutex;

use anyhow::{Context as _, Result};
use ggml::Device;
use ggml::rpc::{self, Connection, Options};

/// The best device before any server was connected to, and the connections, which last as long as the program.
static KNOWN: Mutex<(Option<Device>, Vec<Connection>)> = Mutex::new((None, Vec::new()));

/// The devices of the servers at these addresses, except for servers that were lost. If no device is left, and there are no
/// `others`, this machine's best one.
pub(super) fn devices(addresses: &[String], options: &Options, others: bool) -> Result<Vec<Device>> {
    let mut known = KNOWN.lock().ok().context("a thread panicked")?;
    let (local, connections) = &mut *known;
    let local = match *local {
        Some(device) => device,
        // The devices of servers count as GPUs, those of lost ones too, so they would be the best later.
        None => *local.insert(Device::best()?),
    };
    let mut devices = Vec::new();
    for address in addresses {
        if connections.iter().all(|c| c.endpoint() != address) {
            connections.push(rpc::connect_with(address, options)?);
        }
        let connection = connections.iter().find(|c| c.endpoint() == address);
        devices.extend(connection.filter(|c| c.check().is_ok()).into_iter().flat_map(Connection::devices));
    }
    if devices.is_empty() && !others && !addresses.is_empty() {
        devices.push(local);
    }
    Ok(devices)
}
