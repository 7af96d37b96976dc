//! The checks of a graph on a meta device, before ggml derives how its results are split.

use super::states::{self, SplitResult};
use crate::device::Device;
use crate::device::meta::State;
use crate::device::meta::state_of;
use crate::device::meta::{MetaDeviceInfo, any, known};
use crate::entries::{Entries, Entry, Kind};
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::rules::Refusal;

use ggml_sys as sys;

/// C has room for 2^20 headers per buffer, including the scheduler's copies of inputs.
const MOST_TENSORS: usize = 1 << 19;

/// How many tensors, over all graphs so far, C may keep state of before it must be reset, for graphs of `len`. C makes
/// headers for each allocated graph until one is computed, and never forgets the split state of a tensor.
pub(crate) fn most_used(len: usize) -> usize {
    (8 * len).clamp(1 << 14, MOST_TENSORS)
}

/// The split state of an entry.
struct SplitState {
    /// The split state after pending all-reduces.
    state: State,
    partial: bool,
    /// Whether ggml may delay the all-reduce past this entry: past a multiplication, or a sum of two partial sums.
    pending: bool,
    /// Whether the entry lies on the meta device.
    here: bool,
}

/// Checks that `device`, if it is a meta device, can compute the operations assigned to it (`on`), and that all kept
/// results can be read. The scheduler copies their other sources to the device.
pub(crate) fn check(graph: &Entries, device: Device, on: impl Fn(&Entry) -> bool) -> Result<()> {
    let Some(meta) = known(device) else { return Ok(()) };
    if graph.len() > MOST_TENSORS {
        let why = format!("a meta device takes graphs of {MOST_TENSORS} tensors at most");
        return Err(Error::unsupported("graph", [], device.name(), why));
    }
    let walk = Walk { graph, device, meta, uses: uses(graph) };
    let mut seen: Vec<SplitState> = Vec::with_capacity(graph.len());
    let mut last = None;
    for (i, e) in graph.iter().enumerate() {
        let on = on(e);
        let next = walk.visit(i, e, on, &seen)?;
        seen.push(next);
        if on && e.kind == Kind::Node {
            last = Some(e);
        }
    }
    // C takes views of host memory for no part of what it divides at sums, and then misses the end.
    if let Some(e) = last.filter(|e| meta.is_host() && e.views_placed()) {
        let reason = "on a meta device of CPUs a graph can't end with a view of a state, or with what writes to one; end it \
                      with another operation";
        return Err(Error::unsupported(e.ptr.op_name(), [e.ptr.info()], device.name(), reason));
    }
    Ok(())
}

