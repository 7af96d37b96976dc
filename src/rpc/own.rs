//! Which connections to a relay are ggml's own.
//!
//! ggml leaves its sockets open in child processes. A relay that serves a connection of this process's marks the other
//! end to be closed there: otherwise the connection would seem alive for as long as a child is, when ggml closed it long
//! ago. What is not of this process is not served at all.

use std::io;
use std::net::{SocketAddr, TcpStream};

/// Whether the other end of `accepted` is a socket of this process, which then is not inherited by children any more.
///
/// The other end must be waiting for an answer, so that it is not closed meanwhile.
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

/// Ends the streams that this process's sockets read from `relay`, except those that are served.
///
/// Who has such a socket must be waiting for an answer, so that it is not closed meanwhile: only ggml connects to a relay,
/// and ggml's first request is answered.
#[cfg(unix)]
pub(super) fn hang_up(relay: SocketAddr, is_served: impl Fn(SocketAddr) -> bool) {
    for socket in unix::sockets().filter(|socket| socket.peer == relay && !is_served(socket.own)) {
        unix::end_stream(socket.handle);
    }
}

#[cfg(not(unix))]
pub(super) fn hang_up(_relay: SocketAddr, _is_served: impl Fn(SocketAddr) -> bool) {}

/// Whether this process can have hardly any more file handles than it has. `any` is a socket that is open.
pub(super) fn is_short_of_handles(any: &TcpStream) -> bool {
    /// What a connection between ggml and the relay takes, its two ends, and as many more.
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

    /// The handles that may be open: those that the system lists, or all that there can be where it does not, as when there
    /// is no handle left to read the list with.
    fn handles() -> Box<dyn Iterator<Item = c_int>> {
        match std::fs::read_dir("/dev/fd") {
            Ok(files) => {
                let listed: Vec<_> = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok()).collect();
                Box::new(listed.into_iter())
            }
            Err(_) => Box::new(0..most_handles()),
        }
    }

    /// How many handles this process can have.
    fn most_handles() -> c_int {
        /// What no process is believed to have.
        const MANY: c_int = 1 << 20;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes to `limit`, which is live for the call.
        match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
            0 => c_int::try_from(limit.rlim_cur).unwrap_or(MANY).min(MANY),
            _ => MANY,
        }
    }

    /// Makes whoever reads from a socket see the end of the stream.
    pub(super) fn end_stream(handle: c_int) {
        // SAFETY: changes the state of a socket that is open: its owner waits for an answer. A failure leaves it as it was.
        let _changed = unsafe { libc::shutdown(handle, libc::SHUT_RD) };
    }

    /// What `ask`, one of getsockname and getpeername, says about `handle`, which need be no socket, nor open.
    pub(super) fn address(ask: Ask, handle: c_int) -> Option<SocketAddr> {
        let init = |address: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
            // SAFETY: `address` and `len` are live for the call, which writes an address of at most that length. A handle
            // that is no socket is an error.
            match unsafe { ask(handle, address.cast(), len) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: where `init` succeeds, the system wrote an address and its length.
        let ((), address) = unsafe { SockAddr::try_init(init) }.ok()?;
        address.as_socket()
    }

    pub(super) fn close_in_children(handle: c_int) {
        // SAFETY: sets a flag of a handle that is open: its owner waits for an answer. A failure leaves it as it was.
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
    fn a_connection_of_this_process_is_closed_in_its_children() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        SockRef::from(&stream).set_cloexec(false).unwrap();
        assert!(claim(&accepted));
        // SAFETY: reads a flag of a socket that is open.
        assert_eq!(unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
    }

    /// This test, run again by itself, is the other process.
    #[test]
    fn a_connection_of_another_process_is_not_served() {
        const ADDRESS: &str = "GGML_TEST_CLAIM_ADDRESS";
        if let Ok(address) = env::var(ADDRESS) {
            assert_eq!(TcpStream::connect(address).unwrap().read(&mut [0]).unwrap_or(0), 0);
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = Command::new(env::current_exe().unwrap())
            .args(["--exact", "rpc::own::tests::a_connection_of_another_process_is_not_served"])
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
