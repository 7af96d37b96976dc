//! Whether the plan of the last graph serves for the next one.
//!
//! ggml compares only the numbers of nodes and leaves and each tensor's size, so that a graph of another topology would
//! get a plan in which live tensors overlap (H22, H23). This compares everything that a plan depends on.

use ggml_sys as sys;

use crate::buffer::{self, BufferType};
use crate::graph::{Entry, Graph, Kind};
use crate::ops::custom;
use crate::tensor::ptr::Facts;

/// What a plan depends on, of one tensor.
struct Key {
    facts: Facts,
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
            && entries.iter().zip(&self.keys).enumerate().all(|(i, (e, key))| fits(i, e, key))
    }

    /// Remembers the graph.
    pub(crate) fn set(&mut self, graph: &Graph<'_>) {
        self.clear();
        self.plans += 1;
        self.srcs.extend_from_slice(graph.all_srcs());
        self.keys.extend(graph.entries().iter().map(|e| Key {
            facts: e.ptr.facts(),
            view_offs: e.ptr.view_offs(),
            root: e.root,
            mask: e.mask,
            kind: e.kind,
            buffer_type: buffer_type(e),
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
fn fits(i: usize, e: &Entry, key: &Key) -> bool {
    let is_view = e.root as usize != i;
    let wanders = e.views_placed();
    // What a view of placed memory has for parameters is where it begins, a closure its address: no plan depends on either.
    let params = !(wanders && e.ptr.op() == sys::GGML_OP_VIEW || custom::is_custom(e.ptr));
    (e.root, e.mask, e.kind) == (key.root, key.mask, key.kind)
        && e.ptr.is_like(&key.facts, params)
        && (!is_view || wanders || e.ptr.view_offs() == key.view_offs)
        && buffer_type(e) == key.buffer_type
}

/// For placed leaves, what they lie in.
#[inline]
fn buffer_type(e: &Entry) -> Option<BufferType> {
    if e.is_allocated_by_graph() { None } else { buffer::type_of(e.ptr) }
}
