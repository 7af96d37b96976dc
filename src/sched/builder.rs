//! Making a scheduler.

use super::Sched;
use crate::backend::Backend;
use crate::device::DeviceType;
use crate::error::{Error, Result};

/// Collects what a [`Sched`] works with (`ggml_backend_sched_new`).
#[derive(Debug)]
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SchedBuilder {
    backends: Vec<Backend>,
    op_offload: bool,
}

impl SchedBuilder {
    /// The most backends a scheduler can have (`GGML_SCHED_MAX_BACKENDS`).
    pub const MAX_BACKENDS: usize = 16;

    pub(super) fn new() -> Self {
        Self { backends: Vec::new(), op_offload: true }
    }

    /// Adds a backend. The first has the highest priority; the last must be a CPU.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backends.push(backend);
        self
    }

    /// Whether a GPU may take over large operations whose weights lie in host memory. It may by default.
    pub fn op_offload(mut self, yes: bool) -> Self {
        self.op_offload = yes;
        self
    }

    /// Makes the scheduler.
    ///
    /// # Errors
    ///
    /// [`Error::Backends`] unless there are 1 to [`SchedBuilder::MAX_BACKENDS`] backends and the last is a CPU.
    #[doc(alias = "ggml_backend_sched_new")]
    pub fn build(self) -> Result<Sched> {
        check(&self.backends)?;
        Ok(Sched::new(self.backends, self.op_offload))
    }
}

/// Checks that a scheduler can work with these backends.
pub(super) fn check(backends: &[Backend]) -> Result<()> {
    let refuse = |reason| {
        let names: Vec<_> = backends.iter().map(Backend::name).collect();
        Err(Error::Backends { reason, backends: names.join(", ").into() })
    };
    if backends.len() > SchedBuilder::MAX_BACKENDS {
        return refuse("there are more than 16 backends");
    }
    if backends.last().is_none_or(|b| b.device().device_type() != DeviceType::Cpu) {
        return refuse("the last backend must be a CPU, which takes what the others can't run; add Backend::cpu()");
    }
    Ok(())
}
