//! What a graph is made of, and the way there from its outputs, without recursion (H35).
//!
//! One pass finds the order, fills C's graph, and notes where each operation's sources are. Debug builds compare the result
//! with a graph that ggml makes (`checked`).

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use ggml_sys as sys;

use super::table::{Full, Slot, Table};
use super::{Entry, Kind};
use crate::error::{Error, Result};
use crate::header::{NumberedName, Owner, TensorPtr};
use crate::list;
use crate::lock::Lock;
use crate::rules::indices as index;

/// The lists of a graph: kept for the next one when it is dropped.
pub(super) struct Store {
    /// What C sees. It points into the lists, which don't change while a graph has them, and C may write to it: the
    /// scheduler numbers graphs, devices reorder nodes.
    raw: UnsafeCell<sys::ggml_sys_cgraph>,
    nodes: Vec<*mut sys::ggml_tensor>,
    leafs: Vec<*mut sys::ggml_tensor>,
    table: Table,
    pub(super) entries: Vec<Entry>,
    /// The entries of all entries' sources.
    pub(super) srcs: Vec<u32>,
    /// The operations that are closures.
    pub(super) closures: Vec<TensorPtr>,
    /// Inputs, or views of them, that name rows to write.
    pub(super) distinct: Vec<TensorPtr>,
    path: Vec<Visit>,
    /// The names that ggml would give to what comes next.
    node_name: NumberedName,
    leaf_name: NumberedName,
    /// For an allocation: which inputs have no value yet.
    pub(super) unset: Cell<Vec<usize>>,
}

// SAFETY: lists. What their pointers point to is followed only for a graph, whose handles' lifetimes keep it on its thread;
// what an idle store holds is overwritten before that.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the lists move with their only owner")]
unsafe impl Send for Store {}

/// Where a graph's lists lie. They are compared, not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lists {
    lists: [usize; 4],
    slots: usize,
}

/// A tensor that is being visited. Small, for it is copied.
#[derive(Clone, Copy)]
struct Visit {
    t: TensorPtr,
    slot: Slot,
    /// Where its sources begin in the list of all: until the visit ends, they are slots.
    first: u32,
    /// Which places for sources are taken, and which of those are still to be looked at.
    mask: u16,
    left: u16,
}

