//! Serves devices of this machine over ggml's RPC protocol.
//!
//! ```text
//! cargo run --release --example rpc_server
//! cargo run --release --example rpc_server -- --help
//! ```

mod cli;
mod report;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use ggml::Device;
use ggml::rpc::{Server, Stop};

use cli::Cli;

fn main() -> ExitCode {
    demos::run(|| run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    if cli.list {
        return list(&mut io::stdout());
    }
    let mut out = own_output()?;
    let (signal, signals) = channel();
    // Before the server starts, so that no signal finds it without.
    let pass_on = move || {
        // It fails when the program ends already.
        let _passed = signal.send(());
    };
    ctrlc::set_handler(pass_on).context("can't take the signals that end a program")?;
    let server = serve(cli)?;
    writeln!(out, "listening on {}", server.address())?;
    out.flush()?;
    let every = Duration::from_secs(cli.every.get());
    while signals.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        writeln!(out, "{}", report::line(&server.clients(), server.held(), cli.json))?;
        out.flush()?;
    }
    let clients = server.clients().len();
    server.stop(Stop::Now);
    writeln!(io::stderr(), "stopped, with {clients} clients")?;
    Ok(())
}

fn serve(cli: &Cli) -> Result<Server> {
    let devices = cli.devices.iter().map(|name| device(name)).collect::<Result<Vec<_>>>()?;
    let mut server = Server::builder().address(cli.address()).devices(devices).limits(cli.limits());
    server = server.allow_plain(cli.allow_plain);
    if let Some(threads) = cli.threads {
        server = server.threads(threads.get());
    }
    #[cfg(feature = "rpc-tls")]
    {
        server = server.tls(cli.tls.read()?);
    }
    if let Some(folder) = cli.cache_folder()? {
        server = server.cache(folder);
    }
    Ok(server.start()?)
}

fn device(name: &str) -> Result<Device> {
    Device::by_name(name).with_context(|| format!("can't serve `{name}`; --list shows what can be served"))
}

fn list(out: &mut impl Write) -> Result<()> {
    // Devices of other servers can't be served.
    let is_local = |device: &Device| device.registry().is_none_or(|registry| !registry.name().starts_with("RPC"));
    for device in Device::all()?.into_iter().filter(is_local) {
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
        let cli = cli(&["--port", "0", "--device", "CPU", "--device", "cpu", "--threads", "1"]);
        let server = serve(&cli).unwrap();
        let connection = ggml::rpc::connect(&server.address().to_string()).unwrap();
        assert_eq!(connection.devices().len(), 2);
    }

    #[test]
    fn serve_error_names_the_port_in_use() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = format!("{:#}", serve(&cli(&["--port", &address.port().to_string()])).unwrap_err());
        let address = address.to_string();
        assert!(error.contains(&address) && error.contains("in use"), "{error}");
    }

    #[test]
    fn public_addresses_must_be_allowed() {
        // This address is reserved for documentation: listening on it always fails.
        let public = ["--host", "192.0.2.1", "--port", "0", "--allow-plain"];
        let refused = format!("{:#}", serve(&cli(&public[..4])).unwrap_err());
        assert!(refused.contains("192.0.2.1") && refused.contains("allow_plain"), "{refused}");
        let error = format!("{:#}", serve(&cli(&public)).unwrap_err());
        assert!(error.contains("can't listen there"), "{error}");
    }

    /// Set in a process that is the server of a test.
    #[cfg(unix)]
    const CHILD: &str = "RPC_SERVER_TEST";

    /// This program, run again, whose only test is the server.
    #[cfg(unix)]
    #[test]
    fn server_ends_cleanly_when_it_is_told_to() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};

        use rustix::process::{Pid, Signal, kill_process};

        if std::env::var_os(CHILD).is_some() {
            run(&cli(&["--port", "0", "--every", "1", "--json"])).unwrap();
            return;
        }
        for signal in [Signal::INT, Signal::TERM] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tests::server_ends_cleanly_when_it_is_told_to", "--nocapture"])
                .env(CHILD, "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            let address = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned())).unwrap();
            let client = std::net::TcpStream::connect(&address).unwrap();
            let line = lines.find(|line| line.contains(&client.local_addr().unwrap().to_string())).unwrap();
            assert!(line.starts_with("{\"clients\":[{") && line.contains("\"held\":0"), "{line}");
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert!(child.wait().unwrap().success(), "{signal:?}");
            assert!(std::net::TcpStream::connect(&address).is_err(), "nobody listens any more");
        }
    }

    #[cfg(feature = "rpc-tls")]
    #[test]
    fn clients_need_the_certificate_that_the_files_ask_for() {
        use ggml::rpc::{Options, Tls, connect, connect_with};

        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (key.cert.pem(), key.signing_key.serialize_pem());
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (pem, secret) = (file("a.pem", &certificate), file("a.key", &key));
        let arguments = ["--port", "0", "--tls-cert", &pem, "--tls-key", &secret, "--tls-ca", &pem];
        let server = serve(&cli(&arguments)).unwrap();
        let endpoint = server.address().to_string();
        assert!(connect(&endpoint).is_err());
        let options = Options::new().with_tls(Tls::new(&certificate, &key, &certificate).unwrap());
        assert_eq!(connect_with(&endpoint, &options).unwrap().devices().len(), 1);
        std::fs::remove_file(&secret).unwrap();
        let error = format!("{:#}", serve(&cli(&arguments)).unwrap_err());
        assert!(error.contains("can't read") && error.contains("a.key"), "{error}");
    }

    #[test]
    fn unknown_device_error_mentions_list() {
        let error = format!("{:#}", serve(&cli(&["--device", "CUDA77"])).unwrap_err());
        assert!(error.contains("CUDA77") && error.contains("--list"), "{error}");
    }

    #[test]
    fn list_shows_the_cpu() {
        let mut out = Vec::new();
        list(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("CPU: "));
    }
}
