//! Which connections to a relay are ggml's own.
//!
//! ggml leaves its sockets open in child processes. A relay that serves a connection of this process's marks the other
//! end to be closed there: otherwise the connection would seem alive for as long as a child is, when ggml closed it long
//! ago. What is not of this process is not served at all.

use std::net::TcpStream;

/// Whether the other end of `accepted` is a socket of this process, which then is not inherited by children any more.
/// Where the process can't list its files, every connection counts as its own.
///
/// The other end must be waiting for an answer, so that it is not closed meanwhile.
#[cfg(unix)]
pub(super) fn claim(accepted: &TcpStream) -> bool {
    let (Ok(theirs), Ok(ours)) = (accepted.peer_addr(), accepted.local_addr()) else { return false };
    let Ok(files) = std::fs::read_dir("/dev/fd") else { return true };
    let handles = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let other = handles.into_iter().find(|handle| {
        unix::address(libc::getsockname, *handle) == Some(theirs)
            && unix::address(libc::getpeername, *handle) == Some(ours)
    });
    other.map(unix::close_in_children).is_some()
}

#[cfg(not(unix))]
pub(super) fn claim(_accepted: &TcpStream) -> bool {
    true
}

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;
    use std::io;
    use std::net::SocketAddr;

    use socket2::SockAddr;

    type Ask = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

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
