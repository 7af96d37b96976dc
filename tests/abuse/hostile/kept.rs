//! Allocations that live longer than the call in which they were made.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use ggml::prelude::*;
use ggml::{GraphAllocator, GraphMemory, Result};

use super::assault::Scene;
use crate::execute;
use crate::finish;
use crate::program::World;

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

/// A graph with memory, and the scheduler or allocator that has it. Field order is drop order.
pub(crate) enum Kept {
    Sched(ManuallyDrop<Allocated<'static, 'static>>, SchedOwner),
    Allocator(ManuallyDrop<GraphMemory<'static, 'static>>, AllocatorOwner),
}

pub(crate) struct SchedOwner(Lender<Sched>);
pub(crate) struct AllocatorOwner(Lender<GraphAllocator>);

impl Kept {
    /// Allocates `graph` on a scheduler of its own.
    pub(crate) fn sched(sched: Sched, graph: &'static Graph<'static>) -> Result<Self> {
        let (mut lender, sched) = Lender::new(sched);
        match sched.alloc(graph) {
            Ok(run) => Ok(Self::Sched(ManuallyDrop::new(run), SchedOwner(lender))),
            Err(e) => {
                // SAFETY: there is no allocation.
                unsafe { lender.end() };
                Err(e)
            }
        }
    }

    /// Allocates `graph` on an allocator of its own.
    pub(crate) fn allocator(allocator: GraphAllocator, graph: &'static Graph<'static>) -> Result<Self> {
        let (mut lender, allocator) = Lender::new(allocator);
        match allocator.alloc(graph) {
            Ok(run) => Ok(Self::Allocator(ManuallyDrop::new(run), AllocatorOwner(lender))),
            Err(e) => {
                // SAFETY: there is no allocation.
                unsafe { lender.end() };
                Err(e)
            }
        }
    }

    /// Computes, whatever comes of it.
    pub(crate) fn compute(&mut self) -> Result<()> {
        match self {
            Self::Sched(run, _) => run.compute(),
            Self::Allocator(run, _) => run.compute(&mut Backend::cpu()?),
        }
    }

    /// Forgets the allocation, and drops what it was made with or forgets that too.
    #[expect(clippy::mem_forget, reason = "safe code may do that")]
    pub(crate) fn forget(mut self, all: bool) {
        if !all {
            match &mut self {
                // SAFETY: the allocation is forgotten below, and not dropped.
                Self::Sched(_, owner) => unsafe { owner.0.end() },
                // SAFETY: as above.
                Self::Allocator(_, owner) => unsafe { owner.0.end() },
            }
        }
        std::mem::forget(self);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        match self {
            Self::Sched(run, owner) => {
                // SAFETY: dropped once, here.
                unsafe { ManuallyDrop::drop(run) };
                // SAFETY: the allocation is gone.
                unsafe { owner.0.end() };
            }
            Self::Allocator(run, owner) => {
                // SAFETY: dropped once, here.
                unsafe { ManuallyDrop::drop(run) };
                // SAFETY: the allocation is gone.
                unsafe { owner.0.end() };
            }
        }
    }
}

/// Checks that what was kept computes what it should, and that none disturbs another.
pub(super) fn check(world: &mut World, rng: &mut fastrand::Rng, scene: &Scene<'_>, kept: &mut Vec<Kept>) {
    let mut all = Vec::new();
    for kept in kept.iter_mut() {
        let computed = match kept {
            Kept::Sched(run, _) => finish::finish(world, rng, scene.bench, run, &scene.outputs, scene.leaves),
            Kept::Allocator(run, _) => finish::finish_memory(world, scene.bench, run, &scene.outputs, scene.leaves),
        };
        if let Some(computed) = &computed {
            execute::compare(&mut world.stats, &scene.chosen, computed);
        }
        all.push(computed);
    }
    // Results stay where they are until their allocation computes again.
    for (kept, computed) in kept.iter().zip(&all) {
        if let (Kept::Sched(run, _), Some(computed)) = (kept, computed) {
            for (&t, before) in scene.outputs.iter().zip(&computed.values) {
                assert!(finish::bytes(run, t) == *before, "another allocation changed {t:?}");
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
