//! Builds a scheduler.

use std::slice;

use ggml_sys as sys;

use super::Sched;
use crate::alloc::GraphAllocator;
use crate::backend::{Backend, names};
use crate::buffer::BufferType;
use crate::callback;
use crate::device::meta;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result};

/// Collects a scheduler's backends and settings (`ggml_backend_sched_new`).
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = Sched::builder();
/// if let Ok(gpu) = Device::by_type(DeviceType::Gpu) {
///     builder = builder.backend(gpu.init()?); // gets what it can compute
/// }
/// let sched = builder.backend(Backend::cpu()?).op_offload(false).build()?;
/// assert_eq!(sched.backends().last().map(|b| b.name()), Some("CPU".into()));
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SchedBuilder {
    backends: Vec<Backend>,
    settings: Settings,
}

/// The settings of a C scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The buffer type of each backend; `None` for the default of the backend's device.
    pub(super) memory: Vec<Option<BufferType>>,
    pub(super) parallel: bool,
    pub(super) op_offload: bool,
}

impl SchedBuilder {
    /// The maximum number of backends of a scheduler (`GGML_SCHED_MAX_BACKENDS`).
    pub const MAX_BACKENDS: usize = 16;

    pub(super) fn new() -> Self {
        Self { backends: Vec::new(), settings: Settings { memory: Vec::new(), parallel: false, op_offload: true } }
    }

    /// Adds a backend. The first has the highest priority; the last must be a CPU.
    pub fn backend(self, backend: Backend) -> Self {
        self.add(backend, None)
    }

    /// Adds a backend as [`SchedBuilder::backend`] does, and sets the buffer type of its results: the default of the
    /// backend's device, or host memory that the device can use. For a CPU beside a GPU, the GPU's
    /// [`Device::host_buffer_type`](crate::Device::host_buffer_type) makes copies faster.
    pub fn backend_with(self, backend: Backend, buft: BufferType) -> Self {
        self.add(backend, Some(buft))
    }

    fn add(mut self, backend: Backend, memory: Option<BufferType>) -> Self {
        self.backends.push(backend);
        self.settings.memory.push(memory);
        self
    }

    /// Sets whether to keep several copies of inputs and of tensors copied between devices ([`Run::n_copies`]), so that
    /// devices with events wait for each other and the host does not. Off by default.
    ///
    /// Consecutive allocations use the copies in turn.
    ///
    /// [`Run::n_copies`]: crate::Run::n_copies
    pub fn parallel(mut self, yes: bool) -> Self {
        self.settings.parallel = yes;
        self
    }

    /// Sets whether a GPU may run large operations whose weights lie in host memory. On by default.
    pub fn op_offload(mut self, yes: bool) -> Self {
        self.settings.op_offload = yes;
        self
    }

    /// Builds the scheduler.
    ///
    /// # Errors
    ///
    /// [`Error::Backends`] unless there are 1 to [`SchedBuilder::MAX_BACKENDS`] backends, the last is a CPU, and each
    /// can compute in its buffer type.
    #[doc(alias = "ggml_backend_sched_new")]
    pub fn build(self) -> Result<Sched> {
        callback::check_reentry("SchedBuilder::build")?;
        check(&self.backends, &self.settings)?;
        Ok(Sched::new(self.backends, self.settings))
    }
}

