//! The nodes of a split before they have memory, and the order in which a stream wants to compute them.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use ggml_sys as sys;

use super::node::Node;
use super::state::DeviceState;
use super::view::{is_computed, tensor};
use super::{Driver, Failure};
use crate::header::TensorPtr;
use crate::list;

/// The nodes of a split in order, without those that need no computation, such as views. They have no memory yet.
///
/// ```standalone_crate
/// # use ggml::Registry;
/// # use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, SplitNodes};
/// # use ggml::prelude::*;
/// # use std::sync::Mutex;
/// # struct Wide;
/// # impl Driver for Wide {
/// #     type Buffer = NoBuffer;
/// #     type Stream = Self;
/// #     type Event = NoEvent;
/// #     fn info(&self) -> DriverInfo {
/// #         DriverInfo::new("Wide0".into(), DeviceType::Accelerator).with_optimize(true)
/// #     }
/// #     fn supports(&self, _: &Node<'_, Self>) -> bool {
/// #         true
/// #     }
/// #     fn stream(&self, _: &str) -> Result<Self, Failure> {
/// #         Ok(Self)
/// #     }
/// # }
/// static COMPUTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
///
/// impl DriverStream<Self> for Wide { // whose `info` has `with_optimize(true)`
///     /// What may run at the same time is put side by side.
///     fn optimize(&mut self, nodes: &SplitNodes<'_, Self>) -> Result<Option<Vec<usize>>, Failure> {
///         let mut depths = Vec::new();
///         for i in 0..nodes.len() {
///             depths.push(nodes.before(i).iter().map(|&i| depths[i] + 1).max().unwrap_or(0));
///         }
///         let mut order: Vec<_> = (0..nodes.len()).collect();
///         order.sort_by_key(|&i| depths[i]);
///         Ok(Some(order))
///     }
///
///     fn compute(&mut self, nodes: Nodes<'_, Self>) -> Result<(), Failure> {
///         for mut node in nodes {
///             COMPUTED.lock()?.push(node.result().tensor().name());
///             node.on_host(|_, _| ())?; // leaves zeros
///         }
///         Ok(())
///     }
/// }
/// # fn main() -> ggml::Result<()> {
/// let device = Registry::register("Wide", [Wide])?.devices()?[0];
/// let ctx = Context::new();
/// let chain = |a: &str, b: &str| ctx.sqr(ctx.arange(0.0, 4.0, 1.0)?.named(a)?)?.named(b);
/// let graph = ctx.graph([chain("a", "b")?, chain("c", "d")?])?;
/// let mut sched = Sched::builder().backend(device.init()?).backend(Backend::cpu()?).build()?;
/// sched.alloc(&graph)?.compute()?;
/// assert_eq!(*COMPUTED.lock().unwrap(), ["a", "c", "b", "d"]);
/// # Ok(())
/// # }
/// ```
pub struct SplitNodes<'a, D: Driver> {
    nodes: Vec<TensorPtr>,
    /// For each node, the nodes that it must come after: a list per node, all concatenated. `ends` has the end of each
    /// list.
    before: Vec<usize>,
    ends: Vec<usize>,
    device: &'static DeviceState<D>,
    life: PhantomData<&'a ()>,
}

const LIST: &str = "the order of a split";

/// Which nodes use the memory of one root.
#[derive(Default)]
struct Uses {
    /// The last node that writes to the memory.
    writer: Option<usize>,
    /// The nodes that read the memory after the last write.
    readers: Vec<usize>,
}

