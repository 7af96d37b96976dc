//! The command line.

use std::num::NonZeroUsize;

use clap::Parser;
use demos::threads;

use crate::cluster::Mode;
use crate::model::Size;

const MORE: &str = "\
The servers are child processes of this program on the loopback interface. While they run, all programs of this machine can use
them.

Examples:
  rpc_cluster                             run a third of the layers on each of two servers and the CPU
  rpc_cluster --layers 12 --tokens 1      run a deeper network, one token per step
  rpc_cluster --tensor-parallel           run half of each layer on each of two servers

Exit status:
  0  the cluster's results equal the CPU's, the loss of a server was an error, and the other devices continued; the last
     line of standard output is the summary
  1  anything else; see standard error
  2  the command line is invalid";

/// Splits a network over two RPC servers and the CPU, then kills one of the servers.
#[derive(Debug, Parser)]
#[command(name = "rpc_cluster", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Split each layer over the servers, instead of distributing layers over servers and CPU
    #[arg(long)]
    pub(crate) tensor_parallel: bool,

    /// Connect to the servers by TLS, with a certificate that is made for this run
    #[cfg(feature = "rpc-tls")]
    #[arg(long)]
    pub(crate) tls: bool,

    /// Number of layers
    #[arg(long, value_name = "N", default_value = "6")]
    pub(crate) layers: NonZeroUsize,

    /// Embedding size
    #[arg(long, value_name = "N", default_value = "384")]
    pub(crate) width: NonZeroUsize,

    /// Tokens per step
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) tokens: NonZeroUsize,

    /// Steps, on the CPU and on the cluster
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) steps: NonZeroUsize,

    /// Threads of each process
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroUsize,

    /// Seed of the weights and tokens
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
}

impl Cli {
    /// How the network is distributed.
    pub(crate) fn mode(&self) -> Mode {
        if self.tensor_parallel { Mode::Tensors } else { Mode::Layers }
    }

    /// The network's size.
    pub(crate) fn size(&self) -> Size {
        Size { layers: self.layers.get(), width: self.width.get(), tokens: self.tokens.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cli_refuses_numbers_out_of_range() {
        for wrong in [["--layers", "0"], ["--steps", "-1"], ["--threads", "513"], ["--width", "x"]] {
            assert!(Cli::try_parse_from(["rpc_cluster"].iter().chain(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