impl Sched {
    /// A scheduler over what this machine has: the first GPU, or else the first integrated one, if there is any; then
    /// all accelerators, such as BLAS, in ggml's order; the CPU last.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [2])?;
    /// let y = ctx.sqr(x)?;
    /// let graph = ctx.graph([y])?;
    /// let mut sched = Sched::best()?;
    /// assert_eq!(sched.run(&graph, (x, &[3.0_f32, 4.0]))?.get::<f32>(y)?, [9.0, 16.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Device::all`] and [`Device::init`]; [`Error::NoSuch`] if there is no CPU device, such as before
    /// [`Registry::load_all`](crate::Registry::load_all) in a program that loads its backends.
    pub fn best() -> Result<Self> {
        callback::check_reentry("Sched::best")?;
        let (best, cpu) = (Device::best()?, Device::cpu()?);
        let all = Device::all()?;
        let accelerators = all.into_iter().filter(|d| d.device_type() == DeviceType::Accelerator);
        let first = Some(best).filter(|&best| best != cpu);
        // One of the scheduler's places for backends is kept for the CPU.
        let devices = first.into_iter().chain(accelerators).take(SchedBuilder::MAX_BACKENDS - 1).chain([cpu]);
        let add = |builder: SchedBuilder, backend: Result<Backend>| -> Result<_> { Ok(builder.backend(backend?)) };
        devices.map(Device::init).try_fold(SchedBuilder::new(), add)?.build()
    }
}

impl Settings {
    /// An upper bound of the bytes that the C scheduler allocates for graphs of `capacity` tensors. Each tensor takes
    /// headers and entries of four lists of indices, for twice 30 split inputs; a place in the graph; and elements of
    /// two tables, for each copy.
    pub(super) fn bytes_of_tables(&self, capacity: usize, n_backends: usize) -> usize {
        const SPLIT_INPUTS: usize = 2 * 30;
        const MAX_COPIES: usize = 4;
        let copies = if self.parallel { MAX_COPIES } else { 1 };
        let each =
            SPLIT_INPUTS * (size_of::<sys::ggml_tensor>() + 4 * size_of::<i32>()) + 2 * n_backends * copies * 16 + 128;
        capacity.saturating_mul(each)
    }

    /// An allocator for the only backend of a scheduler.
    pub(super) fn allocator(&self, backend: &Backend) -> GraphAllocator {
        GraphAllocator::over(self.buffer_types(slice::from_ref(backend)).into(), None)
    }

    /// The buffer types in which these backends compute.
    pub(super) fn buffer_types(&self, backends: &[Backend]) -> Vec<BufferType> {
        let usual = backends.iter().map(|b| b.device().buffer_type());
        usual.zip(&self.memory).map(|(usual, wanted)| wanted.unwrap_or(usual)).collect()
    }
}

/// Checks that a scheduler can work with these backends, and with the settings' buffer types.
pub(super) fn check(backends: &[Backend], settings: &Settings) -> Result<()> {
    let refuse = |reason| Err(Error::Backends { reason, backends: names(backends).into() });
    if backends.len() > SchedBuilder::MAX_BACKENDS {
        return refuse("there are more than 16 backends; remove some");
    }
    if backends.last().is_none_or(|b| b.device().device_type() != DeviceType::Cpu) {
        return refuse("the last backend must be a CPU, which takes what the others can't run; add Backend::cpu()");
    }
    let devices = || backends.iter().map(Backend::device);
    if devices().any(meta::is_meta) {
        if settings.parallel || devices().filter(|&d| meta::is_meta(d)).count() > 1 {
            return refuse("use one meta device at most, and turn `parallel` off beside it");
        }
        if devices().any(meta::is_host) && devices().any(|d| !meta::is_meta(d) && d.device_type() != DeviceType::Cpu) {
            return refuse("a meta device of CPUs combines with CPU backends only; remove the others");
        }
    }
    if !backends.iter().zip(settings.buffer_types(backends)).all(|(b, buft)| computes_in(b, buft)) {
        return refuse("a backend can't compute in its buffer type; use its device's or a host buffer type");
    }
    Ok(())
}

/// Whether the backend can compute with any tensor in this buffer type. Devices also support repacking types, which
/// hold weights only (H27). Such a type is neither the device's default nor host memory.
fn computes_in(backend: &Backend, buft: BufferType) -> bool {
    let device = backend.device();
    device.supports_buffer_type(buft) && (buft == device.buffer_type() || buft.is_host())
}
