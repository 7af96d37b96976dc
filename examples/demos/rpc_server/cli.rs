//! The command line.

use std::net::SocketAddrV4;
use std::num::NonZeroUsize;

use clap::Parser;
use demos::threads;

const MORE: &str = "\
The first line of standard output is `listening on ADDRESS`. RUST_LOG=ggml=info logs connections to standard error. The
server runs until it is killed, and serves one client at a time.

Trust:
  ggml's protocol has neither authentication nor encryption, and its server does not validate requests: whoever can connect
  can crash this process or take it over. Loopback addresses are reachable by all programs of this machine, other addresses
  by everyone whom the network lets through.

Examples:
  rpc_server                                  serve the CPU to this machine, on port 50052
  rpc_server --address 192.168.0.7:50052      serve it to a trusted network
  rpc_server --device Vulkan0 --device CPU    serve these two devices, in this order

Exit status:
  1  the server can't be started, or a client crashed it; see standard error
  2  the command line is invalid";

/// Serves devices of this machine to programs on other machines.
#[derive(Debug, Parser)]
#[command(name = "rpc_server", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// IPv4 address to listen on; port 0 selects a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:50052")]
    pub(crate) address: SocketAddrV4,

    /// Device to serve; may be repeated [default: the CPU]
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,

    /// CPU threads [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// List the devices of this machine and exit
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