/// How often each entry is a source.
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
    fn visit(&self, i: usize, e: &Entry, on: bool, seen: &[SplitState]) -> Result<SplitState> {
        let whole = |here| SplitState { state: State::Mirrored, partial: false, pending: false, here };
        match e.kind {
            Kind::Placed(_) => {
                let state = state_of(e.ptr);
                let here = state.is_some();
                Ok(SplitState { state: state.unwrap_or(State::Mirrored), ..whole(here) })
            }
            Kind::Input => Ok(whole(on)),
            Kind::Node if on => self.compute(i, e, seen),
            Kind::Node => self.compute_elsewhere(e, seen).map(|()| whole(false)),
        }
    }

    /// The operation's sources with their slots, except itself.
    fn sources<'s>(&self, e: &Entry, seen: &'s [SplitState]) -> Vec<(usize, TensorPtr, usize, &'s SplitState)> {
        let all = self.graph.srcs(e).filter(|&(_, t)| t != e.ptr);
        all.filter_map(|(place, t)| {
            let i = self.graph.position(t)?;
            Some((place, t, i, seen.get(i)?))
        })
        .collect()
    }

    /// Checks an operation that the meta device computes.
    fn compute(&self, i: usize, e: &Entry, seen: &[SplitState]) -> Result<SplitState> {
        let sources = self.sources(e, seen);
        let refuse = |reason: &str| Err(self.refuse(e, &sources, reason));
        let root = (e.root as usize != i).then(|| seen.get(e.root as usize));
        let of_state = e.root_kind == Kind::Placed(Owner::State);
        if !(of_state || e.root_kind == Kind::Node) || root.flatten().is_some_and(|root| !root.here) {
            return refuse(
                "it is a view of an input, of weights, or of another device's memory; copy that first (`cont`)",
            );
        }
        if of_state && !(e.ptr.is_view_op() || e.ptr.op() == sys::GGML_OP_SET_ROWS) {
            return refuse("only `set_rows` writes to a state on a meta device; give it the result");
        }
        let mut states: [Option<State>; sys::GGML_MAX_SRC as usize] = Default::default();
        for &(place, _, _, source) in &sources {
            if let Some(to) = states.get_mut(place) {
                *to = Some(source.state.clone());
            }
        }
        let SplitResult { state, partial } = match states::result_of(e.ptr, &states) {
            Ok(result) => result,
            Err(Refusal(reason)) => return refuse(reason),
        };
        if let State::Along { axis: 0, shares } = &state
            && shares.iter().any(|n| n % e.ptr.dtype().block_size() != 0)
        {
            return refuse("the split along axis 0 does not fall between blocks");
        }
        // ggml delays the all-reduce past products with mirrored factors, and past the sum of two partial sums.
        let late = |i: usize| sources.get(i).is_some_and(|(_, _, _, s)| s.pending);
        let op = e.ptr.op();
        let scaled = op == sys::GGML_OP_MUL && late(0);
        if scaled && sources.first().is_none_or(|&(_, _, first, _)| self.uses.get(first) != Some(&1)) {
            return refuse("a partial sum that is multiplied may have no other use; use `scale` or `cont` first");
        }
        if op == sys::GGML_OP_VIEW && late(0) {
            return refuse("a partial sum can't be viewed; use `cont` first");
        }
        let pending = partial || scaled || (op == sys::GGML_OP_ADD && late(0) && late(1));
        // Reading what is in a state is checked then.
        let is_read = e.kept && !of_state;
        if is_read && pending {
            return refuse(
                "a partial sum can't be read, as ggml may delay its all-reduce; read what is computed from it",
            );
        }
        if is_read && state != State::Mirrored && !(e.ptr.is_contiguous() && e.ptr.view_src().is_none()) {
            return refuse("a split result can only be read if it is contiguous and no view; use `cont`");
        }
        if is_read && matches!(state, State::Along { axis: 3, .. }) {
            return refuse("a result that is split along axis 3 can't be read");
        }
        Ok(SplitState { state, partial, pending, here: true })
    }

    /// Checks an operation that another device computes.
    fn compute_elsewhere(&self, e: &Entry, seen: &[SplitState]) -> Result<()> {
        let sources = self.sources(e, seen);
        let refuse = |reason: &str| Err(self.refuse(e, &sources, reason));
        for (_, _, _, source) in sources.iter().filter(|(_, _, _, source)| source.here) {
            if self.meta.is_host() {
                return refuse("a tensor on a meta device of CPUs can't be used elsewhere");
            }
            if source.pending || source.state != State::Mirrored {
                return refuse("a split tensor or a partial sum can't be used on another device");
            }
        }
        let root = seen.get(e.root as usize);
        if root.is_some_and(|root| root.here) {
            return refuse("it is a view of, or writes to, a tensor on a meta device");
        }
        Ok(())
    }

    fn refuse(&self, e: &Entry, sources: &[(usize, TensorPtr, usize, &SplitState)], reason: &str) -> Error {
        let how = |(_, t, _, seen): &(usize, TensorPtr, usize, &SplitState)| {
            let partial = if seen.partial { " after a sum over devices" } else { "" };
            format!("`{}` is {}{partial}", t.name(), seen.state)
        };
        let states: Vec<_> = sources.iter().map(how).collect();
        let operands = sources.iter().map(|&(_, t, _, _)| t).chain([e.ptr]).map(TensorPtr::info);
        Error::unsupported(e.ptr.op_name(), operands, self.device.name(), format!("{reason}: {}", states.join(", ")))
    }
}

/// Checks that a graph for other devices has no tensor on a meta device: ggml would initialise views of it there.
pub(crate) fn check_absent(graph: &Entries) -> Result<()> {
    let mut placed = graph.iter().filter(|e| any() && matches!(e.kind, Kind::Placed(_)));
    placed
        .find(|e| state_of(e.ptr).is_some())
        .map_or(Ok(()), |e| Err(Error::unsupported("graph", [e.ptr.info()], "CPU", "it lies on a meta device")))
}

/// The addresses and split states of a graph's weights on meta devices. ggml caches split states by a tensor's address
/// and those of its sources, so a graph with the same plan, but other weights at those addresses, would get stale ones.
pub(crate) fn places(graph: &Entries) -> Vec<(usize, State)> {
    if !any() {
        return Vec::new();
    }
    let placed = graph.iter().filter(|e| matches!(e.kind, Kind::Placed(_)));
    placed.filter_map(|e| Some((e.ptr.as_ptr().addr(), state_of(e.ptr)?))).collect()
}
