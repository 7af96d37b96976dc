//! Graphs that a client sent: judged once, then kept by number, to be computed again.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::compute;
use super::end::{End, Outcome, need};
use super::fields::{Fields, SLOTS, WireTensor};
use super::judge::{Claim, is_sort};
use super::memory::{Buffers, ClientBuffer, HeldBytes};
use crate::context::Context;
use crate::device::Device;
use crate::header::{Layout, TensorPtr};
use crate::op::Operation;
use crate::rules::{indices, run};
use crate::run::part::PartGraph;

/// The bytes that are counted for each tensor of a kept graph: its header, and its places in lists of nodes.
const HEADER: u64 = 500;
/// The headers that an arena has room for from the beginning.
const ARENA: usize = 64;

/// How many results are looked through for one that an operand's indices may come from, before the graph is split
/// anyway.
const MAX_WRITTEN: usize = 1024;

/// A graph that was judged, over memory that the client holds.
///
/// # Invariants
///
/// All headers lie in `_headers`, and refer to it and to `buffers` alone. Each operation with its operands and its
/// result is one that a builder of this crate would have made and that `device` accepts, except for the values of
/// indices: those are among the demands of the operation's step.
pub(super) struct JudgedGraph {
    pub(super) steps: Vec<Step>,
    /// What the headers refer to.
    pub(super) buffers: Vec<Rc<ClientBuffer>>,
    _headers: Context,
    /// For the headers, and for what checking the demands takes.
    _held: [HeldBytes; 2],
}

/// Operations that are computed together, after what they demand of memory was checked.
pub(super) struct Step {
    pub(super) demands: Vec<Demand>,
    pub(super) part: PartGraph,
}

/// What must be true of values before operations may read them: ggml's kernels trust indices, and can't sort NaN.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Demand {
    Indices { of: TensorPtr, below: i64, distinct: bool },
    NoNan(TensorPtr),
}

impl Demand {
    pub(super) fn tensor(self) -> TensorPtr {
        match self {
            Self::Indices { of, .. } | Self::NoNan(of) => of,
        }
    }

    pub(super) fn is_distinct(self) -> bool {
        matches!(self, Self::Indices { distinct: true, .. })
    }
}

/// A graph as it was sent.
pub(super) struct SentGraph {
    tensors: Vec<WireTensor>,
    by_id: HashMap<u64, usize>,
    nodes: Vec<usize>,
}

impl SentGraph {
    /// Reads a graph's fields, from the number of nodes on.
    pub(super) fn read(mut fields: Fields<'_>, most: usize) -> Outcome<Self> {
        let n = fields.word()? as usize;
        need(n > 0, "a graph has no nodes")?;
        need(n <= most, "a graph has more nodes than the server allows tensors")?;
        let mut ids = Vec::with_capacity(n.min(fields.0.len()));
        for _ in 0..n {
            ids.push(fields.long()?);
        }
        let n = fields.word()? as usize;
        need(n <= most, "a graph has more tensors than the server allows")?;
        let mut tensors = Vec::with_capacity(n.min(fields.0.len()));
        let mut by_id = HashMap::with_capacity(n.min(fields.0.len()));
        for i in 0..n {
            let t = fields.tensor()?;
            need(t.id != 0, "a tensor has the number of no tensor")?;
            need(by_id.insert(t.id, i).is_none(), "two tensors of a graph have one number")?;
            tensors.push(t);
        }
        fields.end()?;
        let mut seen = vec![false; tensors.len()];
        let mut nodes = Vec::with_capacity(ids.len());
        for id in ids {
            let i = *by_id.get(&id).ok_or_else(|| End::refused("a node is none of the graph's tensors"))?;
            let is_twice = seen.get_mut(i).is_none_or(|seen| std::mem::replace(seen, true));
            need(!is_twice, "a graph has a node twice")?;
            nodes.push(i);
        }
        Ok(Self { tensors, by_id, nodes })
    }

