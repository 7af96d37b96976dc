//! Schedulers over two buffer types: that of an RPC server in this process, or of the device in the environment variable
//! `GGML_TEST_DEVICE`, and the CPU's.

use ggml::{Backend, BufferType, Sched};
use testkit::device::{device, limited};

/// What programs use instead of schedulers over CPUs. Field order is drop order.
pub(crate) struct Remote {
    pub(crate) scheds: Vec<Sched>,
    pub(crate) probe: Sched,
    pub(crate) memory: BufferType,
}

impl Remote {
    pub(crate) fn start() -> Self {
        let sched = || {
            let cpu = limited(Backend::cpu().unwrap());
            Sched::builder().backend(device().init().unwrap()).backend(cpu).op_offload(false).build().unwrap()
        };
        // As many as can be borrowed at once, and one more, which is hardly used.
        let scheds = vec![sched(), sched(), sched()];
        Self { scheds, probe: sched(), memory: device().buffer_type() }
    }
}
