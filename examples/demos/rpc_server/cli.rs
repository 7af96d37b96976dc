//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use demos::threads;
use ggml::rpc::Limits;

const MORE: &str = "\
The first line of standard output is `listening on ADDRESS`. The following, one a minute, say who is connected, what they
hold and what was sent. RUST_LOG=ggml=info logs connections to standard error, and why a client was refused. SIGINT (Ctrl-C)
and SIGTERM end the server: it closes the connections, frees what clients hold, and exits with status 0.

Trust:
  Nothing that a client sends is believed: it can't crash this process, nor reach memory that isn't its own. But whoever can
  connect can use the devices, and without TLS nothing is encrypted. So only addresses of this machine and of private
  networks are used, unless --allow-plain or the files of TLS are given (built with `--features rpc-tls`: --tls-cert,
  --tls-key, --tls-ca).

Examples:
  rpc_server                                  serve the CPU to this machine, on port 50052
  rpc_server --host 192.168.0.7               serve it to a private network
  rpc_server --device Vulkan0,CPU             serve these two devices, in this order

Exit status:
  1  the server can't be started, see standard error
  2  the command line is invalid";

/// Serves devices of this machine to programs on other machines.
#[derive(Debug, Parser)]
#[command(name = "rpc_server", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Address to listen on, IPv4 or IPv6
    #[arg(short = 'H', long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,

    /// Port to listen on; 0 selects a free one
    #[arg(short, long, value_name = "PORT", default_value = "50052")]
    pub(crate) port: u16,

    /// Devices to serve, in this order [default: the CPU]
    #[arg(short, long = "device", value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,

    /// CPU threads for each client [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Keep the weights that clients upload in files, so that they need not be sent again [default folder: that of
    /// llama.cpp's server]
    #[arg(short, long, value_name = "FOLDER", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "an option whose value is optional")]
    pub(crate) cache: Option<Option<PathBuf>>,

    /// How many clients may be connected at a time
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<NonZeroUsize>,

    /// How much all clients together may hold [default: nine tenths of what is free]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u32>,

    /// How much each client may hold [default: as much as all together]
    #[arg(long, value_name = "MIB")]
    pub(crate) client_memory: Option<u32>,

    /// How long one computation may take
    #[arg(long, value_name = "SECONDS")]
    pub(crate) computation: Option<NonZeroU64>,

    /// How long a client may be silent between two requests
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle: Option<NonZeroU64>,

    /// How often to say who is connected
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub(crate) every: NonZeroU64,

    /// Say it in JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[cfg(feature = "rpc-tls")]
    #[command(flatten)]
    pub(crate) tls: TlsFiles,

    /// Listen on an address of a public network, although nothing is encrypted
    #[arg(long)]
    pub(crate) allow_plain: bool,

    /// List the devices of this machine and exit
    #[arg(long)]
    pub(crate) list: bool,
}

/// What TLS needs, in PEM files: all or none.
#[cfg(feature = "rpc-tls")]
#[derive(Debug, clap::Args)]
pub(crate) struct TlsFiles {
    /// Use TLS: file of the server's certificate, followed by those between it and its authority's
    #[arg(long = "tls-cert", value_name = "FILE", requires_all = ["key", "authorities"])]
    certificate: Option<PathBuf>,

    /// File of that certificate's private key
    #[arg(long = "tls-key", value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,

    /// File of the authorities whose clients are let in
    #[arg(long = "tls-ca", value_name = "FILE", requires = "certificate")]
    authorities: Option<PathBuf>,
}

#[cfg(feature = "rpc-tls")]
impl TlsFiles {
    /// The files' contents, if any are named.
    pub(crate) fn read(&self) -> Result<Option<ggml::rpc::Tls>> {
        let (Some(certificates), Some(key), Some(roots)) = (&self.certificate, &self.key, &self.authorities) else {
            return Ok(None);
        };
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("can't read {}", path.display()));
        Ok(Some(ggml::rpc::Tls::new(read(certificates)?, read(key)?, read(roots)?)?))
    }
}

impl Cli {
    pub(crate) fn address(&self) -> SocketAddr {
        (self.host, self.port).into()
    }

    /// The folder of the cache, if there is to be one.
    pub(crate) fn cache_folder(&self) -> Result<Option<PathBuf>> {
        match &self.cache {
            None => Ok(None),
            Some(Some(folder)) => Ok(Some(folder.clone())),
            Some(None) => {
                let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
                let llama = || {
                    let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
                    Some(base?.join("llama.cpp"))
                };
                let folder = variable("LLAMA_CACHE").or_else(llama);
                Ok(Some(folder.context("there is no home folder; name one with --cache FOLDER")?.join("rpc")))
            }
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::new();
        let bytes = |mib: u32| u64::from(mib) << 20;
        let seconds = |n: NonZeroU64| Duration::from_secs(n.get());
        if let Some(n) = self.connections {
            limits = limits.with_connections(n.get());
        }
        limits = limits.with_memory(self.memory.map(bytes)).with_client_memory(self.client_memory.map(bytes));
        if let Some(time) = self.computation {
            limits = limits.with_computation(seconds(time));
        }
        if let Some(time) = self.idle {
            limits = limits.with_idle(seconds(time));
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["rpc_server"].iter().chain(arguments))
    }

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn default_address_is_loopback() {
        let cli = parse(&[]).unwrap();
        assert_eq!(cli.address(), "127.0.0.1:50052".parse().unwrap());
        assert!(cli.devices.is_empty() && cli.cache_folder().unwrap().is_none() && !cli.list);
        assert_eq!(cli.limits(), Limits::new());
    }

    #[test]
    fn devices_keep_their_order() {
        assert_eq!(parse(&["--device", "Vulkan0", "--device", "CPU"]).unwrap().devices, ["Vulkan0", "CPU"]);
        assert_eq!(parse(&["-d", "Vulkan0,CPU"]).unwrap().devices, ["Vulkan0", "CPU"]);
    }

    #[test]
    fn options_are_those_of_the_server_of_ggml() {
        let cli = parse(&["-H", "::1", "-p", "7", "-t", "3", "-d", "CPU", "-c"]).unwrap();
        assert_eq!(cli.address(), "[::1]:7".parse().unwrap());
        assert_eq!((cli.threads.unwrap().get(), &cli.devices[..]), (3, &["CPU".to_owned()][..]));
        assert!(cli.cache_folder().unwrap().unwrap().ends_with("rpc"));
        let cli = parse(&["--cache", "here", "--memory", "5", "--client-memory", "2", "--idle", "9"]).unwrap();
        assert_eq!(cli.cache_folder().unwrap().unwrap(), PathBuf::from("here"));
        let limits = Limits::new().with_memory(5 << 20).with_client_memory(2 << 20);
        assert_eq!(cli.limits(), limits.with_idle(Duration::from_secs(9)));
    }

    #[test]
    fn cli_refuses_values_out_of_range() {
        #[cfg(feature = "rpc-tls")]
        for wrong in [&["--tls-cert", "a"][..], &["--tls-cert", "a", "--tls-key", "b"], &["--tls-ca", "c"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        for wrong in
            [["--host", "localhost"], ["--port", "65536"], ["--idle", "0"], ["--threads", "0"], ["--threads", "513"]]
        {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
