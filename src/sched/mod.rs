//! The scheduler: one graph over several devices.

mod builder;
mod divided;
mod failure;
mod pins;
mod raw;
mod splitter;

use std::slice;

use crate::alloc::{GraphAllocator, Places};
use crate::backend::{Backend, Id};
use crate::buffer::BufferType;
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
/// let mut run = sched.alloc(&graph)?;
/// run.set(x, &[3.0_f32, 4.0])?;
/// run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [9.0, 16.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Why `&mut`?
///
/// A scheduler holds one graph at a time: [`Sched::alloc`] borrows it for as long as that graph has memory.
#[doc(alias = "ggml_backend_sched_t")]
#[doc(alias = "ggml_backend_sched_free")]
pub struct Sched(Parts);

/// What a scheduler is made of.
enum Parts {
    /// One backend, whose graphs need no splits and no copies. ggml's scheduler takes longer than its allocator to plan
    /// them.
    One(One),
    /// Several backends, or pipeline copies.
    Many(Splitter),
}

struct One {
    allocator: GraphAllocator,
    backend: Backend,
    settings: Settings,
    /// The backend that was checked last.
    checked: Id,
}

/// What allocates a graph, and computes it.
pub(crate) enum Engine<'s> {
    /// An allocator, and the backend that computes in its memory.
    One(&'s mut GraphAllocator, &'s mut Backend),
    /// ggml's scheduler with its backends.
    Many(&'s mut Splitter),
}

impl Sched {
    /// Starts to build a scheduler.
    pub fn builder() -> SchedBuilder {
        SchedBuilder::new()
    }

    fn new(mut backends: Vec<Backend>, settings: Settings) -> Self {
        Self(match backends.pop() {
            Some(backend) if backends.is_empty() && !settings.parallel => Parts::One(One::new(backend, settings)),
            last => {
                backends.extend(last);
                Parts::Many(Splitter::new(backends, settings))
            }
        })
    }

    /// The backends, in order of priority (`ggml_backend_sched_get_backend`).
    #[doc(alias = "ggml_backend_sched_get_backend")]
    #[doc(alias = "ggml_backend_sched_get_n_backends")]
    pub fn backends(&self) -> &[Backend] {
        match &self.0 {
            Parts::One(one) => slice::from_ref(&one.backend),
            Parts::Many(splitter) => &splitter.backends,
        }
    }

    /// Each backend's buffer type, in the order of [`Sched::backends`] (`ggml_backend_sched_get_buffer_type`).
    #[doc(alias = "ggml_backend_sched_get_buffer_type")]
    pub fn buffer_types(&self) -> Vec<BufferType> {
        match &self.0 {
            Parts::One(one) => one.allocator.buffer_types().into(),
            Parts::Many(splitter) => splitter.buffer_types(),
        }
    }

    /// A backend by index, to change its settings or to replace it.
    pub fn backend_mut(&mut self, i: usize) -> Option<&mut Backend> {
        match &mut self.0 {
            Parts::One(one) => slice::from_mut(&mut one.backend).get_mut(i),
            Parts::Many(splitter) => splitter.backends.get_mut(i),
        }
    }

    /// How many plans were made: one for each graph that differs from the previous one. A decoder whose shapes stay the
    /// same plans once.
    pub fn plans(&self) -> usize {
        match &self.0 {
            Parts::One(one) => one.allocator.plans(),
            Parts::Many(splitter) => splitter.plans(),
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
            match &mut self.0 {
                Parts::One(one) => {
                    let (allocator, backend) = one.checked(graph, &pins)?;
                    allocator.plan_for(graph, Places::default(), Some(backend.device()))
                }
                Parts::Many(splitter) => splitter.prepare(graph, pins),
            }
        })
    }

    /// The bytes that `graph` would need on each backend, in their order, without allocating them
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
        log::public(|| {
            graph.check_free("Sched::reserve_size")?;
            match &mut self.0 {
                Parts::One(one) => {
                    let (allocator, backend) = one.checked(graph, &Pins::default())?;
                    allocator.measure(graph, &Places::default(), Some(backend.device()))
                }
                Parts::Many(splitter) => splitter.sizes(graph),
            }
        })
    }

    /// What is to allocate `graph` now.
    pub(crate) fn engine(&mut self, graph: &Graph<'_>, pins: &Pins) -> Result<Engine<'_>> {
        Ok(match &mut self.0 {
            Parts::One(one) => {
                let (allocator, backend) = one.checked(graph, pins)?;
                Engine::One(allocator, backend)
            }
            Parts::Many(splitter) => Engine::Many(splitter),
        })
    }
}

impl One {
    /// The backend and the settings have passed [`builder::check`].
    fn new(backend: Backend, settings: Settings) -> Self {
        let allocator = GraphAllocator::over(settings.buffer_types(slice::from_ref(&backend)).into(), None);
        let checked = backend.id();
        Self { allocator, backend, settings, checked }
    }

    /// Its parts, after a check that the backend, which may have been replaced, can run what is pinned to it.
    fn checked(&mut self, graph: &Graph<'_>, pins: &Pins) -> Result<(&mut GraphAllocator, &mut Backend)> {
        self.backend.check()?;
        let backends = slice::from_ref(&self.backend);
        if self.backend.id() != self.checked {
            builder::check(backends, &self.settings)?;
            self.allocator = GraphAllocator::over(self.settings.buffer_types(backends).into(), None);
            self.checked = self.backend.id();
        }
        pins.check(graph, backends)?;
        Ok((&mut self.allocator, &mut self.backend))
    }
}

debug!(Sched, |this| backends = &this.backends());