    /// The tensors by slot that an operation names as its sources.
    fn sources(&self, t: &WireTensor) -> Outcome<[Option<usize>; SLOTS]> {
        let mut sources = [None; SLOTS];
        for (to, id) in sources.iter_mut().zip(t.sources).filter(|(_, id)| *id != 0) {
            let i = self.by_id.get(&id).ok_or_else(|| End::refused("a source is none of the graph's tensors"))?;
            *to = Some(*i);
        }
        Ok(sources)
    }

    /// Checks that a view lies where its source says.
    fn check_view(&self, t: &WireTensor) -> Outcome {
        if t.view_src == 0 {
            return Ok(());
        }
        let root = self.by_id.get(&t.view_src).and_then(|&i| self.tensors.get(i));
        let root = root.ok_or_else(|| End::refused("a view's source is none of the graph's tensors"))?;
        // A view of another device's memory has no place here; what reads it is refused for that.
        let elsewhere = t.buffer == 0 && root.buffer == 0;
        let lies = root.data.checked_add(t.view_offs) == Some(t.data) && root.buffer == t.buffer;
        need(lies || elsewhere, "a view lies elsewhere than its source and its offset say")
    }

    /// Judges all nodes for a device.
    pub(super) fn judge(&self, buffers: &Buffers, device: Device) -> Outcome<JudgedGraph> {
        // An arena has room for more headers from the beginning.
        let bytes = HEADER.saturating_mul(self.tensors.len().max(ARENA) as u64);
        let take =
            |bytes| buffers.budget.take(bytes).ok_or_else(|| End::refused("a graph is over the client's memory"));
        let held = take(bytes)?;
        let (headers, mut scratch) = (Context::new(), Context::new());
        let mut graph =
            Judging { sent: self, buffers, device, headers: &headers, used: HashMap::new(), at: HashMap::new() };
        let mut steps = StepList::default();
        for &i in &self.nodes {
            let Some(t) = self.tensors.get(i) else { continue };
            self.check_view(t)?;
            if t.is_computed() {
                steps.add(graph.node(&mut scratch, i, t)?);
            }
        }
        let scratch = steps.all.iter().flat_map(|(demands, _)| demands).map(|&demand| compute::scratch(demand)).max();
        let held = [held, take(scratch.unwrap_or(0))?];
        let buffers = graph.used.into_values().collect();
        let step = |(demands, nodes): (_, Vec<_>)| Ok(Step { demands, part: PartGraph::new(&nodes)? });
        let steps = steps.all.into_iter().map(step).collect::<Outcome<_>>()?;
        Ok(JudgedGraph { steps, buffers, _headers: headers, _held: held })
    }
}

/// A graph while it is judged.
struct Judging<'a> {
    sent: &'a SentGraph,
    buffers: &'a Buffers,
    device: Device,
    headers: &'a Context,
    /// The buffers that headers refer to, by first address.
    used: HashMap<u64, Rc<ClientBuffer>>,
    /// The header of each tensor that was met.
    at: HashMap<usize, TensorPtr>,
}

impl<'a> Judging<'a> {
    /// The place of a tensor: its buffer, its layout, and the offset of its first byte.
    fn place(&self, i: usize) -> Outcome<(&'a Rc<ClientBuffer>, Layout, usize)> {
        let t = self.sent.tensors.get(i).ok_or_else(|| End::refused("a graph lacks a tensor"))?;
        self.sent.check_view(t)?;
        let layout = t.layout()?;
        let (buffer, at) = self.buffers.place(t, layout)?;
        Ok((buffer, layout, at))
    }