impl<'a, D: Driver> SplitNodes<'a, D> {
    /// # Safety
    ///
    /// All tensors and their sources must meet the invariants of [`TensorPtr`] for `'a`.
    pub(super) unsafe fn new(list: &[*mut sys::ggml_tensor], device: &'static DeviceState<D>) -> Result<Self, Failure> {
        let nodes = list::collect(list.iter().filter_map(|&t| tensor(t)).filter(|t| is_computed(*t)), LIST)?;
        let mut this = Self { nodes, before: Vec::new(), ends: Vec::new(), device, life: PhantomData };
        let mut memory: HashMap<TensorPtr, Uses> = HashMap::new();
        let mut own = Vec::new();
        for (i, t) in this.nodes.iter().enumerate() {
            // Views share the memory of their roots. The moments that a step of AdamW changes are left out, because
            // nothing else uses them.
            for root in t.sources().map(TensorPtr::root) {
                memory.try_reserve(1)?;
                let uses = memory.entry(root).or_default();
                list::push(&mut uses.readers, i, LIST)?;
                own.try_reserve(1)?;
                own.extend(uses.writer);
            }
            memory.try_reserve(1)?;
            let uses = memory.entry(t.root()).or_default();
            own.try_reserve(uses.readers.len() + 1)?;
            own.append(&mut uses.readers);
            own.extend(uses.writer.replace(i));
            own.retain(|&before| before != i);
            own.sort_unstable();
            own.dedup();
            this.before.try_reserve(own.len())?;
            this.before.append(&mut own);
            list::push(&mut this.ends, this.before.len(), LIST)?;
        }
        Ok(this)
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the number of nodes is 0.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Node `i`, which lends no memory. Only weights and states have a [`Place`](super::Place) yet.
    pub fn node(&self, i: usize) -> Option<Node<'a, D>> {
        // SAFETY: the tensors meet the invariants of `TensorPtr`, by the `# Safety` of `new`.
        self.nodes.get(i).map(|&t| unsafe { Node::new(t, self.device) })
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'a, D>> {
        (0..self.len()).filter_map(|i| self.node(i))
    }

    /// The nodes that must be computed before node `i`, in ascending order: those whose results it uses, and those that
    /// access memory to which it writes, or write to memory that it reads. Nodes on which these depend in turn may be
    /// left out.
    pub fn before(&self, i: usize) -> &[usize] {
        let start = i.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        self.ends.get(i).and_then(|&end| self.before.get(start..end)).unwrap_or_default()
    }

    /// The place of each node in an order, which is checked.
    ///
    /// # Errors
    ///
    /// A failure if the order leaves a node out, has one twice, or puts a node before another that it depends on.
    fn places(&self, order: &[usize]) -> Result<Vec<usize>, Failure> {
        let n = self.len();
        if order.len() != n {
            return Err(Failure::new(format!("the order has {} nodes, the split {n}", order.len())));
        }
        let mut places = list::filled(None, n, LIST)?;
        for (place, &i) in order.iter().enumerate() {
            let to = places.get_mut(i).ok_or_else(|| Failure::new(format!("the split has no node {i}, only {n}")))?;
            if to.replace(place).is_some() {
                return Err(Failure::new(format!("the order has node {i} twice")));
            }
        }
        let places = list::collect(places.into_iter().flatten(), LIST)?; // all, as none is there twice
        for (i, place) in places.iter().enumerate() {
            if let Some(&before) = self.before(i).iter().find(|&&before| places.get(before) > Some(place)) {
                let [late, early] = [before, i].map(|i| self.node(i));
                let text =
                    format!("the order has node {i}, {early:?}, before node {before}, {late:?}, on which it depends");
                return Err(Failure::new(text));
            }
        }
        Ok(places)
    }

    /// Puts the nodes of the list into an order. Views and leaves in the list follow what they depend on.
    ///
    /// # Errors
    ///
    /// As [`SplitNodes::places`]. The list is unchanged then.
    pub(super) fn reorder(&self, order: &[usize], list: &mut [*mut sys::ggml_tensor]) -> Result<(), Failure> {
        let places = self.places(order)?;
        let mut computed = places.iter().map(|place| place + 1);
        let mut keys = HashMap::new();
        keys.try_reserve(list.len())?;
        let mut sorted = list::filled((0, 0, std::ptr::null_mut()), list.len(), LIST)?;
        for (i, (to, &raw)) in sorted.iter_mut().zip(list.iter()).enumerate() {
            let Some(t) = tensor(raw) else { continue };
            let follows = || t.sources().filter_map(|source| keys.get(&source).copied()).max().unwrap_or(0);
            let key = if is_computed(t) { computed.next().unwrap_or(0) } else { follows() };
            keys.insert(t, key);
            *to = (key, i, raw);
        }
        sorted.sort_unstable();
        list.iter_mut().zip(sorted).for_each(|(to, (_, _, raw))| *to = raw);
        Ok(())
    }
}

impl<D: Driver> fmt::Debug for SplitNodes<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes()).finish()
    }
}
