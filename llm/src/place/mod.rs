//! Where programs compute a model: options of their command lines, for [`clap`].
//!
//! A program flattens [`ModelPlace`] into its own arguments.

mod chat;
mod progress;
#[cfg(feature = "rpc")]
mod servers;
#[cfg(feature = "rpc-tls")]
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "rpc")]
use std::time::Duration;

use anyhow::{Context as _, Result};
use ggml::{DType, Device};

use crate::error::Error;
use crate::model::Model;
use crate::placing::{ModelOptions, SplitMode};
use crate::session::{Session, SessionOptions};

pub use chat::TemplateChoice;
pub use progress::Progress;

/// The model, and where it is computed.
#[derive(Debug, clap::Args)]
pub struct ModelPlace {
    /// A GGUF file
    pub file: PathBuf,
    /// Where it is computed.
    #[command(flatten)]
    pub devices: Devices,
}

/// The devices, and how they compute.
#[derive(Debug, clap::Args)]
pub struct Devices {
    /// A device that gets layers; several share them in this order [default: the best one]
    #[arg(long)]
    device: Vec<String>,
    /// An RPC server, whose devices get layers after the others; when it is lost, the rest goes on without it
    #[cfg(feature = "rpc")]
    #[arg(long, value_name = "HOST:PORT")]
    rpc: Vec<String>,
    /// A server that is silent for so many seconds while it computes or answers is lost
    #[cfg(feature = "rpc")]
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    rpc_timeout: u64,
    /// What connections to these servers show, if they use TLS.
    #[cfg(feature = "rpc-tls")]
    #[command(flatten)]
    tls: tls::TlsFiles,
    /// How many parts of the layers, or of each layer, every device gets, such as 3,1
    #[arg(long, value_delimiter = ',')]
    split: Vec<u32>,
    /// Divide each layer among the devices, instead of the layers; for llama, qwen2, qwen3 and gemma3
    #[arg(long)]
    tensor_parallel: bool,
    /// CPU threads [default: as many as there are processors]
    #[arg(long, short, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// The number of tokens that fit [default: what the model was trained for, 4096 at most]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub ctx: usize,
    /// The number of tokens computed at once
    #[arg(long, default_value_t = 512)]
    pub batch: usize,
    /// The type of keys and values
    #[arg(long, default_value = "f16")]
    cache: String,
    /// Compute with ggml's kernels only
    #[arg(long)]
    ggml_kernels: bool,
    /// Leave weights in the order of the file
    #[arg(long)]
    no_repack: bool,
}

impl ModelPlace {
    /// Loads the model.
    ///
    /// # Errors
    ///
    /// As [`Devices::load`].
    pub fn load(&self) -> Result<Arc<Model>> {
        self.devices.load(&self.file)
    }

    /// Loads the model, and makes a session of so many sequences. Where a server is lost meanwhile, the model is loaded to what
    /// is left.
    ///
    /// # Errors
    ///
    /// As [`Devices::load`] and [`Devices::session`].
    pub fn load_session(&self, n_seq: usize) -> Result<Session> {
        loop {
            match self.load().and_then(|model| self.devices.session(model, n_seq)) {
                // A server is lost once, so this ends.
                Err(error) if is_loss(&error) => {}
                result => return result,
            }
        }
    }
}

/// Whether an RPC server was lost.
fn is_loss(error: &anyhow::Error) -> bool {
    let lost = |error: &ggml::Error| matches!(error, ggml::Error::RpcLost { .. });
    error.downcast_ref().is_some_and(lost)
        || error.downcast_ref().is_some_and(|error| matches!(error, Error::Ggml(error) if lost(error)))
}

impl Devices {
    /// Loads a model, and shows how far that is on a terminal.
    ///
    /// # Errors
    ///
    /// If there is no such device, a server can't be reached, or as [`Model::load`].
    pub fn load(&self, file: &std::path::Path) -> Result<Arc<Model>> {
        let mut devices = self.device.iter().map(|name| Device::by_name(name)).collect::<ggml::Result<Vec<_>>>()?;
        devices.extend(self.servers()?);
        // Parts for devices that are lost have no meaning.
        let split = if !self.can_lose() || self.split.len() == devices.len() { self.split.clone() } else { Vec::new() };
        let split_mode = if self.tensor_parallel { SplitMode::Tensor } else { SplitMode::default() };
        let (kernels, repack) = (!self.ggml_kernels, !self.no_repack);
        let options = ModelOptions { devices, split, split_mode, kernels, repack, ..ModelOptions::default() };
        let mut progress = Progress::new("loading");
        Ok(Model::load_with(file, &options, &mut |done, total| progress.show(done, total))?)
    }

    /// The devices of all servers that aren't lost; this machine's best one if there would be no device.
    #[cfg_attr(not(feature = "rpc"), expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "no servers"))]
    fn servers(&self) -> Result<Vec<Device>> {
        #[cfg(feature = "rpc")]
        return servers::devices(&self.rpc, &self.connection()?, !self.device.is_empty());
        #[cfg(not(feature = "rpc"))]
        Ok(Vec::new())
    }

    /// How servers are connected to.
    #[cfg(feature = "rpc")]
    #[cfg_attr(not(feature = "rpc-tls"), expect(clippy::unnecessary_wraps, reason = "no files"))]
    fn connection(&self) -> Result<ggml::rpc::Options> {
        let options = ggml::rpc::Options::new().with_answer_timeout(Duration::from_secs(self.rpc_timeout));
        #[cfg(feature = "rpc-tls")]
        let options = options.with_tls(self.tls.read()?);
        Ok(options)
    }

    /// Whether a device can be lost while others go on.
    pub fn can_lose(&self) -> bool {
        #[cfg(feature = "rpc")]
        return !self.rpc.is_empty();
        #[cfg(not(feature = "rpc"))]
        false
    }

    /// A session with these sizes.
    ///
    /// # Errors
    ///
    /// If there is no such type of keys and values, or as [`Session::new`].
    pub fn session(&self, model: Arc<Model>, n_seq: usize) -> Result<Session> {
        let cache = self.cache.parse::<DType>().context("--cache")?;
        let Self { ctx: n_ctx, batch: n_batch, threads, .. } = *self;
        let options = SessionOptions { n_ctx, n_seq, n_batch, cache, threads };
        Ok(Session::new(model, &options)?)
    }
}
