//! Whether the plan of the last graph serves for the next one.
//!
//! ggml compares only the numbers of nodes and leaves and each tensor's size, so that a graph of another topology would
//! get a plan in which live tensors overlap (H22, H23). This compares everything that a plan depends on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::bound::Bound;
use super::placement::Placement;
use crate::buffer::{self, BufferType};
use crate::device::meta;
use crate::error::{Error, Result};
use crate::graph::{Entry, Graph, Kind, Lists};
use crate::header::{TensorFingerprint, TensorPtr};
use crate::rules::meta as divisions;

/// What a plan depends on, of one tensor.
struct Key {
    fingerprint: TensorFingerprint,
    /// Where in memory of the graph's a view begins. Where in placed memory it does counts for nothing: it lies there
    /// already. A decoder's views of its cache wander. What is checked of operations when they are planned must not depend
    /// on it.
    view_offs: usize,
    root: u32,
    mask: u16,
    kind: Kind,
    /// For placed leaves, what they lie in: that, and whose they are, decides where operations run. The buffer itself does
    /// not, and another one may get its address.
    buffer_type: Option<BufferType>,
}

/// The topology of the graph that was planned last, and where the last graph of that kind was put.
#[derive(Default)]
pub(crate) struct Plan {
    keys: Vec<Key>,
    /// The entries of all entries' sources.
    srcs: Vec<u32>,
    /// Where the last graph was put.
    placement: Option<Arc<Placement>>,
    /// Whether the next graph of that kind may lie there, too, without asking the allocator.
    reusable: bool,
    /// Where that graph's lists were.
    lists: Option<Lists>,
    plans: usize,
    /// Where weights lay that are divided among devices, and how.
    divided: Vec<(usize, meta::State)>,
    id: u64,
    /// How many tensors were given memory by this plan on a meta device.
    used: usize,
}

impl Plan {
    /// Whether the plan was made for a graph like this one.
    pub(crate) fn fits(&self, graph: &Graph<'_>) -> bool {
        let entries = graph.entries();
        self.used <= divisions::most_used(entries.len())
            && entries.len() == self.keys.len()
            && graph.all_srcs() == self.srcs
            && entries.iter().zip(&self.keys).enumerate().all(|(i, (e, key))| fits(i, e, key))
            && divisions::places(graph) == self.divided
    }

    /// Remembers the graph.
    pub(crate) fn set(&mut self, graph: &Graph<'_>) -> Result<()> {
        self.clear();
        let no_memory = |_| Error::no_memory("the plan of a graph");
        self.srcs.try_reserve(graph.all_srcs().len()).map_err(no_memory)?;
        self.keys.try_reserve(graph.entries().len()).map_err(no_memory)?;
        self.plans += 1;
        self.id = next_id();
        self.used = 0;
        self.divided = divisions::places(graph);
        self.srcs.extend_from_slice(graph.all_srcs());
        self.keys.extend(graph.entries().iter().map(|e| Key {
            fingerprint: e.ptr.fingerprint(),
            view_offs: e.ptr.view_offs(),
            root: e.root,
            mask: e.mask,
            kind: e.kind,
            buffer_type: buffer_type(e),
        }));
        Ok(())
    }

    /// Forgets the plan: the next graph is planned anew.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.srcs.clear();
        self.forget();
    }

    /// Notes where C has just put a graph that fits. `reusable`: whether the next one may lie there without another
    /// allocation; `whole`: see [`Placement`].
    pub(crate) fn record(&mut self, bound: &mut Bound<'_, '_>, reusable: bool, whole: bool) -> Result<()> {
        let graph = bound.graph();
        self.forget();
        // One that a forgotten allocation still has stays as it is.
        let mut placement = self.placement.take().filter(|p| Arc::strong_count(p) == 1).unwrap_or_default();
        if let Some(placement) = Arc::get_mut(&mut placement) {
            placement.note(graph, whole)?;
        }
        self.reusable = reusable && placement.is_plain();
        self.lists = Some(graph.lists());
        bound.place(Arc::clone(&placement));
        self.placement = Some(placement);
        Ok(())
    }

    /// Whether a graph may be put back.
    pub(crate) fn is_recorded(&self) -> bool {
        self.reusable
    }

    /// Forgets where the last graph was put: the next one is allocated by ggml.
    pub(crate) fn forget(&mut self) {
        self.reusable = false;
    }

    /// Puts a graph that fits where the last one was, if it is made of the very same tensors, in the very same lists: the
    /// scheduler goes on to look at those, and they may hold another graph by now, or be no more. A decoder that resets its
    /// context and builds the same again gets the same tensors and lists again.
    pub(crate) fn put_back(&self, bound: &mut Bound<'_, '_>) -> bool {
        let graph = bound.graph();
        let placement = self.placement.as_ref().filter(|_| self.reusable && self.lists == Some(graph.lists()));
        let Some(placement) = placement.filter(|p| p.is_of(graph)) else { return false };
        bound.place(Arc::clone(placement));
        true
    }

    /// Counts an allocation on a meta device, where C keeps some kilobytes for each tensor at each address: after too many, a
    /// plan is of no more use.
    pub(crate) fn count(&mut self, graph: &Graph<'_>) {
        self.used += graph.entries().len();
    }

    /// Tells the plan from all others.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// How many plans there were.
    pub(crate) fn plans(&self) -> usize {
        self.plans
    }
}

/// A number for a plan that no other has.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[inline]
fn fits(i: usize, e: &Entry, key: &Key) -> bool {
    let is_view = e.root as usize != i;
    let wanders = e.views_placed();
    // What a view of placed memory has for parameters is where it begins, a closure its address: no plan depends on either.
    let params = !(wanders && e.ptr.op() == sys::GGML_OP_VIEW || TensorPtr::is_custom(e.ptr));
    (e.root, e.mask, e.kind) == (key.root, key.mask, key.kind)
        && e.ptr.is_like(&key.fingerprint, params)
        && (!is_view || wanders || e.ptr.view_offs() == key.view_offs)
        && buffer_type(e) == key.buffer_type
}

/// For placed leaves, what they lie in.
#[inline]
fn buffer_type(e: &Entry) -> Option<BufferType> {
    if e.is_allocated_by_graph() { None } else { buffer::type_of(e.ptr) }
}
