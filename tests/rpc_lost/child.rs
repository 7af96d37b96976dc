//! A server in a process of its own, which can be killed: this test binary, run again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use ggml::rpc::{self, Server};

/// Tells a child what it is, and where to listen.
const ADDRESS: &str = "GGML_TEST_RPC_ADDRESS";

/// What the child says before its address.
const READY: &str = "listening on ";

/// A server process. Ends when this is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddrV4,
}

impl ServerProcess {
    /// A server of the CPU on a free port.
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn start_at(address: SocketAddrV4) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child::a_server_runs_in_a_process_of_its_own", "--nocapture"])
            .env(ADDRESS, address.to_string())
            // ggml would start a debugger when it aborts.
            .env("GGML_NO_BACKTRACE", "1")
            // The child ends with this end of the pipe, however this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address =
            lines.map(|line| line.strip_prefix(READY).map(|at| at.parse().unwrap())).find_map(|at| at).unwrap();
        Self { child, address }
    }

    /// What the process ended with, if it has ended by itself or does so within this time.
    pub(crate) fn ended(&mut self, within: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status.to_string());
            }
            if start.elapsed() >= within {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Makes the process hang, and waits until it does.
    #[cfg(unix)]
    pub(crate) fn stop(&self) {
        let id = self.child.id().try_into().unwrap();
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(id, libc::SIGSTOP) }, 0);
        let mut status = 0;
        // SAFETY: writes the status of our child. A stopped child can still be waited for.
        assert_eq!(unsafe { libc::waitpid(id, &raw mut status, libc::WUNTRACED) }, id);
        assert!(libc::WIFSTOPPED(status));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_server_runs_in_a_process_of_its_own() {
    if let Ok(address) = env::var(ADDRESS) {
        serve(address.parse().unwrap());
        return;
    }
    let server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    assert_eq!(connection.devices().len(), 2);
}

/// What the child does: serves the CPU twice, until nobody holds the other end of its standard input.
fn serve(address: SocketAddrV4) {
    #[cfg(unix)]
    limit_memory();
    let cpu = ggml::Device::cpu().unwrap();
    let server = Server::builder().address(address).devices([cpu, cpu]).threads(2.try_into().unwrap());
    // SAFETY: it listens on the loopback, and the machine that runs the tests is trusted.
    let server = unsafe { server.start().unwrap() };
    eprintln!("{READY}{}", server.address());
    thread::spawn(|| std::io::stdin().read_line(&mut String::new())).join().unwrap().unwrap();
}

/// A client that was told nonsense may ask for any amount of memory, and for zeros in all of it.
#[cfg(unix)]
fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
    // SAFETY: reads the limits during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}
