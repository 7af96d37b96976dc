//! Recognises which connections to a relay come from this process.
//!
//! Child processes inherit ggml's sockets. When the relay accepts a connection of this process, it sets close-on-exec
//! on the other end: otherwise the connection would look alive while a child runs, although ggml closed it. Connections
//! of other processes are not served.

use std::io;
use std::net::{SocketAddr, TcpStream};

/// Whether the other end of `accepted` is a socket of this process; if so, sets close-on-exec on it.
///
/// The other end must be waiting for an answer, so that it can't be closed during this call.
#[cfg(unix)]
pub(super) fn claim(accepted: &TcpStream) -> bool {
    let (Ok(theirs), Ok(ours)) = (accepted.peer_addr(), accepted.local_addr()) else { return false };
    let other = unix::sockets().find(|socket| (socket.own, socket.peer) == (theirs, ours));
    other.map(|socket| unix::close_in_children(socket.handle)).is_some()
}

#[cfg(not(unix))]
pub(super) fn claim(_accepted: &TcpStream) -> bool {
    true
}

/// Shuts down this process's sockets that are connected to `relay`, except those that are served.
///
/// Their owners must be waiting for an answer, so that the sockets can't be closed during this call: only ggml connects
/// to a relay, and it waits for the answer to its first request.
#[cfg(unix)]
pub(super) fn hang_up(relay: SocketAddr, is_served: impl Fn(SocketAddr) -> bool) {
    for socket in unix::sockets().filter(|socket| socket.peer == relay && !is_served(socket.own)) {
        unix::end_stream(socket.handle);
    }
}

#[cfg(not(unix))]
pub(super) fn hang_up(_relay: SocketAddr, _is_served: impl Fn(SocketAddr) -> bool) {}

/// Whether this process is almost out of file handles. `any` is an open socket.
pub(super) fn is_short_of_handles(any: &TcpStream) -> bool {
    /// Two handles for the connection between ggml and the relay, and two in reserve.
    const ENOUGH: usize = 4;
    (0..ENOUGH).map(|_| any.try_clone()).collect::<io::Result<Vec<_>>>().is_err()
}

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;
    use std::io;
    use std::net::SocketAddr;

    use socket2::SockAddr;

    type Ask = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

    /// A connected socket of this process.
    pub(super) struct Socket {
        pub(super) handle: c_int,
        pub(super) own: SocketAddr,
        pub(super) peer: SocketAddr,
    }

    /// The connected sockets of this process.
    pub(super) fn sockets() -> impl Iterator<Item = Socket> {
        handles().filter_map(|handle| {
            let peer = address(libc::getpeername, handle)?;
            Some(Socket { handle, own: address(libc::getsockname, handle)?, peer })
        })
    }

    /// The handles that may be open: those that the system lists, or every possible one if it lists none, as when no
    /// handle is left to open the list.
    fn handles() -> Box<dyn Iterator<Item = c_int>> {
        match std::fs::read_dir("/dev/fd") {
            Ok(files) => {
                let listed: Vec<_> = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok()).collect();
                Box::new(listed.into_iter())
            }
            Err(_) => Box::new(0..most_handles()),
        }
    }

    /// The maximum number of handles of this process.
    fn most_handles() -> c_int {
        /// More handles than any process is expected to have.
        const MANY: c_int = 1 << 20;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a live local that the call writes to; C keeps no pointer.
        match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
            0 => c_int::try_from(limit.rlim_cur).unwrap_or(MANY).min(MANY),
            _ => MANY,
        }
    }

    /// Makes the reader of a socket see the end of the stream.
    pub(super) fn end_stream(handle: c_int) {
        // SAFETY: only changes the state of a socket. It is open: its owner waits for an answer (see `hang_up`).
        let _changed = unsafe { libc::shutdown(handle, libc::SHUT_RD) };
    }

    /// Returns what `ask` (getsockname or getpeername) says about `handle`, which need not be a socket, nor open.
    pub(super) fn address(ask: Ask, handle: c_int) -> Option<SocketAddr> {
        let init = |address: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
            // SAFETY: `try_init` passes pointers to a live address and its capacity; the call writes at most that much
            // and keeps no pointer. It returns an error for a handle that is not a socket.
            match unsafe { ask(handle, address.cast(), len) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: if `init` succeeds, getsockname or getpeername has written an address and its length.
        let ((), address) = unsafe { SockAddr::try_init(init) }.ok()?;
        address.as_socket()
    }

    pub(super) fn close_in_children(handle: c_int) {
        // SAFETY: only sets a flag of a handle. It is open: `claim` requires that its owner waits for an answer.
        let _changed = unsafe { libc::fcntl(handle, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::env;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use socket2::SockRef;

    use super::claim;

    #[test]
    fn hang_up_closes_a_connection_inherited_by_children() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        SockRef::from(&stream).set_cloexec(false).unwrap();
        assert!(claim(&accepted));
        // SAFETY: only reads a flag of `stream`, which is open.
        assert_eq!(unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
    }

    /// This test runs itself again as the other process.
    #[test]
    fn claim_refuses_a_connection_of_another_process() {
        const ADDRESS: &str = "GGML_TEST_CLAIM_ADDRESS";
        if let Ok(address) = env::var(ADDRESS) {
            assert_eq!(TcpStream::connect(address).unwrap().read(&mut [0]).unwrap_or(0), 0);
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = Command::new(env::current_exe().unwrap())
            .args(["--exact", "rpc::own::tests::claim_refuses_a_connection_of_another_process"])
            .env(ADDRESS, listener.local_addr().unwrap().to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(!claim(&accepted));
        drop(accepted);
        assert!(other.wait().unwrap().success());
    }
}
