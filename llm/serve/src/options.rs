//! The command line.

use std::time::Duration;

use clap::Parser;
use ggml_llm::place::{ModelPlace, TemplateChoice};

/// Serve a language model over HTTP, with OpenAI's API
#[derive(Debug, Parser)]
#[command(
    name = "ggml-llm serve",
    after_help = "Examples:
  ggml-llm serve model.gguf --ctx 16384 --parallel 16
  ggml-llm serve model.gguf --host 0.0.0.0 --api-key-file key.txt
  ggml-llm serve large.gguf --rpc 192.168.0.2:50052 --rpc 192.168.0.3:50052

SIGTERM and Ctrl-C end the server after the answers under way, a second one at once."
)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) place: ModelPlace,
    #[command(flatten)]
    pub(crate) template: TemplateChoice,
    /// The address to listen at
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// The port to listen at; 0 for any that is free
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// The model's name for clients [default: the name of the file]
    #[arg(long)]
    pub(crate) alias: Option<String>,
    /// How many requests are computed at once; they share the tokens of --ctx
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) parallel: u8,
    /// How many requests may wait; others are refused
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) queue: u16,
    /// The most tokens of a chat's answer for which the client gives no limit
    #[arg(long, default_value_t = 1024)]
    pub(crate) max_tokens: usize,
    /// A request ends after so many seconds: as an error if it waits, with what it has if it answers
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// The most bytes of a request
    #[arg(long, default_value_t = 1 << 20)]
    pub(crate) body_limit: usize,
    /// The most connections at once; others wait
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,
    /// Seconds for answers under way after SIGTERM
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=86_400))]
    grace: u64,
    /// What clients must send as their key; /health needs none
    #[arg(long, env = "GGML_LLM_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// A file whose first line is the key
    #[arg(long, conflicts_with = "api_key")]
    pub(crate) api_key_file: Option<std::path::PathBuf>,
    /// Take names of special tokens in prompts of completions for these
    #[arg(long)]
    pub(crate) special: bool,
}

impl ServeArguments {
    pub(crate) fn time_limit(&self) -> Duration {
        Duration::from_secs(self.time_limit)
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }
}
