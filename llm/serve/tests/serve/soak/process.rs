//! What the server's process holds.

use std::time::{Duration, Instant};

use crate::server::Server;

/// Bytes in memory, threads, and open files and connections; zeros where the system doesn't tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    pub(crate) memory: u64,
    pub(crate) threads: u64,
    pub(crate) handles: usize,
}

impl Process {
    fn of(id: u32) -> Self {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) else { return Self::default() };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{status}"));
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        let handles = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
        Self { memory: field("VmRSS:") << 10, threads: field("Threads:"), handles }
    }

    /// What is held once nobody is there; if it is to be no more than before, after half a minute at most: idle threads end
    /// after ten seconds.
    pub(crate) fn settled(server: &Server, before: Option<&Self>) -> Self {
        server.wait_for("all are released", |s| s.metric("running") == 0 && s.metric("waiting") == 0);
        let start = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = Self::of(server.place().0);
            let less = |before: &Self| now.threads <= before.threads && now.handles <= before.handles;
            if before.is_none_or(less) || start.elapsed() > Duration::from_secs(30) {
                return now;
            }
        }
    }
}
