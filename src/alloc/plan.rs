//! Whether the plan of the last graph serves for the next one.
//!
//! ggml compares only the numbers of nodes and leaves and each tensor's size, so that a graph of another topology would
//! get a plan in which live tensors overlap (H22, H23). This compares everything that a plan depends on.

use ggml_sys as sys;

use crate::buffer::{self, BufferType};
use crate::graph::{Entry, Graph, Kind};
use crate::tensor::ptr::{Facts, Owner};

/// What a plan depends on, of one tensor.
struct Key {
    facts: Facts,
    /// Where in memory of the graph's a view begins. Where in placed memory it does is left out: it lies there already. A
    /// decoder's views of its cache wander.
    view_offs: usize,
    root: u32,
    mask: u16,
    kind: Kind,
    /// For placed leaves, whose they are and what they lie in: that decides where operations run. The buffer itself does
    /// not, and another one may get its address.
    place: Option<(Owner, Option<BufferType>)>,
}

/// The topology of the graph that was planned last.
#[derive(Default)]
pub(crate) struct Plan {
    keys: Vec<Key>,
    /// The entries of all entries' sources.
    srcs: Vec<u32>,
    plans: usize,
}

impl Plan {
    /// Whether the plan was made for a graph like this one.
    pub(crate) fn fits(&self, graph: &Graph<'_>) -> bool {
        let entries = graph.entries();
        entries.len() == self.keys.len()
            && graph.all_srcs() == self.srcs
            && entries.iter().zip(&self.keys).all(|(e, key)| fits(entries, e, key))
    }

    /// Remembers the graph.
    pub(crate) fn set(&mut self, graph: &Graph<'_>) {
        self.clear();
        self.plans += 1;
        let entries = graph.entries();
        self.srcs.extend_from_slice(graph.all_srcs());
        self.keys.extend(entries.iter().map(|e| Key {
            facts: e.ptr.facts(),
            view_offs: if views_placed(entries, e) { 0 } else { e.ptr.view_offs() },
            root: e.root,
            mask: e.mask,
            kind: e.kind,
            place: place(e),
        }));
    }

    /// Forgets the plan: the next graph is planned anew.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.srcs.clear();
    }

    /// How many plans there were.
    pub(crate) fn plans(&self) -> usize {
        self.plans
    }
}

#[inline]
fn fits(entries: &[Entry], e: &Entry, key: &Key) -> bool {
    let (root, mask, kind) = (e.root == key.root, e.mask == key.mask, e.kind == key.kind);
    if !(root && mask && kind) {
        return false;
    }
    let placed = views_placed(entries, e);
    // The parameters of a view are where it begins.
    let params = !(placed && e.ptr.op() == sys::GGML_OP_VIEW);
    e.ptr.is_like(&key.facts, params) && (placed || e.ptr.view_offs() == key.view_offs) && place(e) == key.place
}

/// Whether the entry is a view of memory that is not the graph's. What is checked of operations when they are planned must
/// not depend on where in it.
#[inline]
fn views_placed(entries: &[Entry], e: &Entry) -> bool {
    e.kind != Kind::Placed && entries.get(e.root as usize).is_some_and(|root| root.kind == Kind::Placed)
}

#[inline]
fn place(e: &Entry) -> Option<(Owner, Option<BufferType>)> {
    (e.kind == Kind::Placed).then(|| (e.ptr.owner(), buffer::type_of(e.ptr)))
}
