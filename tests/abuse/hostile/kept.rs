//! Allocations that live longer than the call in which they were made.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};

use super::assault::Scene;
use crate::execute;
use crate::finish;
use crate::program::{World, one};

/// A value that was lent to something that lives for ever, so long as that is kept here.
struct Lender<T>(NonNull<T>);

impl<T> Lender<T> {
    fn new(value: T) -> (Self, &'static mut T) {
        let raw = NonNull::from(Box::leak(Box::new(value)));
        // SAFETY: just leaked, and used through this reference alone until `Lender::end`.
        (Self(raw), unsafe { &mut *raw.as_ptr() })
    }

    /// # Safety
    ///
    /// The reference and all that was made of it must be gone, or forgotten.
    unsafe fn end(&mut self) {
        // SAFETY: leaked by `new`, and not freed since: callers end it once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A graph with memory, and the scheduler or allocator that has it.
pub(crate) struct Kept {
    run: ManuallyDrop<Run<'static, 'static>>,
    owner: Owner,
}

enum Owner {
    Sched(Lender<Sched>),
    Allocator(Lender<GraphAllocator>, Lender<Backend>),
}

impl Owner {
    /// # Safety
    ///
    /// As for [`Lender::end`].
    unsafe fn end(&mut self) {
        match self {
            // SAFETY: by this function's contract.
            Self::Sched(sched) => unsafe { sched.end() },
            Self::Allocator(allocator, backend) => {
                // SAFETY: by this function's contract.
                unsafe { allocator.end() };
                // SAFETY: as above.
                unsafe { backend.end() };
            }
        }
    }
}

impl Kept {
    /// Allocates `graph` on a scheduler of its own.
    pub(crate) fn sched(sched: Sched, graph: &'static Graph<'static>) -> Result<Self> {
        let (lender, sched) = Lender::new(sched);
        Self::new(sched.alloc(graph), Owner::Sched(lender))
    }

    /// Allocates `graph` on an allocator of its own.
    pub(crate) fn allocator(allocator: GraphAllocator, graph: &'static Graph<'static>) -> Result<Self> {
        let (backend_lender, backend) = Lender::new(one());
        let (lender, allocator) = Lender::new(allocator);
        Self::new(allocator.alloc(graph, backend), Owner::Allocator(lender, backend_lender))
    }

    fn new(run: Result<Run<'static, 'static>>, mut owner: Owner) -> Result<Self> {
        match run {
            Ok(run) => Ok(Self { run: ManuallyDrop::new(run), owner }),
            Err(e) => {
                // SAFETY: there is no allocation.
                unsafe { owner.end() };
                Err(e)
            }
        }
    }

    /// Computes, whatever comes of it.
    pub(crate) fn compute(&mut self) -> Result<()> {
        self.run.compute()
    }

    /// Forgets the allocation, and drops what it was made with or forgets that too.
    #[expect(clippy::mem_forget, reason = "safe code may do that")]
    pub(crate) fn forget(mut self, all: bool) {
        if !all {
            // SAFETY: the allocation is forgotten below, and not dropped.
            unsafe { self.owner.end() };
        }
        std::mem::forget(self);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.run) };
        // SAFETY: the allocation is gone.
        unsafe { self.owner.end() };
    }
}

/// Checks that what was kept computes what it should, and that none disturbs another.
pub(super) fn check(world: &mut World, rng: &mut fastrand::Rng, scene: &Scene<'_>, kept: &mut Vec<Kept>) {
    let mut all = Vec::new();
    for kept in kept.iter_mut() {
        let computed = finish::finish(world, rng, scene.bench, &mut kept.run, &scene.outputs, scene.leaves);
        if let Some(computed) = &computed {
            execute::compare(&mut world.stats, &scene.chosen, computed);
        }
        all.push(computed);
    }
    // Results stay where they are until their allocation computes again.
    for (kept, computed) in kept.iter().zip(&all) {
        if let Some(computed) = computed {
            for (&t, before) in scene.outputs.iter().zip(&computed.values) {
                assert!(finish::bytes(&kept.run, t) == *before, "another allocation changed {t:?}");
            }
        }
    }
    while !kept.is_empty() {
        let one = kept.swap_remove(rng.usize(..kept.len()));
        if world.leak && rng.u32(..8) == 0 {
            one.forget(rng.bool());
            world.stats.hostile.forgot += 1;
        }
    }
}
