//! The lists that a graph consists of, built from its outputs without recursion (H35).
//!
//! One pass orders the operations, fills C's graph and records each operation's sources. Debug builds compare the
//! result with a graph that ggml builds (`checked.rs`).

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

use ggml_sys as sys;

use super::table::{Full, Slot};
use super::{Entries, Entry, Kind};
use crate::error::{Error, Result};
use crate::header::{NumberedName, Owner, TensorPtr};
use crate::list;
use crate::lock::Lock;

/// The lists of a graph. When the graph is dropped, the next one reuses them.
pub(crate) struct Store {
    /// C's view of the lists, which don't move while a graph uses them. C may write to it: the scheduler sets `uid`,
    /// devices reorder nodes.
    raw: UnsafeCell<sys::ggml_sys_cgraph>,
    /// C's list of operations, which devices reorder.
    nodes: Vec<Cell<*mut sys::ggml_tensor>>,
    leafs: Vec<*mut sys::ggml_tensor>,
    pub(crate) entries: Entries,
    path: Vec<Visit>,
    /// The next names that ggml would give to unnamed nodes and leaves.
    node_name: NumberedName,
    leaf_name: NumberedName,
    /// A list that allocations reuse: which entries are inputs without a value.
    pub(crate) unset: Cell<Vec<bool>>,
}

// SAFETY: a store owns its lists. Pointers in them are followed only for a live graph, whose handles' lifetimes keep it
// on its thread. An idle store is refilled (`fill`) before any pointer is followed.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the lists move with their only owner")]
unsafe impl Send for Store {}

/// The addresses of a graph's lists. They are only compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lists {
    lists: [usize; 4],
    slots: usize,
}

/// A tensor whose visit has begun and not ended.
#[derive(Clone, Copy)]
struct Visit {
    t: TensorPtr,
    slot: Slot,
    /// Where the tensor's sources start in `srcs`, which holds table slots until the visit ends.
    first: u32,
    /// `mask` has a bit for each source slot in use, `left` one for each that is still to be visited.
    mask: u16,
    left: u16,
}

