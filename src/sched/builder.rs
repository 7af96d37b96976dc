//! Making a scheduler.

use ggml_sys as sys;

use super::Sched;
use crate::backend::Backend;
use crate::buffer::BufferType;
use crate::device::meta;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result};

/// Collects what a [`Sched`] works with (`ggml_backend_sched_new`).
#[derive(Debug)]
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SchedBuilder {
    backends: Vec<Backend>,
    settings: Settings,
}

/// What the C scheduler is told besides its backends.
#[derive(Debug)]
pub(super) struct Settings {
    /// The kind of memory that each backend computes in, unless it is its device's.
    pub(super) memory: Vec<Option<BufferType>>,
    pub(super) parallel: bool,
    pub(super) op_offload: bool,
}

impl SchedBuilder {
    /// The most backends a scheduler can have (`GGML_SCHED_MAX_BACKENDS`).
    pub const MAX_BACKENDS: usize = 16;

    pub(super) fn new() -> Self {
        Self { backends: Vec::new(), settings: Settings { memory: Vec::new(), parallel: false, op_offload: true } }
    }

    /// Adds a backend. The first has the highest priority; the last must be a CPU.
    pub fn backend(self, backend: Backend) -> Self {
        self.add(backend, None)
    }

    /// [`SchedBuilder::backend`] with the kind of memory that what it computes shall lie in: that of its device, or host
    /// memory that the device can use, such as [`Device::host_buffer_type`](crate::Device::host_buffer_type) of a GPU for
    /// the CPU beside it, from which copies are quicker.
    pub fn backend_with(self, backend: Backend, buft: BufferType) -> Self {
        self.add(backend, Some(buft))
    }

    fn add(mut self, backend: Backend, memory: Option<BufferType>) -> Self {
        self.backends.push(backend);
        self.settings.memory.push(memory);
        self
    }

    /// Whether inputs, and what is copied between devices, are kept several times over ([`Allocated::n_copies`]), so that
    /// devices with events wait for each other rather than be waited for. They are not by default.
    ///
    /// The graphs that are allocated one after the other use the copies in turn.
    ///
    /// [`Allocated::n_copies`]: crate::Allocated::n_copies
    pub fn parallel(mut self, yes: bool) -> Self {
        self.settings.parallel = yes;
        self
    }

    /// Whether a GPU may take over large operations whose weights lie in host memory. It may by default.
    pub fn op_offload(mut self, yes: bool) -> Self {
        self.settings.op_offload = yes;
        self
    }

    /// Makes the scheduler.
    ///
    /// # Errors
    ///
    /// [`Error::Backends`] unless there are 1 to [`SchedBuilder::MAX_BACKENDS`] backends, the last is a CPU, and each can
    /// compute in its kind of memory.
    #[doc(alias = "ggml_backend_sched_new")]
    pub fn build(self) -> Result<Sched> {
        check(&self.backends, &self.settings)?;
        Ok(Sched::new(self.backends, self.settings))
    }
}

impl Sched {
    /// A scheduler over what this machine has: the first GPU, or else the first integrated one, if there is any; then all
    /// accelerators, such as BLAS, in ggml's order; the CPU last.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [2])?;
    /// let y = ctx.sqr(x)?;
    /// let graph = ctx.graph([y])?;
    /// let mut sched = Sched::best()?;
    /// let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[3.0_f32, 4.0])?;
    /// run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [9.0, 16.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Device::all`] and [`Device::init`]; [`Error::NoSuch`] where no CPU is among the devices, as before
    /// [`Registry::load_all`](crate::Registry::load_all) in a program whose backends are loaded.
    pub fn best() -> Result<Self> {
        let (best, cpu) = (Device::best()?, Device::cpu()?);
        let all = Device::all()?;
        let accelerators = all.into_iter().filter(|d| d.device_type() == DeviceType::Accelerator);
        let first = Some(best).filter(|&best| best != cpu);
        // One place is the CPU's.
        let devices = first.into_iter().chain(accelerators).take(SchedBuilder::MAX_BACKENDS - 1).chain([cpu]);
        let add = |builder: SchedBuilder, backend: Result<Backend>| Ok(builder.backend(backend?));
        devices.map(Device::init).try_fold(SchedBuilder::new(), add)?.build()
    }
}

impl Settings {
    /// The bytes that the C scheduler allocates for graphs of `capacity` tensors, rounded up: for each, room for 30 inputs of
    /// a split twice, as headers and as numbers in four lists; its graph; and two tables with a place for each copy.
    pub(super) fn bytes_of_tables(&self, capacity: usize, n_backends: usize) -> usize {
        const SPLIT_INPUTS: usize = 2 * 30;
        const MAX_COPIES: usize = 4;
        let copies = if self.parallel { MAX_COPIES } else { 1 };
        let each =
            SPLIT_INPUTS * (size_of::<sys::ggml_tensor>() + 4 * size_of::<i32>()) + 2 * n_backends * copies * 16 + 128;
        capacity.saturating_mul(each)
    }

    /// The kinds of memory that these backends compute in.
    pub(super) fn buffer_types(&self, backends: &[Backend]) -> Vec<BufferType> {
        let usual = backends.iter().map(|b| b.device().buffer_type());
        usual.zip(&self.memory).map(|(usual, wanted)| wanted.unwrap_or(usual)).collect()
    }
}

/// Checks that a scheduler can work with these backends.
pub(super) fn check(backends: &[Backend], settings: &Settings) -> Result<()> {
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
    let devices = || backends.iter().map(Backend::device);
    if devices().any(meta::is_meta) {
        if settings.parallel || devices().filter(|&d| meta::is_meta(d)).count() > 1 {
            return refuse(
                "of several devices that work as one there may be one, and no copies of its inputs (`parallel`)",
            );
        }
        if devices().any(meta::is_host) && devices().any(|d| !meta::is_meta(d) && d.device_type() != DeviceType::Cpu) {
            return refuse("beside several CPUs that work as one there may be CPUs only");
        }
    }
    if !backends.iter().zip(settings.buffer_types(backends)).all(|(b, buft)| computes_in(b, buft)) {
        return refuse("a backend was given memory that its device can't compute in");
    }
    Ok(())
}

/// Whether any tensor can lie in memory of that type and be used by the backend. Devices also support types that hold
/// weights only, in an order of their own (H27): those are neither the device's usual type nor host memory.
fn computes_in(backend: &Backend, buft: BufferType) -> bool {
    let device = backend.device();
    device.supports_buffer_type(buft) && (buft == device.buffer_type() || buft.is_host())
}
