//! The command line.

use std::net::SocketAddrV4;
use std::num::NonZeroUsize;

use clap::Parser;

use crate::support::threads;

const MORE: &str = "\
The first line on standard output is `listening on ADDRESS`; what ggml says about its clients is logged to
standard error, with RUST_LOG=ggml=info. The server runs until it is killed, and serves one client at a time.

Trust:
  ggml's protocol has neither authentication nor encryption, and its server believes what it is sent: whoever can connect
  can crash this process, and take it over. Loopback addresses can be reached by all programs of this machine, others by
  whoever the network lets through.

Examples:
  rpc_server                                  serve the CPU to this machine, on port 50052
  rpc_server --address 192.168.0.7:50052      serve it to a network that is trusted
  rpc_server --device Vulkan0 --device CPU    serve these two devices, in this order

Exit status:
  1  the server could not be started, or a client brought it down; standard error says why
  2  the command line was wrong";

/// Serves devices of this machine to programs on others.
#[derive(Debug, Parser)]
#[command(name = "rpc_server", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Where to listen, over IPv4; port 0 takes any that is free
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50052")]
    pub(crate) address: SocketAddrV4,

    /// A device to serve, in the order of the options; the CPU if there is none
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,

    /// Threads of the CPU [default: as many as it has]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// List the devices of this machine, and serve none
    #[arg(long)]
    pub(crate) list: bool,
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
        assert!(cli.address.ip().is_loopback() && cli.devices.is_empty() && !cli.list);
    }

    #[test]
    fn devices_keep_their_order() {
        assert_eq!(parse(&["--device", "Vulkan0", "--device", "CPU"]).unwrap().devices, ["Vulkan0", "CPU"]);
    }

    #[test]
    fn cli_refuses_values_out_of_range() {
        for wrong in [["--address", "localhost"], ["--address", "[::1]:1"], ["--threads", "0"], ["--threads", "513"]] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