impl Store {
    fn new() -> Self {
        Self {
            raw: UnsafeCell::new(no_nodes(&mut [])),
            nodes: Vec::new(),
            leafs: Vec::new(),
            entries: Entries::default(),
            path: Vec::new(),
            node_name: NumberedName::new(b"node_0"),
            leaf_name: NumberedName::new(b"leaf_0"),
            unset: Cell::default(),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::ggml_cgraph {
        self.raw.get().cast()
    }

    /// The addresses of the lists that C uses.
    pub(crate) fn lists(&self) -> Lists {
        // SAFETY: C writes to `raw` only during calls that this thread makes, and none is running now.
        let raw = unsafe { &*self.raw.get() };
        let lists = [raw.nodes.addr(), raw.use_counts.addr(), raw.hash_used.addr(), raw.hash_keys.addr()];
        Lists { lists, slots: raw.hash_size }
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// C's list of operations.
    pub(crate) fn nodes(&self) -> &[Cell<*mut sys::ggml_tensor>] {
        &self.nodes
    }

    /// A graph for C of some of the operations, which are a part of C's list. It uses the lists of this one.
    pub(crate) fn part(&self, nodes: &[Cell<*mut sys::ggml_tensor>]) -> sys::ggml_sys_cgraph {
        // SAFETY: C writes to `raw` only during calls that this thread makes, and none is running now.
        let whole = unsafe { *self.raw.get() };
        let n_nodes = i32::try_from(nodes.len()).unwrap_or(i32::MAX);
        sys::ggml_sys_cgraph { n_nodes, nodes: nodes.as_ptr().cast_mut().cast(), n_leafs: 0, size: 0, ..whole }
    }

    /// The operations in the order in which they were built.
    fn built(&self) -> impl Iterator<Item = *mut sys::ggml_tensor> {
        self.entries.iter().filter(|e| e.kind == Kind::Node).map(|e| e.ptr.as_ptr())
    }

    /// Whether C's list of operations has the order in which they were built.
    pub(crate) fn is_in_order(&self) -> bool {
        self.nodes.iter().map(Cell::get).eq(self.built())
    }

    /// The order of the operations in C's list, as entry indices. Empty if it is the order in which they were built.
    pub(crate) fn order(&self) -> Result<Vec<u32>> {
        if self.is_in_order() {
            return Ok(Vec::new());
        }
        // Devices reorder C's list, but add no tensors to it.
        let entries = self.nodes.iter().filter_map(|t| self.entries.table.entry_at(t.get()));
        list::collect(entries, "the order of a graph")
    }

    /// Restores an order that [`Store::order`] returned.
    pub(crate) fn reorder(&self, order: &[u32]) {
        if order.is_empty() {
            return self.nodes.iter().zip(self.built()).for_each(|(to, t)| to.set(t));
        }
        let entries = order.iter().filter_map(|&i| self.entries.get(i as usize));
        self.nodes.iter().zip(entries).for_each(|(to, e)| to.set(e.ptr.as_ptr()));
    }

    /// Fills the lists with all that `outputs` depend on, in the order in which ggml would visit the tensors.
    pub(crate) fn fill(&mut self, outputs: &(impl Iterator<Item = TensorPtr> + Clone)) -> Result<()> {
        // The table starts with the previous graph's size, and grows if that is too small.
        self.entries.table.clear(self.entries.len())?;
        while self.visit_all(outputs.clone())?.is_none() {
            self.entries.table.clear(2 * self.entries.table.room())?;
        }
        let number = |n: usize| i32::try_from(n).map_err(|_| no_memory());
        let (n_nodes, n_leafs) = (number(self.nodes.len())?, number(self.leafs.len())?);
        let raw = self.raw.get_mut();
        raw.size = n_nodes.max(n_leafs);
        raw.n_nodes = n_nodes;
        raw.n_leafs = n_leafs;
        raw.nodes = self.nodes.as_mut_ptr().cast();
        raw.leafs = self.leafs.as_mut_ptr();
        raw.uid = 0;
        self.entries.table.lend(raw);
        Ok(())
    }

    /// Visits all that the outputs depend on. Returns `None` if the hash table is too small.
    fn visit_all(&mut self, outputs: impl Iterator<Item = TensorPtr>) -> Result<Option<()>> {
        self.entries.list.clear();
        self.entries.closures.clear();
        self.entries.distinct.clear();
        self.entries.srcs.clear();
        self.nodes.clear();
        self.leafs.clear();
        self.path.clear();
        self.node_name = NumberedName::new(b"node_0");
        self.leaf_name = NumberedName::new(b"leaf_0");
        for output in outputs {
            match self.entries.table.enter(output) {
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
                let Ok((slot, new)) = self.entries.table.enter(src) else { return Ok(None) };
                self.entries.table.uses(slot);
                let nth = (visit.mask & !(u16::MAX << i)).count_ones();
                if let Some(to) = self.entries.srcs.get_mut((visit.first + nth) as usize) {
                    *to = slot;
                }
                if new {
                    self.begin(src, slot)?;
                }
            }
        }
        Ok(Some(()))
    }

    /// Begins to visit a tensor. Its sources come next. A leaf has none, so its visit ends here.
    #[inline]
    fn begin(&mut self, t: TensorPtr, slot: Slot) -> Result<()> {
        if t.is_in_use() {
            return Err(Error::InUse { call: "Context::graph", tensor: t.info() });
        }
        let mask = t.source_mask();
        let first = u32::try_from(self.entries.srcs.len()).unwrap_or(u32::MAX);
        let visit = Visit { t, slot, first, mask, left: mask };
        if mask == 0 {
            return self.leave(visit);
        }
        let n = mask.count_ones() as usize;
        self.entries.srcs.try_reserve(n).map_err(|_| no_memory())?;
        self.entries.srcs.extend(std::iter::repeat_n(0, n));
        push(&mut self.path, visit)
    }

    /// Ends the visit of a tensor: all that it depends on have their entries.
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
        self.entries.table.set_entry(slot, at);
        for src in
            self.entries.srcs.get_mut(first as usize..).unwrap_or_default().iter_mut().take(mask.count_ones() as usize)
        {
            *src = self.entries.table.entry(*src);
        }
        let root = match t.view_src() {
            None => at,
            // Every builder makes a view's source reachable through the view's operands. Allocation relies on that.
            Some(root) => self.entries.table.entry_of(root).ok_or_else(|| Error::NotPart {
                call: "graph",
                tensor: t.info(),
                whole: "a graph with its view's source",
            })?,
        };
        // Other threads may read weights and states now, so nothing is written to the headers of these.
        if !matches!(kind, Kind::Placed(_)) {
            if !t.is_leaf() {
                t.add_flags(sys::GGML_TENSOR_FLAG_COMPUTE.cast_signed());
            }
            match kind {
                Kind::Node => t.name_if_nameless(&self.node_name),
                _ => t.name_if_nameless(&self.leaf_name),
            }
        }
        if kind == Kind::Node {
            if t.is_custom() {
                push(&mut self.entries.closures, t)?;
            }
            push(&mut self.nodes, Cell::new(t.as_ptr()))?;
            self.node_name.count();
        } else {
            push(&mut self.leafs, t.as_ptr())?;
            self.leaf_name.count();
        }
        // Weights and states keep their values. Other tensors do so only if they, or their roots, are marked as
        // outputs.
        let output = sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed();
        let root_kind = if root == at { kind } else { self.entries.get(root as usize).map_or(kind, |root| root.kind) };
        let kept = matches!(root_kind, Kind::Placed(_)) || t.root().flags() & output != 0;
        push(
            &mut self.entries.list,
            Entry { ptr: t, below: i64::MAX, distinct: false, first, root, mask, kind, root_kind, kept },
        )
    }
}

/// Pushes to one of a graph's lists.
#[inline]
pub(super) fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list::push(list, item, "a graph")
}

#[cold]
fn no_memory() -> Error {
    Error::no_memory("a graph")
}

/// A graph for C without operations, which points to the list of leaves.
pub(crate) fn no_nodes(leafs: &mut [*mut sys::ggml_tensor]) -> sys::ggml_sys_cgraph {
    let n_leafs = i32::try_from(leafs.len()).unwrap_or(i32::MAX);
    sys::ggml_sys_cgraph {
        size: n_leafs,
        n_nodes: 0,
        n_leafs,
        nodes: ptr::null_mut(),
        grads: ptr::null_mut(),
        grad_accs: ptr::null_mut(),
        leafs: leafs.as_mut_ptr(),
        use_counts: ptr::null_mut(),
        hash_size: 0,
        hash_used: ptr::null_mut(),
        hash_keys: ptr::null_mut(),
        order: 0, // sources from left to right
        uid: 0,
    }
}

/// Whether ggml treats `t` as a leaf: no operation, and no training parameter.
fn is_leaf(t: TensorPtr) -> bool {
    t.is_leaf() && t.flags() & sys::GGML_TENSOR_FLAG_PARAM.cast_signed() == 0
}

/// The stores of a context's dropped graphs, for reuse.
///
/// Reference-counted, not borrowed: a graph that is leaked or dropped late must not keep its context from being reset
/// or moved, and may be dropped on another thread.
#[derive(Default, Clone)]
#[expect(clippy::vec_box, reason = "C has pointers to a store while it is in use")]
pub(crate) struct StorePool(Arc<Lock<Vec<Box<Store>>>>);

/// How many stores a context keeps for reuse.
const MAX_STORES: usize = 4;

impl StorePool {
    pub(crate) fn take(&self) -> StoreGuard {
        let store = self.0.lock().pop();
        let store = store.unwrap_or_else(|| Box::new(Store::new()));
        StoreGuard { store: ManuallyDrop::new(store), pool: self.clone() }
    }
}

/// A store on loan from its pool. Its drop returns it.
pub(crate) struct StoreGuard {
    store: ManuallyDrop<Box<Store>>,
    pool: StorePool,
}

impl Deref for StoreGuard {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl DerefMut for StoreGuard {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl Drop for StoreGuard {
    fn drop(&mut self) {
        // SAFETY: the guard is being dropped, so nothing uses its `store` after this.
        let store = unsafe { ManuallyDrop::take(&mut self.store) };
        let mut stores = self.pool.0.lock();
        if stores.len() < MAX_STORES {
            stores.push(store);
        }
    }
}
