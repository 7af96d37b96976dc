//! An RPC server in this process.

use std::num::NonZeroUsize;

use anyhow::Result;
use ggml::Device;

/// ggml's name of a server's first device; `None` without the feature `rpc`.
pub const NAME: Option<&str> = if cfg!(feature = "rpc") { Some("RPC0") } else { None };

/// Starts a server in this process that serves the CPU, and connects to it.
///
/// # Errors
/// The server can't be started or connected to, or the feature `rpc` is off.
#[cfg(feature = "rpc")]
pub fn start(threads: NonZeroUsize) -> Result<Device> {
    use std::sync::OnceLock;

    use anyhow::Context as _;
    use ggml::rpc::{self, Connection, Server};

    /// Kept until the program ends, for its devices are.
    static KEPT: OnceLock<(Server, Connection)> = OnceLock::new();

    let server = Server::builder().threads(threads.get()).start()?;
    let connection = rpc::connect(&server.address().to_string())?;
    let (_, connection) = KEPT.get_or_init(|| (server, connection));
    connection.devices().first().copied().context("the RPC server offers no device")
}

/// Fails: this build has no servers.
#[cfg(not(feature = "rpc"))]
pub fn start(_: NonZeroUsize) -> Result<Device> {
    anyhow::bail!("RPC0 needs the crate's feature `rpc`")
}
