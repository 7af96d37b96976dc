//! A server in its own process, which can be killed: the test binary, run again. Its root has this test:
//!
//! ```ignore
//! #[test]
//! fn server_process() {
//!     testkit::server::server_process();
//! }
//! ```

use std::io::{BufRead, BufReader};
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use ggml::rpc::{Limits, Server};

use crate::fake_gpu::{Call, Fault};

/// Tells a child process that it is a server, and its address.
const ADDRESS: &str = "GGML_TEST_RPC_ADDRESS";

/// Tells it to serve GPUs in Rust, and which call fails, if any.
const FAULT: &str = "GGML_TEST_RPC_FAULT";

/// Tells it the number of threads for each client.
const THREADS: &str = "GGML_TEST_RPC_THREADS";

/// The prefix of the child's line with its address.
const READY: &str = "listening on ";

/// A server process, killed on drop.
pub struct ServerProcess {
    child: Child,
    /// Where it listens.
    pub address: SocketAddrV4,
}

impl ServerProcess {
    /// Starts a server of the CPU on a free port.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    /// Starts a server of two GPUs in Rust. The `n`th call of a function of the first fails.
    pub fn of_fakes(fault: Option<(Call, usize, Fault)>) -> Self {
        let fault = fault.map_or_else(String::new, |(call, n, fault)| format!("{call:?} {n} {fault:?}"));
        Self::spawn(Command::new(env::current_exe().unwrap()).env(FAULT, fault).env(ADDRESS, "127.0.0.1:0"))
    }

    /// Starts a server of the CPU on a free port, with as many threads for each client. Its memory shows what it holds:
    /// glibc's allocator gives each thread another heap, which would grow apart for long, and takes larger and larger blocks
    /// from heaps, whose ends it can't give back while a small block lies there.
    pub fn of_threads(threads: usize) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=131072");
        Self::spawn(command.env(ADDRESS, "127.0.0.1:0").env(THREADS, threads.to_string()))
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts a server of the CPU at an address.
    pub fn start_at(address: SocketAddrV4) -> Self {
        Self::spawn(Command::new(env::current_exe().unwrap()).env(ADDRESS, address.to_string()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .args(["--exact", "server_process", "--nocapture"])
            // Without this, ggml would start a debugger when it aborts.
            .env("GGML_NO_BACKTRACE", "1")
            // The child ends when its standard input closes, however this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| {
            let at = line.strip_prefix(READY).map(|at| at.parse().unwrap());
            said.push(line);
            at
        });
        let address = address.unwrap_or_else(|| panic!("the server did not start: {said:?}"));
        Self { child, address }
    }

    /// How the process ended, if it ends by itself within this time.
    pub fn ended(&mut self, within: Duration) -> Option<String> {
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

    /// Lets the process end, which fails if its devices had races.
    pub fn close(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Suspends the process, and waits until it is suspended.
    #[cfg(unix)]
    pub fn stop(&self) {
        let id = self.child.id().try_into().unwrap();
        // SAFETY: signals our own child; it was not waited for, so its id is still valid.
        assert_eq!(unsafe { libc::kill(id, libc::SIGSTOP) }, 0);
        let mut status = 0;
        // SAFETY: `status` is a live local; the child is ours. A stopped child can still be waited for.
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

/// Whether this process was started as a server.
pub fn is_one() -> bool {
    env::var_os(ADDRESS).is_some()
}

/// The test that is the server when it is run as a child; else it checks that one starts.
pub fn server_process() {
    if let Ok(address) = env::var(ADDRESS) {
        serve(address.parse().unwrap());
        return;
    }
    // Not by a connection of ggml's: other tests of this process would find its devices, and lose them.
    let server = ServerProcess::start();
    TcpStream::connect(server.address).unwrap();
}

/// The devices to serve.
fn devices() -> [ggml::Device; 2] {
    let Ok(fault) = env::var(FAULT) else { return [ggml::Device::cpu().unwrap(); 2] };
    let [(first, control), (second, _)] = crate::fake_gpu::devices(crate::fake_gpu::FakeOptions::default());
    crate::fake_gpu::fail_on_races();
    control.set_delays(true);
    if let [call, n, fault] = fault.split(' ').collect::<Vec<_>>()[..] {
        let call = Call::ALL.into_iter().find(|c| format!("{c:?}") == call).unwrap();
        let faults = [Fault::Fail, Fault::Lose, Fault::Panic, Fault::Refuse];
        let fault = faults.into_iter().find(|f| format!("{f:?}") == fault).unwrap();
        control.fail(call, n.parse().unwrap(), fault);
    }
    [first, second]
}

/// The child: serves two devices until its standard input closes.
fn serve(address: SocketAddrV4) {
    let devices = devices();
    #[cfg(unix)]
    if env::var_os("TEST_NO_LIMITS").is_none() {
        limit_memory();
    }
    let threads = env::var(THREADS).map_or(2, |n| n.parse().unwrap());
    // As much for clients where the process has no limit: a sanitizer takes too long for gigabytes. None can take it all.
    let limits = Limits::new().with_memory(2 << 30).with_client_memory(300 << 20);
    let server = Server::builder().address(address).devices(devices).threads(threads).limits(limits);
    let server = server.start().unwrap();
    eprintln!("{READY}{}", server.address());
    thread::spawn(|| std::io::stdin().read_line(&mut String::new())).join().unwrap().unwrap();
    let start = Instant::now();
    while !server.clients().is_empty() && start.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((server.clients(), server.held()), (Vec::new(), 0), "what clients had is gone with them");
}

/// Limits the memory, because a client that was told nonsense may request any amount, zeroed. What the process has
/// already goes on to be used: CUDA's driver takes much of the address space.
#[cfg(unix)]
fn limit_memory() {
    let used = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = used.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let most = 4096 * pages + (2 << 30);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `limit` is a live structure that the call only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}
