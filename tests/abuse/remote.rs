//! Schedulers over two buffer types: that of an RPC server in this process, and the CPU's.

use ggml::{BufferType, Sched};

/// What programs use instead of schedulers over CPUs. Field order is drop order.
pub(crate) struct Remote {
    pub(crate) scheds: Vec<Sched>,
    pub(crate) probe: Sched,
    pub(crate) memory: BufferType,
    #[cfg(feature = "rpc")]
    _server: (ggml::rpc::Connection, ggml::rpc::Server),
}

#[cfg(feature = "rpc")]
impl Remote {
    pub(crate) fn start() -> Self {
        // SAFETY: it listens on the loopback, and the machine that runs the tests is trusted.
        let server = unsafe { ggml::rpc::Server::builder().threads(std::num::NonZeroUsize::MIN).start().unwrap() };
        let connection = ggml::rpc::connect(&server.address().to_string()).unwrap();
        let device = connection.devices()[0];
        let sched = || {
            let mut cpu = ggml::Backend::cpu().unwrap();
            cpu.set_threads(1).unwrap();
            Sched::builder().backend(device.init().unwrap()).backend(cpu).op_offload(false).build().unwrap()
        };
        // As many as can be borrowed at once, and one more, which is hardly used.
        let scheds = vec![sched(), sched(), sched()];
        Self { scheds, probe: sched(), memory: device.buffer_type(), _server: (connection, server) }
    }
}

#[cfg(not(feature = "rpc"))]
impl Remote {
    pub(crate) fn start() -> Self {
        unreachable!("there is no RPC")
    }
}
