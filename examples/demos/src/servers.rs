//! Servers in their own processes: this program, run again.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ggml::rpc::{self, Connection, Options, Server};

/// The prefix of the server's line with its address. ggml prints other lines before and after.
const READY: &str = "listening on ";

/// Set in a server process: its number of threads.
const THREADS: &str = "RPC_CLUSTER_THREADS";

/// Longer than a step takes on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A server process, killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    /// Kept open because the server writes a line for each client.
    _stdout: BufReader<ChildStdout>,
    address: String,
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
        Ok(Self { child, _stdout: stdout, address })
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
        Ok(rpc::connect_with(self.address(), &Options::new().with_answer_timeout(ANSWER_LIMIT))?)
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
    let server = Server::builder().threads(threads).start()?;
    writeln!(io::stdout(), "{READY}{}", server.address())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
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
