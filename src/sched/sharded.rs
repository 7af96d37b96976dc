//! Plans graphs that run in part on a meta device.

use ggml_sys as sys;

use super::Splitter;
use super::pins::Pins;
use super::raw::RawSched;
use crate::alloc::placement::AsBuilt;
use crate::alloc::plan::next_id;
use crate::backend::Backend;
use crate::device::meta;
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::TensorPtr;
use crate::rules::meta as meta_rules;

impl Splitter {
    pub(super) fn meta(&self) -> Option<&Backend> {
        self.backends.iter().find(|b| meta::is_meta(b.device()))
    }

    /// Prepares for a new plan: resets what ggml remembers of earlier graphs on a meta device, which may not hold for
    /// the next graph ([`Backend::serve`], [`meta_rules::places`]).
    pub(super) fn renew(&mut self) -> Result<()> {
        if self.meta().is_none() {
            return Ok(());
        }
        self.raw = None;
        let id = next_id();
        self.backends.iter_mut().try_for_each(|b| b.serve(id))
    }

    /// Checks the operations that ggml will give to a meta device. This runs before allocation, in which ggml would
    /// assert the same conditions.
    pub(super) fn check_sharded(&mut self, graph: &Graph<'_>, pins: &Pins) -> Result<()> {
        let Some(meta) = self.meta() else { return Ok(()) };
        let (device, meta) = (meta.device(), meta.as_ptr());
        let pins = self.pinned(graph, pins)?;
        let as_built = AsBuilt::after(graph);
        self.planning(|raw| {
            raw.reset()?;
            raw.pin(&pins)?;
            raw.split(graph.as_ptr())
        })?;
        let raw = self.raw.as_ref().ok_or(Error::Poisoned { object: "scheduler" })?;
        let entries = || graph.entries().iter();
        let on: Vec<bool> = entries().map(|e| raw.backend_of(e.ptr) == meta).collect();
        let place = |e: &Entry| graph.entries().position(e.ptr).and_then(|i| on.get(i)).copied().unwrap_or(false);
        let parts = parts(raw, entries().filter(|e| e.kind == Kind::Node).map(|e| e.ptr), meta);
        let n_splits = raw.n_splits();
        let done = self.planning(RawSched::reset);
        drop(as_built);
        done?;
        if parts.n != n_splits || parts.here > 1 {
            let reason = "a meta device computes a single split, without interruption: pin the operations in between to it, \
                          or make two graphs";
            return Err(refuse(&device.name(), None, reason));
        }
        if let Some(e) = entries().find(|e| parts.views.contains(&e.ptr) && !place(e)) {
            let reason = "it is a view of another device's memory, in a split of a meta device; give the input its final \
                          shape, or use `cont` before";
            return Err(refuse(&device.name(), Some(e.ptr), reason));
        }
        meta_rules::check(graph.entries(), device, place)
    }
}

/// What the splits of a graph say about a meta device.
struct Parts {
    n: usize,
    /// The number of splits that run on the meta device.
    here: usize,
    /// The views in splits on the meta device. No split begins with a view.
    views: Vec<TensorPtr>,
}

fn parts(raw: &RawSched, nodes: impl Iterator<Item = TensorPtr>, meta: *mut sys::ggml_backend) -> Parts {
    let mut parts = Parts { n: 0, here: 0, views: Vec::new() };
    let (mut last, mut views) = (None, Vec::new());
    for t in nodes {
        if t.is_view_op() {
            views.push(t);
            continue;
        }
        let backend = raw.backend_of(t);
        // Views before the first operation belong to the split of that operation, all others to the preceding split.
        if last.unwrap_or(backend) == meta {
            parts.views.append(&mut views);
        }
        views.clear();
        if last != Some(backend) {
            parts.n += 1;
            parts.here += usize::from(backend == meta);
        }
        last = Some(backend);
    }
    if last == Some(meta) {
        parts.views.append(&mut views);
    }
    parts
}

fn refuse(device: &str, t: Option<TensorPtr>, reason: &'static str) -> Error {
    let op = t.map_or_else(|| "Sched".to_owned(), TensorPtr::op_name);
    let operands = t.into_iter().flat_map(|t| t.sources().chain([t])).map(TensorPtr::info);
    Error::unsupported(op, operands, device, reason)
}