impl Store {
    fn new() -> Self {
        let raw = sys::ggml_sys_cgraph {
            size: 0,
            n_nodes: 0,
            n_leafs: 0,
            nodes: ptr::null_mut(),
            grads: ptr::null_mut(),
            grad_accs: ptr::null_mut(),
            leafs: ptr::null_mut(),
            use_counts: ptr::null_mut(),
            hash_size: 0,
            hash_used: ptr::null_mut(),
            hash_keys: ptr::null_mut(),
            order: 0, // sources from left to right
            uid: 0,
        };
        Self {
            raw: UnsafeCell::new(raw),
            nodes: Vec::new(),
            leafs: Vec::new(),
            table: Table::default(),
            entries: Vec::new(),
            srcs: Vec::new(),
            closures: Vec::new(),
            distinct: Vec::new(),
            path: Vec::new(),
            node_name: NumberedName::new(b"node_0"),
            leaf_name: NumberedName::new(b"leaf_0"),
            unset: Cell::default(),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ggml_cgraph {
        self.raw.get().cast()
    }

    /// Where the lists lie that C sees.
    pub(super) fn lists(&self) -> Lists {
        // SAFETY: C writes to it inside of calls only, and those are made by this thread, which is here now.
        let raw = unsafe { &*self.raw.get() };
        let lists = [raw.nodes.addr(), raw.use_counts.addr(), raw.hash_used.addr(), raw.hash_keys.addr()];
        Lists { lists, slots: raw.hash_size }
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The position of `t` among the entries.
    #[inline]
    pub(super) fn position(&self, t: TensorPtr) -> Option<usize> {
        self.table.entry_of(t).map(|i| i as usize)
    }

    /// Makes it the graph of everything that `outputs` depend on, in the order in which ggml visits it.
    pub(super) fn fill(&mut self, outputs: &(impl Iterator<Item = TensorPtr> + Clone)) -> Result<()> {
        // As many as last time, or else more.
        self.table.clear(self.entries.len())?;
        while self.visit_all(outputs.clone())?.is_none() {
            self.table.clear(2 * self.table.room())?;
        }
        self.note_conditions()?;
        let len = |list: &[*mut sys::ggml_tensor]| i32::try_from(list.len()).map_err(|_| no_memory());
        let (n_nodes, n_leafs) = (len(&self.nodes)?, len(&self.leafs)?);
        let raw = self.raw.get_mut();
        raw.size = n_nodes.max(n_leafs);
        raw.n_nodes = n_nodes;
        raw.n_leafs = n_leafs;
        raw.nodes = self.nodes.as_mut_ptr();
        raw.leafs = self.leafs.as_mut_ptr();
        raw.uid = 0;
        self.table.lend(raw);
        Ok(())
    }

    /// Visits everything, unless the table is too small.
    fn visit_all(&mut self, outputs: impl Iterator<Item = TensorPtr>) -> Result<Option<()>> {
        self.entries.clear();
        self.srcs.clear();
        self.nodes.clear();
        self.leafs.clear();
        self.path.clear();
        self.node_name = NumberedName::new(b"node_0");
        self.leaf_name = NumberedName::new(b"leaf_0");
        for output in outputs {
            match self.table.enter(output) {
                Ok((slot, true)) => self.begin(output, slot)?,
                Ok(_) => {}
                Err(Full) => return Ok(None),
            }
            while let Some(visit) = self.path.last_mut() {
                let i = visit.left.trailing_zeros();
                let Some(src) = visit.t.source(i as usize) else {
                    let visit = *visit;
                    self.path.pop();
                    self.leave(visit)?;
                    continue;
                };
                visit.left &= visit.left - 1;
                let Ok((slot, new)) = self.table.enter(src) else { return Ok(None) };
                self.table.uses(slot);
                let nth = (visit.mask & !(u16::MAX << i)).count_ones();
                if let Some(to) = self.srcs.get_mut((visit.first + nth) as usize) {
                    *to = slot;
                }
                if new {
                    self.begin(src, slot)?;
                }
            }
        }
        Ok(Some(()))
    }

    /// Begins a visit. That of a leaf is over at once.
    #[inline]
    fn begin(&mut self, t: TensorPtr, slot: Slot) -> Result<()> {
        if t.is_in_use() {
            return Err(Error::InUse { call: "Context::graph", tensor: t.info() });
        }
        let mask = t.source_mask();
        let first = u32::try_from(self.srcs.len()).unwrap_or(u32::MAX);
        let visit = Visit { t, slot, first, mask, left: mask };
        if mask == 0 {
            return self.leave(visit);
        }
        let n = mask.count_ones() as usize;
        self.srcs.try_reserve(n).map_err(|_| no_memory())?;
        self.srcs.extend(std::iter::repeat_n(0, n));
        push(&mut self.path, visit)
    }

    /// Ends a visit: everything that the tensor depends on has its entry.
    #[inline]
    fn leave(&mut self, visit: Visit) -> Result<()> {
        let Visit { t, slot, first, mask, .. } = visit;
        let kind = if is_leaf(t) {
            match t.owner() {
                Owner::Graph => Kind::Input,
                owner => Kind::Placed(owner),
            }
        } else {
            Kind::Node
        };
        let at = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.table.set_entry(slot, at);
        for src in self.srcs.get_mut(first as usize..).unwrap_or_default().iter_mut().take(mask.count_ones() as usize) {
            *src = self.table.entry(*src);
        }
        let root = match t.view_src() {
            None => at,
            // No builder makes a view without a way to what it looks at; allocation relies on it.
            Some(root) => self.table.entry_of(root).ok_or_else(|| Error::NotPart {
                call: "graph",
                tensor: t.info(),
                whole: "a graph with its view's source",
            })?,
        };
        // Leaves with memory of their own may be read by other threads now: nothing is written to them.
        if !matches!(kind, Kind::Placed(_)) {
            if t.op() != sys::GGML_OP_NONE {
                t.add_flags(sys::GGML_TENSOR_FLAG_COMPUTE.cast_signed());
            }
            match kind {
                Kind::Node => t.name_if_nameless(&self.node_name),
                _ => t.name_if_nameless(&self.leaf_name),
            }
        }
        if kind == Kind::Node {
            push(&mut self.nodes, t.as_ptr())?;
            self.node_name.count();
        } else {
            push(&mut self.leafs, t.as_ptr())?;
            self.leaf_name.count();
        }
        // What lies in a state or in weights is there for good; the rest only if ggml was told to keep it.
        let output = sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed();
        let root_kind = if root == at { kind } else { self.entries.get(root as usize).map_or(kind, |root| root.kind) };
        let kept = matches!(root_kind, Kind::Placed(_)) || t.root().flags() & output != 0;
        push(
            &mut self.entries,
            Entry { ptr: t, below: None, distinct: false, first, root, mask, kind, root_kind, kept },
        )
    }

    /// Notes what must hold beyond the graph's own tensors: of the values of inputs that hold indices, and for closures.
    fn note_conditions(&mut self) -> Result<()> {
        self.closures.clear();
        self.distinct.clear();
        for i in 0..self.entries.len() {
            let Some(node) = self.entries.get(i).filter(|e| e.kind == Kind::Node).map(|e| e.ptr) else { continue };
            if TensorPtr::is_custom(node) {
                push(&mut self.closures, node)?;
            }
            for (indices, n) in index::bounds(node) {
                if let Some(e) = self.entry_mut(indices) {
                    e.below = Some(e.below.map_or(n, |below| below.min(n)));
                }
            }
            if let Some(rows) = index::distinct(node) {
                push(&mut self.distinct, rows)?;
                if let Some(e) = self.entry_mut(rows.root()) {
                    e.distinct = true;
                }
            }
        }
        Ok(())
    }

    fn entry_mut(&mut self, t: TensorPtr) -> Option<&mut Entry> {
        self.table.entry_of(t).and_then(|i| self.entries.get_mut(i as usize))
    }
}

/// Adds to a list of a graph's.
#[inline]
fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list::push(list, item, "a graph")
}

#[cold]
fn no_memory() -> Error {
    Error::no_memory("a graph")
}

/// Whether ggml treats `t` as a leaf: made by no operation, and no parameter of a training.
fn is_leaf(t: TensorPtr) -> bool {
    t.op() == sys::GGML_OP_NONE && t.flags() & sys::GGML_TENSOR_FLAG_PARAM.cast_signed() == 0
}

/// The stores of a context's former graphs.
///
/// Shared rather than borrowed: a graph that is dropped late must not keep its context from being reset or moved before,
/// and it may then be dropped on another thread than that which makes the next.
#[derive(Default, Clone)]
#[expect(clippy::vec_box, reason = "C has pointers to a store while it is in use")]
pub(crate) struct Spares(Arc<Lock<Vec<Box<Store>>>>);

/// How many stores a context keeps.
const MOST_SPARES: usize = 4;

impl Spares {
    pub(super) fn take(&self) -> Lent {
        let spare = self.0.lock().pop();
        let store = spare.unwrap_or_else(|| Box::new(Store::new()));
        Lent { store: ManuallyDrop::new(store), home: self.clone() }
    }
}

/// A store that goes back when it is dropped.
pub(super) struct Lent {
    store: ManuallyDrop<Box<Store>>,
    home: Spares,
}

impl Deref for Lent {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after this, the end of its owner.
        let store = unsafe { ManuallyDrop::take(&mut self.store) };
        let mut spares = self.home.0.lock();
        if spares.len() < MOST_SPARES {
            spares.push(store);
        }
    }
}
