//! Calls for which there is little memory left.

/// Makes a call with this many bytes of address space left. What the process has already goes on to be used.
#[cfg(target_os = "linux")]
pub(super) fn with_left<R>(bytes: u64, f: impl FnOnce() -> R) -> R {
    struct Lift(libc::rlimit);
    impl Drop for Lift {
        fn drop(&mut self) {
            set(self.0);
        }
    }
    let before = get();
    // SAFETY: it gives back what is free, and touches nothing else.
    let _less = unsafe { libc::malloc_trim(0) };
    let used = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = used.split(' ').next().unwrap().parse().unwrap();
    let _lift = Lift(before);
    set(libc::rlimit { rlim_cur: (4096 * pages + bytes).min(before.rlim_max), ..before });
    f()
}

#[cfg(target_os = "linux")]
fn get() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the system writes to the struct, and keeps nothing.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    limit
}

#[cfg(target_os = "linux")]
fn set(limit: libc::rlimit) {
    // SAFETY: the system reads the struct, and keeps nothing.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Whether there are such limits, and the address space is the program's own: a sanitizer takes most of it, and valgrind
/// ends when it gets no memory itself.
pub(super) fn is_there() -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    cfg!(target_os = "linux") && !is_set("TEST_NO_LIMITS")
}

#[cfg(not(target_os = "linux"))]
pub(super) fn with_left<R>(_bytes: u64, f: impl FnOnce() -> R) -> R {
    f()
}
