//! Limits of what clients may use.

use std::time::Duration;

use crate::options::options;

options! {
    /// What a [`Server`](super::Server) lets its clients use.
    ///
    /// A client that asks for memory over a limit is told that there is none. One that goes over another limit is
    /// disconnected, because the protocol has no answer for it. The reason is logged.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ggml::rpc::Limits;
    ///
    /// let limits = Limits::new().with_connections(4).with_client_memory(8 << 30).with_progress(Duration::from_secs(10));
    /// assert_eq!(limits.connections, 4);
    /// ```
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limits {
        /// Limits that a program for a small group of users needs.
        new();
        /// Sets how many clients may be connected at a time. ggml's client opens one connection to a server.
        with_connections(connections: usize = 32);
        /// Sets how many bytes of buffers, graphs and copies of indices all clients together may hold. `None` means nine tenths of
        /// what was free when the server was started: the smallest of the devices' memories and this machine's.
        with_memory(memory: Option<u64> = None, into);
        /// Sets how many bytes of buffers and graphs each client may hold. `None` means as many as all together.
        with_client_memory(client_memory: Option<u64> = None, into);
        /// Sets how many buffers each client may hold.
        with_buffers(buffers: usize = 4096);
        /// Sets how many tensors a graph may have.
        with_graph_tensors(graph_tensors: usize = 1 << 17);
        /// Sets how many graphs of each device are kept for a client, up to the 1,024 of the protocol. ggml's client asks
        /// to repeat any of the last 1,024, and is disconnected if the one that it wants is gone.
        with_graphs(graphs: usize = 1024);
        /// Sets the maximum length of a request, without the data of tensors, which are stored as they arrive.
        with_request(request: u64 = 64 << 20);
        /// Sets how long a client may neither send nor take a byte while a request is under way. A whole request may take
        /// this long, plus a second for each 16 KiB.
        with_progress(progress: Duration = Duration::from_secs(60));
        /// Sets how long a client may be silent between two requests, after which it loses its place and what it holds. A
        /// machine that is switched off or disconnected is noticed within a minute; this is for clients that were
        /// forgotten.
        with_idle(idle: Duration = Duration::from_secs(24 * 60 * 60));
        /// Sets how long one computation may take. On the CPU it is ended before its next operation;
        /// elsewhere it is noticed when it ends.
        with_computation(computation: Duration = Duration::from_secs(600));
        /// Sets how many bytes of files the cache on disk may hold (see
        /// [`ServerBuilder::cache`](super::ServerBuilder::cache)).
        with_cache(cache: u64 = 256 << 30);
    }
}
