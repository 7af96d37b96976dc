//! The checks of a graph on a meta device, before ggml derives how its results are split.

use super::states::{self, SplitResult};
use crate::device::Device;
use crate::device::meta::SplitState;
use crate::device::meta::state_of;
use crate::device::meta::{MetaDeviceInfo, any, known};
use crate::entries::{Entries, Entry, Kind};
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::op::Operation;
use crate::rules::{Refusal, need, operation};

use ggml_sys as sys;

/// The most tensors in a graph: C has room for 2^20 headers per buffer, including the scheduler's copies of inputs.
const MAX_TENSORS: usize = 1 << 19;

/// How many tensors of graphs a meta device may have seen before C must be reset, for graphs of `len` tensors. C makes
/// headers for each allocated graph until one is computed, and never forgets the split state of a tensor.
pub(crate) fn most_used(len: usize) -> usize {
    (8 * len).clamp(1 << 14, MAX_TENSORS)
}

/// How an entry of a graph is split, as far as the checks need to know.
struct EntryState {
    /// The entry's split state after the all-reduces that are pending.
    state: SplitState,
    partial: bool,
    /// Whether ggml may delay the all-reduce of a partial sum past this entry: a multiplication, or a sum of two
    /// partial sums.
    pending: bool,
    /// Whether the entry lies on the meta device.
    here: bool,
}

/// Checks that `device`, if it is a meta device, can compute the operations assigned to it (`on`), and that all kept
/// results can be read. Sources of these operations that lie elsewhere are copied to the device by the scheduler.
pub(crate) fn check(graph: &Entries, device: Device, on: impl Fn(&Entry) -> bool) -> Result<()> {
    let Some(meta) = known(device) else { return Ok(()) };
    if graph.len() > MAX_TENSORS {
        let why = format!("a meta device takes graphs of {MAX_TENSORS} tensors at most");
        return Err(Error::unsupported("graph", [], device.name(), why));
    }
    let walk = Walk { graph, device, meta, uses: uses(graph) };
    let mut seen: Vec<EntryState> = Vec::with_capacity(graph.len());
    let mut last = None;
    for (i, e) in graph.iter().enumerate() {
        let on = on(e);
        let next = walk.visit(i, e, on, &seen)?;
        seen.push(next);
        if on && e.kind == Kind::Node {
            last = Some(e);
        }
    }
    // C divides a graph at sums, but leaves out views of host memory. If the last node is such a view, C misses the
    // graph's end.
    if let Some(e) = last.filter(|e| meta.is_host() && e.views_placed()) {
        let reason = "on a meta device of CPUs a graph can't end with a view of a state, or with what writes to one; end it \
                      with another operation";
        return Err(Error::unsupported(e.ptr.op_name(), [e.ptr.info()], device.name(), reason));
    }
    Ok(())
}

/// How often each entry of a graph is a source.
fn uses(graph: &Entries) -> Vec<usize> {
    let mut uses = vec![0; graph.len()];
    for &i in graph.all_srcs() {
        if let Some(n) = uses.get_mut(i as usize) {
            *n += 1;
        }
    }
    uses
}

struct Walk<'a> {
    graph: &'a Entries,
    device: Device,
    meta: &'static MetaDeviceInfo,
    uses: Vec<usize>,
}

