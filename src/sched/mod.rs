//! The scheduler: one graph over several devices.

mod builder;
mod failure;
mod pins;
mod raw;
mod sharded;
mod splitter;

use std::slice;

use crate::alloc::{GraphAllocator, Places};
use crate::backend::{Backend, BackendId};
use crate::buffer::BufferType;
use crate::callback;
use crate::debug::debug;
use crate::error::Result;
use crate::graph::Graph;
use crate::log;
use crate::tensor::Tensor;
use builder::Settings;

pub use builder::SchedBuilder;
pub(crate) use pins::Pins;
pub(crate) use raw::RawSched;
pub(crate) use splitter::Splitter;

/// Splits graphs over several backends, allocates their memory, copies tensors between devices and computes
/// (`ggml_backend_sched_t`).
///
/// Each operation runs where its weights lie, or else on the first backend that supports it. The scheduler grows to fit
/// its graphs, and plans anew whenever a graph differs from the previous one.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [2])?;
/// let y = ctx.sqr(x)?;
/// let graph = ctx.graph([y])?;
/// let mut sched = Sched::best()?; // the best GPU, beside the CPU
/// assert_eq!(sched.run(&graph, (x, &[3.0_f32, 4.0]))?.get::<f32>(y)?, [9.0, 16.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Why `&mut`?
///
/// A scheduler holds one graph at a time: [`Sched::alloc`] borrows it for as long as that graph has memory.
///
/// # Threads
///
/// A scheduler is `Send`, not `Sync`: move it to the thread that computes. Where one is shared, as in an
/// `Arc<Sched>` for several threads, the compiler says that something "cannot be shared between threads safely" and
/// "appears within the type `Sched`". Give each worker a scheduler, which may share its [`Weights`](crate::Weights), or
/// put it into a [`Mutex`](std::sync::Mutex). [`guide::service`](crate::guide::service) has workers on tokio.
#[doc(alias = "ggml_backend_sched_t")]
#[doc(alias = "ggml_backend_sched_free")]
pub struct Sched {
    engine: Engine,
    settings: Settings,
    /// The only backend, as it was when it was last checked. Where there are several, their splitter checks them.
    checked: Option<BackendId>,
}

/// What allocates and computes graphs. A scheduler owns an engine, and a run borrows one.
pub(crate) enum Engine<A = GraphAllocator, B = Backend, S = Splitter> {
    /// One backend, and the allocator of its memory. Graphs need no splits and no copies, and ggml's scheduler would
    /// take longer to plan them.
    One(A, B),
    /// ggml's scheduler, for several backends or pipeline copies.
    Many(S),
}

pub(crate) type EngineMut<'s> = Engine<&'s mut GraphAllocator, &'s mut Backend, &'s mut Splitter>;

impl Sched {
    /// Starts to build a scheduler.
    pub fn builder() -> SchedBuilder {
        SchedBuilder::new()
    }

    /// Makes a scheduler of backends and settings that have passed [`builder::check`].
    fn new(mut backends: Vec<Backend>, settings: Settings) -> Self {
        let (engine, checked) = match backends.pop() {
            Some(backend) if backends.is_empty() && !settings.parallel => {
                let checked = Some(backend.id());
                (Engine::One(settings.allocator(&backend), backend), checked)
            }
            last => {
                backends.extend(last);
                (Engine::Many(Splitter::new(backends, settings.clone())), None)
            }
        };
        Self { engine, settings, checked }
    }

    /// The backends, in order of priority (`ggml_backend_sched_get_backend`).
    #[doc(alias = "ggml_backend_sched_get_backend")]
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
    pub fn backends(&self) -> &[Backend] {
        match &self.engine {
            Engine::One(_, backend) => slice::from_ref(backend),
            Engine::Many(splitter) => &splitter.backends,
        }
    }

    /// Each backend's buffer type, in the order of [`Sched::backends`] (`ggml_backend_sched_get_buffer_type`).
    #[doc(alias = "ggml_backend_sched_get_buffer_type")]
    pub fn buffer_types(&self) -> Vec<BufferType> {
        self.settings.buffer_types(self.backends())
    }

