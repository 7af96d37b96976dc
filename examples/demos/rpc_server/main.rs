//! Serves devices of this machine over ggml's RPC protocol.
//!
//! ```text
//! cargo run --release --example rpc_server
//! cargo run --release --example rpc_server -- --help
//! ```

mod cli;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use ggml::Device;
use ggml::rpc::Server;

use cli::Cli;

fn main() -> ExitCode {
    demos::run(|| run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    if cli.list {
        return list(&mut io::stdout());
    }
    let mut out = own_output()?;
    let server = serve(cli, &mut io::stderr())?;
    writeln!(out, "listening on {}", server.address())?;
    out.flush()?;
    Err(server.wait()).context("the server ended")
}

/// Starts the server, after a warning if the address is reachable from other machines.
fn serve(cli: &Cli, warnings: &mut impl Write) -> Result<Server> {
    let devices = cli.devices.iter().map(|name| device(name)).collect::<Result<Vec<_>>>()?;
    if !cli.address.ip().is_loopback() {
        writeln!(
            warnings,
            "warning: {} can be reached from other machines, and ggml's protocol has neither authentication nor \
             encryption: whoever can connect can take this process over. Serve networks only where you trust everyone",
            cli.address
        )?;
    }
    let mut server = Server::builder().address(cli.address).devices(devices);
    if let Some(threads) = cli.threads {
        server = server.threads(threads);
    }
    // SAFETY: the user chooses the address, and so whom to trust; the help and the warning explain the risk.
    let server = unsafe { server.start() };
    Ok(server?)
}

fn device(name: &str) -> Result<Device> {
    Device::by_name(name).with_context(|| format!("can't serve `{name}`; --list shows what can be served"))
}

fn list(out: &mut impl Write) -> Result<()> {
    for device in Device::all()? {
        let memory = device.memory()?;
        let (free, total) = (memory.free >> 20, memory.total >> 20);
        writeln!(out, "{}: {} ({total} MiB, {free} MiB free)", device.name(), device.description())?;
    }
    Ok(())
}

/// Returns the standard output for this program alone: ggml's own output is redirected to standard error.
#[cfg(unix)]
fn own_output() -> Result<impl Write> {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    let own = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(own)
}

/// The standard output, which ggml prints to as well.
#[cfg(not(unix))]
fn own_output() -> Result<impl Write> {
    Ok(io::stdout())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn cli(arguments: &[&str]) -> Cli {
        Cli::try_parse_from(["rpc_server"].iter().chain(arguments)).unwrap()
    }

    #[test]
    fn server_accepts_a_connection() {
        let mut warnings = Vec::new();
        let cli = cli(&["--address", "127.0.0.1:0", "--device", "CPU", "--device", "cpu", "--threads", "1"]);
        let server = serve(&cli, &mut warnings).unwrap();
        let connection = ggml::rpc::connect(&server.address().to_string()).unwrap();
        assert_eq!(connection.devices().len(), 2);
        assert!(warnings.is_empty());
    }

    #[test]
    fn serve_error_names_the_port_in_use() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = format!("{:#}", serve(&cli(&["--address", &address]), &mut Vec::new()).unwrap_err());
        assert!(error.contains(&address) && error.contains("in use"), "{error}");
    }

    #[test]
    fn serve_warns_of_other_machines() {
        let mut warnings = Vec::new();
        // This address is reserved for documentation: listening on it always fails.
        let error = serve(&cli(&["--address", "192.0.2.1:0"]), &mut warnings).unwrap_err();
        assert!(format!("{error:#}").contains("192.0.2.1"), "{error:#}");
        let warnings = String::from_utf8(warnings).unwrap();
        assert!(warnings.contains("neither authentication nor encryption"), "{warnings}");
    }

    #[test]
    fn unknown_device_error_mentions_list() {
        let error = format!("{:#}", serve(&cli(&["--device", "CUDA77"]), &mut Vec::new()).unwrap_err());
        assert!(error.contains("CUDA77") && error.contains("--list"), "{error}");
    }

    #[test]
    fn list_shows_the_cpu() {
        let mut out = Vec::new();
        list(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("CPU: "));
    }
}