impl Walk<'_> {
    fn visit(&self, i: usize, e: &Entry, on: bool, seen: &[EntryState]) -> Result<EntryState> {
        let whole = |here| EntryState { state: SplitState::Mirrored, partial: false, pending: false, here };
        match e.kind {
            Kind::Placed(_) => {
                let state = state_of(e.ptr);
                let here = state.is_some();
                Ok(EntryState { state: state.unwrap_or(SplitState::Mirrored), ..whole(here) })
            }
            Kind::Input => Ok(whole(on)),
            Kind::Node if on => self.compute(i, e, seen),
            Kind::Node => self.compute_elsewhere(e, seen).map(|()| whole(false)),
        }
    }

    /// The sources of an operation with their slots, without the operation itself, which is a source of casts.
    fn sources<'s>(&self, e: &Entry, seen: &'s [EntryState]) -> Vec<(usize, TensorPtr, usize, &'s EntryState)> {
        let all = self.graph.srcs(e).filter(|&(_, t)| t != e.ptr);
        all.filter_map(|(place, t)| {
            let i = self.graph.position(t)?;
            Some((place, t, i, seen.get(i)?))
        })
        .collect()
    }

    /// Checks an operation that the meta device computes.
    fn compute(&self, i: usize, e: &Entry, seen: &[EntryState]) -> Result<EntryState> {
        let sources = self.sources(e, seen);
        let refuse = |Refusal(reason)| self.refuse(e, &sources, reason);
        let need = |holds, otherwise| need(holds, otherwise).map_err(refuse);
        let op = operation(e.ptr).map_err(refuse)?;
        let root = (e.root as usize != i).then(|| seen.get(e.root as usize));
        let of_state = e.root_kind == Kind::Placed(Owner::State);
        let is_own = (of_state || e.root_kind == Kind::Node) && root.flatten().is_none_or(|root| root.here);
        need(is_own, "it is a view of an input, of weights, or of another device's memory; copy that first (`cont`)")?;
        let known = !of_state || e.ptr.is_view_op() || matches!(op, Operation::SetRows);
        need(known, "only `set_rows` writes to a state on a meta device; give it the result")?;
        let mut states: [Option<SplitState>; sys::GGML_MAX_SRC as usize] = Default::default();
        for &(place, _, _, source) in &sources {
            if let Some(to) = states.get_mut(place) {
                *to = Some(source.state.clone());
            }
        }
        let SplitResult { state, partial } = states::result_of(e.ptr, &states).map_err(refuse)?;
        let whole = |shares: &[i64]| shares.iter().all(|n| n % e.ptr.dtype().block_size() == 0);
        let uneven = matches!(&state, SplitState::Along { axis: 0, shares } if !whole(shares));
        need(!uneven, "the split along axis 0 does not fall between blocks")?;
        // ggml delays the all-reduce of a partial sum past products with mirrored factors, and past the sum of two
        // partial sums.
        let late = |i: usize| sources.get(i).is_some_and(|(_, _, _, s)| s.pending);
        let scaled = matches!(op, Operation::Mul) && late(0);
        let alone = !scaled || sources.first().is_some_and(|&(_, _, first, _)| self.uses.get(first) == Some(&1));
        need(alone, "a partial sum that is multiplied may have no other use; use `scale` or `cont` first")?;
        let viewed = matches!(op, Operation::View) && late(0);
        need(!viewed, "a partial sum can't be viewed; use `cont` first")?;
        let pending = partial || scaled || (matches!(op, Operation::Add) && late(0) && late(1));
        // A state's value is not checked here, but when the host reads it.
        let is_read = e.kept && !of_state;
        let why = "a partial sum can't be read, as ggml may delay its all-reduce; read what is computed from it";
        need(!(is_read && pending), why)?;
        let whole = state == SplitState::Mirrored || (e.ptr.is_contiguous() && e.ptr.view_src().is_none());
        need(!is_read || whole, "a split result can only be read if it is contiguous and not a view; use `cont`")?;
        let last = matches!(state, SplitState::Along { axis: 3, .. });
        need(!(is_read && last), "a result that is split along axis 3 can't be read")?;
        Ok(EntryState { state, partial, pending, here: true })
    }

    /// Checks an operation that another device computes.
    fn compute_elsewhere(&self, e: &Entry, seen: &[EntryState]) -> Result<()> {
        let sources = self.sources(e, seen);
        let need =
            |holds, otherwise| need(holds, otherwise).map_err(|Refusal(reason)| self.refuse(e, &sources, reason));
        for (_, _, _, source) in sources.iter().filter(|(_, _, _, source)| source.here) {
            need(!self.meta.is_host(), "a tensor on a meta device of CPUs can't be used elsewhere")?;
            let whole = !source.pending && source.state == SplitState::Mirrored;
            need(whole, "a split tensor or a partial sum can't be used on another device")?;
        }
        let root = seen.get(e.root as usize);
        need(root.is_none_or(|root| !root.here), "it is a view of, or writes to, a tensor on a meta device")
    }

    fn refuse(&self, e: &Entry, sources: &[(usize, TensorPtr, usize, &EntryState)], reason: &str) -> Error {
        let how = |(_, t, _, seen): &(usize, TensorPtr, usize, &EntryState)| {
            let partial = if seen.partial { " after a sum over devices" } else { "" };
            format!("`{}` is {}{partial}", t.name(), seen.state)
        };
        let states: Vec<_> = sources.iter().map(how).collect();
        let operands = sources.iter().map(|&(_, t, _, _)| t).chain([e.ptr]).map(TensorPtr::info);
        Error::unsupported(e.ptr.op_name(), operands, self.device.name(), format!("{reason}: {}", states.join(", ")))
    }
}

/// Checks that a graph for other devices has no tensor on a meta device: ggml would initialise views of such a tensor
/// on the meta device.
pub(crate) fn check_absent(graph: &Entries) -> Result<()> {
    let mut placed = graph.iter().filter(|e| any() && matches!(e.kind, Kind::Placed(_)));
    placed
        .find(|e| state_of(e.ptr).is_some())
        .map_or(Ok(()), |e| Err(Error::unsupported("graph", [e.ptr.info()], "CPU", "it lies on a meta device")))
}

/// The addresses and split states of a graph's weights on meta devices. ggml caches split states by a tensor's address
/// and those of its sources, so a graph with the same plan, but other weights at those addresses, would get stale ones.
pub(crate) fn places(graph: &Entries) -> Vec<(usize, SplitState)> {
    if !any() {
        return Vec::new();
    }
    let placed = graph.iter().filter(|e| matches!(e.kind, Kind::Placed(_)));
    placed.filter_map(|e| Some((e.ptr.as_ptr().addr(), state_of(e.ptr)?))).collect()
}
