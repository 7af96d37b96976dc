//! Servers in their own processes: this program, run again.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
#[cfg(feature = "rpc-tls")]
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ggml::rpc::{self, Connection, Options, Server};

/// The prefix of the server's line with its address. ggml prints other lines before and after.
const READY: &str = "listening on ";

/// Set in a server process: its number of threads.
const THREADS: &str = "RPC_CLUSTER_THREADS";

/// Set in a server process that uses TLS: the folder of the certificate and the key.
#[cfg(feature = "rpc-tls")]
const TLS: &str = "RPC_CLUSTER_TLS";

/// Longer than a step takes on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A server process, killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    /// Kept open because the server writes a line for each client.
    _stdout: BufReader<ChildStdout>,
    address: String,
    options: Options,
}

impl ServerProcess {
    /// Starts a server that serves the CPU on a free port: this program with these arguments, which calls [`serve`] if it
    /// [is one](is_one). In a test, the arguments select a test that does.
    ///
    /// # Errors
    /// If the process does not start, or does not listen.
    pub fn start(threads: NonZeroUsize, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(arguments).env(THREADS, threads.to_string());
        Self::spawn(command, Options::new())
    }

    /// Starts one with the certificate and key that [`write_tls`] left in this folder.
    ///
    /// # Errors
    /// As [`start`](Self::start), and if the files can't be read.
    #[cfg(feature = "rpc-tls")]
    pub fn start_with_tls(threads: NonZeroUsize, arguments: &[&str], folder: &Path) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(arguments).env(THREADS, threads.to_string()).env(TLS, folder);
        Self::spawn(command, Options::new().with_tls(read_tls(folder)?))
    }

    fn spawn(mut command: Command, options: Options) -> Result<Self> {
        // The server ends when its standard input closes, however this process ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("can't start {command:?}"))?;
        let mut stdout = BufReader::new(child.stdout.take().context("the server has no standard output")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            if stdout.read_line(&mut line)? == 0 {
                let status = child.wait()?;
                anyhow::bail!("a server ended before it listened: {status}");
            }
            if let Some((_, address)) = line.split_once(READY) {
                break address.trim().to_owned();
            }
        };
        let options = options.with_answer_timeout(ANSWER_LIMIT);
        Ok(Self { child, _stdout: stdout, address, options })
    }

    /// The address it listens on.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// If the server is gone.
    pub fn connect(&self) -> Result<Connection> {
        Ok(rpc::connect_with(self.address(), &self.options)?)
    }

    /// Kills the process, and waits until it is gone.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        drop(self.kill());
    }
}

/// Whether this process was started as a server.
pub fn is_one() -> bool {
    env::var_os(THREADS).is_some()
}

/// Serves until the standard input closes.
///
/// # Errors
/// If the server does not start.
pub fn serve() -> Result<()> {
    let threads = env::var(THREADS).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let server = Server::builder().threads(threads);
    #[cfg(feature = "rpc-tls")]
    let server = server.tls(env::var_os(TLS).map(|folder| read_tls(Path::new(&folder))).transpose()?);
    let server = server.start()?;
    announce(server.address())?;
    wait_for_end()
}

/// Tells the process that started this one where a server listens.
///
/// # Errors
/// If there is nobody who reads it.
pub fn announce(address: SocketAddr) -> Result<()> {
    Ok(writeln!(io::stdout(), "{READY}{address}")?)
}

/// Waits until the standard input closes.
///
/// # Errors
/// If the input can't be read.
pub fn wait_for_end() -> Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Writes a certificate and its key for servers and clients: one that is signed by itself and names the loopback is
/// enough, because each side then trusts the other for showing the same.
///
/// # Errors
/// If the files can't be written, or hold something else.
#[cfg(feature = "rpc-tls")]
pub fn write_tls(folder: &Path, certificate: &str, key: &str) -> Result<rpc::Tls> {
    std::fs::write(folder.join("both.pem"), certificate)?;
    std::fs::write(folder.join("both.key"), key)?;
    read_tls(folder)
}

#[cfg(feature = "rpc-tls")]
fn read_tls(folder: &Path) -> Result<rpc::Tls> {
    let read = |name| std::fs::read(folder.join(name)).with_context(|| format!("can't read {name}"));
    let certificate = read("both.pem")?;
    Ok(rpc::Tls::new(&certificate, read("both.key")?, &certificate)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server process of the other tests; does nothing if run as an ordinary test.
    #[test]
    fn server_process() {
        if is_one() {
            serve().unwrap();
        }
    }

    #[test]
    fn server_process_serves_until_it_is_killed() {
        let mut server =
            ServerProcess::start(NonZeroUsize::MIN, &["--exact", "servers::tests::server_process", "--nocapture"])
                .unwrap();
        assert_eq!(server.connect().unwrap().devices().len(), 1);
        server.kill().unwrap();
        assert!(server.connect().is_err());
    }
}
