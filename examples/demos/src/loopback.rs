//! An RPC server in this process.

use std::num::NonZeroUsize;

use anyhow::Result;
use ggml::Device;

/// What ggml calls the first device on a server; none without the crate's feature `rpc`.
pub const NAME: Option<&str> = if cfg!(feature = "rpc") { Some("RPC0") } else { None };

/// Starts a server of the CPU in this process, and connects to it.
///
/// # Errors
/// Where that fails, or this build can't.
#[cfg(feature = "rpc")]
pub fn start(threads: NonZeroUsize) -> Result<Device> {
    use std::sync::OnceLock;

    use anyhow::Context as _;
    use ggml::rpc::{self, Connection, Server};

    /// Never dropped: a server that loses its client says so on the standard output, where the last line has to be ours.
    static CONNECTION: OnceLock<Connection> = OnceLock::new();

    let server = Server::builder().threads(threads);
    // SAFETY: it listens to this machine only, for as long as this program runs; of that machine's other programs a demo
    // can only assume, as its help says, that they leave the server alone.
    let server = unsafe { server.start() }?;
    let connection = rpc::connect(&server.address().to_string())?;
    let connection = CONNECTION.get_or_init(|| connection);
    connection.devices().first().copied().context("the RPC server offers no device")
}

/// Fails: this build has no servers.
#[cfg(not(feature = "rpc"))]
pub fn start(_: NonZeroUsize) -> Result<Device> {
    anyhow::bail!("RPC0 needs the crate's feature `rpc`")
}
