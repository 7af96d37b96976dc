//! Files for connections by TLS.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use ggml::rpc::Tls;

/// What TLS needs, in PEM files: all or none.
#[derive(Debug, clap::Args)]
pub(super) struct TlsFiles {
    /// Connect to RPC servers by TLS: file of this program's certificate, followed by those between it and its authority's
    #[arg(long = "rpc-cert", value_name = "FILE", requires_all = ["key", "authorities", "rpc"])]
    certificate: Option<PathBuf>,
    /// File of that certificate's private key
    #[arg(long = "rpc-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// File of the authorities of the servers' certificates
    #[arg(long = "rpc-ca", value_name = "FILE", requires = "certificate")]
    authorities: Option<PathBuf>,
}

impl TlsFiles {
    /// The files' contents, if any are named.
    pub(super) fn read(&self) -> Result<Option<Tls>> {
        let (Some(certificates), Some(key), Some(roots)) = (&self.certificate, &self.key, &self.authorities) else {
            return Ok(None);
        };
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("can't read {}", path.display()));
        Ok(Some(Tls::new(read(certificates)?, read(key)?, read(roots)?)?))
    }
}