    /// A backend by index, to change its settings or to replace it.
    pub fn backend_mut(&mut self, i: usize) -> Option<&mut Backend> {
        match &mut self.engine {
            Engine::One(_, backend) => slice::from_mut(backend).get_mut(i),
            Engine::Many(splitter) => splitter.backends.get_mut(i),
        }
    }

    /// How many plans were made: one for each graph that differs from the previous one. For a decoder whose shapes stay
    /// the same, one plan is made.
    pub fn plans(&self) -> usize {
        match &self.engine {
            Engine::One(allocator, _) => allocator.plans(),
            Engine::Many(splitter) => splitter.plan.plans(),
        }
    }

    /// Allocates memory for graphs like this one, in advance (`ggml_backend_sched_reserve`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// let longest = ctx.graph([ctx.sqr(ctx.input("x", DType::F32, [4096])?)?])?;
    /// sched.reserve(&longest)?; // before the first request comes
    /// assert_eq!(sched.plans(), 1);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`].
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, graph: &Graph<'_>) -> Result<()> {
        callback::check_reentry("Sched::reserve")?;
        self.plan_for("Sched::reserve", graph, &[])
    }

    /// Reserves as [`Sched::reserve`] does, with the pins of [`Sched::alloc_pinned`].
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc_pinned`], except for what is known only after allocation.
    pub fn reserve_pinned(&mut self, graph: &Graph<'_>, pins: &[(Tensor<'_>, usize)]) -> Result<()> {
        self.plan_for("Sched::reserve_pinned", graph, pins)
    }

    fn plan_for(&mut self, call: &'static str, graph: &Graph<'_>, pins: &[(Tensor<'_>, usize)]) -> Result<()> {
        let pins = Pins::new(call, graph, self.backends().len(), pins)?;
        log::public(|| {
            graph.check_free(call)?;
            match self.engine(graph, &pins)? {
                Engine::One(allocator, backend) => allocator.plan_for(graph, Places::default(), Some(backend.device())),
                Engine::Many(splitter) => splitter.prepare(graph, pins),
            }
        })
    }

    /// The bytes that `graph` would need on each backend, in the order of the backends, without allocating them
    /// (`ggml_backend_sched_reserve_size`). Backends with the same buffer type share memory, counted for the first.
    ///
    /// Nothing is pinned here: a closure, which runs on the CPU, may be counted for another device. If the scheduler's
    /// memory is too small for this graph, it is freed.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let graph = ctx.graph([ctx.sqr(ctx.input("x", DType::F32, [1 << 20])?)?])?;
    /// let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// assert!(sched.reserve_size(&graph)?[0] >= 4 << 20); // bytes on the CPU, none of them allocated
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`], except for [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    #[doc(alias = "ggml_backend_sched_reserve_size")]
    pub fn reserve_size(&mut self, graph: &Graph<'_>) -> Result<Vec<usize>> {
        callback::check_reentry("Sched::reserve_size")?;
        log::public(|| {
            graph.check_free("Sched::reserve_size")?;
            match self.engine(graph, &Pins::default())? {
                Engine::One(allocator, backend) => allocator.measure(graph, &Places::default(), Some(backend.device())),
                Engine::Many(splitter) => splitter.sizes(graph),
            }
        })
    }

    /// The engine for `graph`. If there is only one backend, it may have been replaced, so it is first checked whether
    /// it can run what is pinned to it.
    pub(crate) fn engine(&mut self, graph: &Graph<'_>, pins: &Pins) -> Result<EngineMut<'_>> {
        Ok(match &mut self.engine {
            Engine::One(allocator, backend) => {
                backend.check()?;
                let backends = slice::from_ref(&*backend);
                if self.checked != Some(backend.id()) {
                    builder::check(backends, &self.settings)?;
                    *allocator = self.settings.allocator(backend);
                    self.checked = Some(backend.id());
                }
                pins.check(graph, backends)?;
                Engine::One(allocator, backend)
            }
            Engine::Many(splitter) => Engine::Many(splitter),
        })
    }
}

debug!(Sched, |this| backends = &this.backends());
