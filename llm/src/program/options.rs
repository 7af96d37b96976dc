//! Options that several commands have.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use ggml::{DType, Device};
use ggml_llm::text::{Sampler, SamplerOptions};
use ggml_llm::{Model, ModelOptions, Session, SessionOptions, SplitMode};

use super::progress::Progress;

/// The model, and where it is computed.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// A GGUF file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) devices: Devices,
}

/// The devices, and how they compute.
#[derive(Debug, clap::Args)]
pub(crate) struct Devices {
    /// A device that gets layers; several share them in this order [default: the best one]
    #[arg(long)]
    device: Vec<String>,
    /// An RPC server, whose devices get layers after the others; when it is lost, the rest goes on without it
    #[cfg(feature = "rpc")]
    #[arg(long, value_name = "HOST:PORT")]
    rpc: Vec<String>,
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
    pub(crate) ctx: usize,
    /// The number of tokens computed at once
    #[arg(long, default_value_t = 512)]
    pub(crate) batch: usize,
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

impl Place {
    pub(crate) fn load(&self) -> Result<Arc<Model>> {
        self.devices.load(&self.file)
    }
}

impl Devices {
    /// Loads a model, and shows how far that is on a terminal.
    pub(crate) fn load(&self, file: &std::path::Path) -> Result<Arc<Model>> {
        let mut options = ModelOptions::default();
        options.devices = self.device.iter().map(|name| Device::by_name(name)).collect::<ggml::Result<_>>()?;
        let servers = self.servers()?;
        options.devices.extend(&servers);
        // Parts for devices that are lost have no meaning.
        if !self.can_lose() || self.split.len() == options.devices.len() {
            options.split.clone_from(&self.split);
        }
        if self.tensor_parallel {
            options.split_mode = SplitMode::Tensor;
        }
        (options.kernels, options.repack) = (!self.ggml_kernels, !self.no_repack);
        let mut progress = Progress::new("loading");
        Ok(Model::load_with(file, &options, &mut |done, total| progress.show(done, total))?)
    }

    /// The devices of all servers that aren't lost.
    #[cfg_attr(not(feature = "rpc"), expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "no servers"))]
    fn servers(&self) -> Result<Vec<Device>> {
        #[cfg(feature = "rpc")]
        return super::servers::devices(&self.rpc);
        #[cfg(not(feature = "rpc"))]
        Ok(Vec::new())
    }

    /// Whether a device can be lost while others go on.
    #[cfg_attr(not(feature = "rpc"), expect(clippy::unused_self, reason = "no servers"))]
    pub(crate) fn can_lose(&self) -> bool {
        #[cfg(feature = "rpc")]
        return !self.rpc.is_empty();
        #[cfg(not(feature = "rpc"))]
        false
    }

    pub(crate) fn session(&self, model: Arc<Model>, n_seq: usize) -> Result<Session> {
        let mut options = SessionOptions::default();
        options.n_ctx = self.ctx;
        options.n_seq = n_seq;
        options.n_batch = self.batch;
        options.threads = self.threads;
        options.cache = self.cache.parse::<DType>().context("--cache")?;
        Ok(Session::new(model, &options)?)
    }
}

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
pub(crate) struct Sampling {
    /// Above 0, tokens are drawn: the higher, the more different from one another
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Draw from so many of the likeliest tokens; 0 for all
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Draw from the likeliest tokens that have this probability together
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Draw from tokens at least this times as likely as the likeliest
    #[arg(long, default_value_t = 0.05)]
    min_p: f32,
    /// Makes tokens that came before less likely; 1 for not at all
    #[arg(long, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Decides what is drawn
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Sampling {
    pub(crate) fn sampler(&self) -> Result<Sampler> {
        let options = SamplerOptions::new()
            .with_temperature(self.temperature)
            .with_top_k(self.top_k)
            .with_top_p(self.top_p)
            .with_min_p(self.min_p)
            .with_repeat_penalty(self.repeat_penalty)
            .with_seed(self.seed);
        Ok(Sampler::new(options)?)
    }
}
