//! The command line.

use std::num::NonZeroUsize;

use clap::Parser;

use crate::cluster::Mode;
use crate::model::Size;
use crate::support::threads;

const MORE: &str = "\
The servers are this program again, in processes of their own, on the loopback interface. They trust all programs of this
machine while they run.

Examples:
  rpc_cluster                             two servers and the CPU, a third of the layers each
  rpc_cluster --layers 12 --tokens 1      a deeper network, one token at a time
  rpc_cluster --tensor-parallel           half of each layer on each of the two servers

Exit status:
  0  the cluster computed what the CPU does alone, the loss of a server was an error, and the rest went on; the last line on
     standard output sums it up
  1  something else happened; standard error says what
  2  the command line was wrong";

/// Splits a network over two RPC servers and the CPU, then kills one of the servers.
#[derive(Debug, Parser)]
#[command(name = "rpc_cluster", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Divide each layer among the servers, rather than the layers among servers and CPU
    #[arg(long)]
    pub(crate) tensor_parallel: bool,

    /// Layers of the network
    #[arg(long, value_name = "N", default_value = "6")]
    pub(crate) layers: NonZeroUsize,

    /// Numbers that a layer takes and gives for each token
    #[arg(long, value_name = "N", default_value = "384")]
    pub(crate) width: NonZeroUsize,

    /// Tokens that go through the network at once
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) tokens: NonZeroUsize,

    /// Steps of so many tokens, on the CPU and on the cluster each
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) steps: NonZeroUsize,

    /// Threads of each process
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroUsize,

    /// What the weights and the tokens are drawn by
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
}

impl Cli {
    /// How the network is spread.
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
