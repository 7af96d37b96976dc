//! Whether the plan of the last graph serves for the next one.
//!
//! ggml compares only the numbers of nodes and leaves and each tensor's size, so that a graph of another topology would
//! get a plan in which live tensors overlap (H22, H23). This compares everything that a plan depends on.

use ggml_sys as sys;

use crate::buffer::{self, BufferType};
use crate::graph::Graph;
use crate::ops::custom;
use crate::tensor::ptr::Owner;

/// What a plan depends on, of one tensor.
#[derive(PartialEq, Eq)]
struct Key {
    op: sys::ggml_op,
    params: [i32; 16],
    dtype: sys::ggml_type,
    ne: [i64; 4],
    nb: [usize; 4],
    flags: i32,
    /// Positions of the sources in their places, and of the tensor whose memory a view shares.
    srcs: [Option<usize>; sys::GGML_MAX_SRC as usize],
    root: Option<usize>,
    view_offs: usize,
    /// For placed leaves, whose they are and what they lie in: that decides where operations run. The buffer itself does
    /// not, and another one may get its address.
    place: Option<(Owner, Option<BufferType>)>,
}

/// The topology of the graph that was planned last.
#[derive(Default)]
pub(crate) struct Plan {
    keys: Vec<Key>,
}

impl Plan {
    /// Whether the plan was made for a graph like this one.
    pub(crate) fn fits(&self, graph: &Graph<'_>) -> bool {
        let n = graph.entries().len();
        n == self.keys.len() && keys(graph).zip(&self.keys).all(|(a, b)| a == *b)
    }

    /// Remembers the graph.
    pub(crate) fn set(&mut self, graph: &Graph<'_>) {
        self.keys.clear();
        self.keys.extend(keys(graph));
    }

    /// Forgets the plan: the next graph is planned anew.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }
}

fn keys<'g>(graph: &'g Graph<'_>) -> impl Iterator<Item = Key> + 'g {
    graph.entries().iter().map(|e| {
        let t = e.ptr;
        Key {
            op: t.op(),
            // Those of a closure are its address, on which no plan depends.
            params: if custom::is_custom(t) { [0; 16] } else { t.op_params() },
            dtype: t.raw_type(),
            ne: t.ne(),
            nb: t.nb(),
            flags: t.flags(),
            srcs: t.slots().map(|src| graph.position(src?)),
            root: t.view_src().and_then(|root| graph.position(root)),
            view_offs: t.view_offs(),
            place: (!e.is_allocated_by_graph()).then(|| (t.owner(), buffer::type_of(t))),
        }
    })
}