    /// The header of a tensor in the kept graph, at its place; without an operation until its node is judged.
    fn header(&mut self, i: usize) -> Outcome<TensorPtr> {
        if let Some(&header) = self.at.get(&i) {
            return Ok(header);
        }
        let (buffer, layout, at) = self.place(i)?;
        need(self.device.supports_buffer_type(buffer.buffer_type()), "a device can't use the memory of another")?;
        let header = self.headers.place(buffer.memory()?, layout, at)?.ptr();
        // Some devices pad rows of blocks, and read the padding.
        if layout.dtype.block_size() > 1 && !buffer.is_host() {
            let size = buffer.buffer_type().alloc_size_of(header)?;
            need(
                buffer.holds(at, size),
                "a tensor lies outside of its buffer, with the padding that its device needs",
            )?;
        }
        self.used.entry(buffer.base()).or_insert_with(|| Rc::clone(buffer));
        self.at.insert(i, header);
        Ok(header)
    }

    /// Judges a node, and makes its header.
    fn node(&mut self, scratch: &mut Context, i: usize, t: &WireTensor) -> Outcome<TensorPtr> {
        scratch.reset();
        let scratch = &*scratch;
        let params = t.params();
        let slots = self.sent.sources(t)?;
        let put = |i: usize| -> Outcome<_> {
            let (buffer, layout, at) = self.place(i)?;
            Ok(scratch.place(buffer.memory()?, layout, at)?)
        };
        let result = put(i)?;
        let mut claim = Claim { params, result, sources: [None; SLOTS] };
        for (source, slot) in claim.sources.iter_mut().zip(slots) {
            *source = match slot {
                Some(slot) if slot == i => Some(result),
                Some(slot) => Some(put(slot)?),
                None => None,
            };
        }
        claim.judge(scratch).map_err(|end| named(end, t))?;
        let node = self.header(i)?;
        for (slot, source) in slots.into_iter().enumerate() {
            if let Some(source) = source {
                node.set_source(slot, self.header(source)?);
            }
        }
        node.become_operation(params.op(), params.params());
        run::accepts(self.device, node, true)?;
        need(self.device.claims(node)?, "the device does not support an operation")?;
        Ok(node)
    }
}

/// Says which operation was refused.
fn named(end: End, t: &WireTensor) -> End {
    match end {
        End::Refused(why) => End::refused(format!("{:?}: {why}", t.params().decode())),
        other => other,
    }
}

/// The steps of a graph while it is judged.
#[derive(Default)]
struct StepList {
    /// The demands and the operations of each.
    all: Vec<(Vec<Demand>, Vec<TensorPtr>)>,
    /// The places of the results of the last step: root, and range of bytes.
    written: Vec<(TensorPtr, Range<usize>)>,
}

fn extent(t: TensorPtr) -> (TensorPtr, Range<usize>) {
    let start = t.view_offs();
    (t.root(), start..start.saturating_add(t.span().unwrap_or(usize::MAX)))
}

impl StepList {
    /// Adds a node: to the last step, unless that writes to what must be checked before the node.
    fn add(&mut self, node: TensorPtr) {
        let indices = indices::demand(node).and_then(|demand| {
            let of = node.source(demand.slot)?;
            Some(Demand::Indices { of, below: demand.below, distinct: demand.distinct })
        });
        let sorts = Operation::of(node).is_some_and(is_sort);
        let numbers = node.source(0).filter(|_| sorts).map(Demand::NoNan);
        let demand = indices.or(numbers);
        let is_stale = demand.is_some_and(|demand| {
            let (root, range) = extent(demand.tensor());
            let overlaps =
                |(of, at): &(TensorPtr, Range<usize>)| *of == root && at.start < range.end && range.start < at.end;
            self.written.len() > MAX_WRITTEN || self.written.iter().any(overlaps)
        });
        if is_stale || self.all.is_empty() {
            self.all.push(Default::default());
            self.written.clear();
        }
        let Some((demands, nodes)) = self.all.last_mut() else { return };
        if let Some(demand) = demand.filter(|demand| demands.last() != Some(demand)) {
            demands.push(demand);
        }
        nodes.push(node);
        self.written.push(extent(node));
        // The only operation that writes to operands which are not its result: its moments.
        if matches!(Operation::of(node), Some(Operation::OptStepAdamw)) {
            self.written.extend(node.sources().map(extent));
        }
    }
}
