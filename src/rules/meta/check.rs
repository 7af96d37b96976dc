//! What is checked of a graph before ggml computes how its results are divided.

use super::states::{self, Made};
use crate::device::Device;
use crate::device::meta::State;
use crate::device::meta::state_of;
use crate::device::meta::{MetaDeviceInfo, any, known};
use crate::error::{Error, Result};
use crate::graph::{Entry, Graph, Kind};
use crate::header::TensorPtr;
use crate::rules::Refusal;

use ggml_sys as sys;

/// C has room for two to the twentieth headers beside each buffer, copies of a scheduler's inputs counted.
const MOST_TENSORS: usize = 1 << 19;

/// How many tensors graphs of `len` may have had together before what C remembers of them must go. It makes headers for
/// each graph that is allocated, until one is computed, and never forgets how a tensor was divided.
pub(crate) fn most_used(len: usize) -> usize {
    (8 * len).clamp(1 << 14, MOST_TENSORS)
}

/// What is known of an entry.
struct Seen {
    /// How it is divided once partial sums are added up.
    state: State,
    partial: bool,
    /// Whether ggml may put off adding up: what is multiplied, or added to another such sum, may be added up afterwards.
    pending: bool,
    /// Whether it lies on the meta device.
    here: bool,
}

/// Checks that `device`, if it is a meta device, can compute those operations of the graph that lie there (`on`), and that
/// all results can be read. What else they read is copied there.
pub(crate) fn check(graph: &Graph<'_>, device: Device, on: impl Fn(&Entry) -> bool) -> Result<()> {
    let Some(meta) = known(device) else { return Ok(()) };
    if graph.entries().len() > MOST_TENSORS {
        let why = format!("several devices that work as one take graphs of {MOST_TENSORS} tensors at most");
        return Err(Error::unsupported("graph", [], device.name(), why));
    }
    let walk = Walk { graph, device, meta, uses: uses(graph) };
    let mut seen: Vec<Seen> = Vec::with_capacity(graph.entries().len());
    for (i, e) in graph.entries().iter().enumerate() {
        let next = walk.visit(i, e, on(e), &seen)?;
        seen.push(next);
    }
    Ok(())
}

/// How often each entry is an operand.
fn uses(graph: &Graph<'_>) -> Vec<usize> {
    let mut uses = vec![0; graph.entries().len()];
    for &i in graph.all_srcs() {
        if let Some(n) = uses.get_mut(i as usize) {
            *n += 1;
        }
    }
    uses
}

struct Walk<'a, 'c> {
    graph: &'a Graph<'c>,
    device: Device,
    meta: &'static MetaDeviceInfo,
    uses: Vec<usize>,
}

impl Walk<'_, '_> {
    fn visit(&self, i: usize, e: &Entry, on: bool, seen: &[Seen]) -> Result<Seen> {
        let whole = |here| Seen { state: State::Mirrored, partial: false, pending: false, here };
        match e.kind {
            Kind::Placed(_) => {
                let state = state_of(e.ptr);
                let here = state.is_some();
                Ok(Seen { state: state.unwrap_or(State::Mirrored), ..whole(here) })
            }
            Kind::Input => Ok(whole(on)),
            Kind::Node if on => self.compute(i, e, seen),
            Kind::Node => self.compute_elsewhere(e, seen).map(|()| whole(false)),
        }
    }

    /// The operation's sources in their places, but for itself.
    fn sources<'s>(&self, e: &Entry, seen: &'s [Seen]) -> Vec<(usize, TensorPtr, usize, &'s Seen)> {
        let all = self.graph.srcs(e).filter(|&(_, t)| t != e.ptr);
        all.filter_map(|(place, t)| {
            let i = self.graph.position(t)?;
            Some((place, t, i, seen.get(i)?))
        })
        .collect()
    }

    /// An operation that the meta device computes.
    fn compute(&self, i: usize, e: &Entry, seen: &[Seen]) -> Result<Seen> {
        let sources = self.sources(e, seen);
        let refuse = |reason: &str| Err(self.refuse(e, &sources, reason));
        let root = (e.root as usize != i).then(|| seen.get(e.root as usize));
        if e.root_kind != Kind::Node || root.flatten().is_some_and(|root| !root.here) {
            return refuse(
                "it looks at an input, at weights, or at another device's memory; copy those first (`cont`)",
            );
        }
        let mut states: [Option<State>; sys::GGML_MAX_SRC as usize] = Default::default();
        for &(place, _, _, source) in &sources {
            if let Some(to) = states.get_mut(place) {
                *to = Some(source.state.clone());
            }
        }
        let Made { state, partial } = match states::made(e.ptr, &states) {
            Ok(made) => made,
            Err(Refusal(reason)) => return refuse(reason),
        };
        if let State::Along { axis: 0, shares } = &state
            && shares.iter().any(|n| n % e.ptr.dtype().block_size() != 0)
        {
            return refuse("rows would not be divided by whole blocks");
        }
        // ggml adds up as late as it may: behind products with whole factors, and behind the sum of two.
        let late = |i: usize| sources.get(i).is_some_and(|(_, _, _, s)| s.pending);
        let op = e.ptr.op();
        let scaled = op == sys::GGML_OP_MUL && late(0);
        if scaled && sources.first().is_none_or(|&(_, _, first, _)| self.uses.get(first) != Some(&1)) {
            return refuse(
                "a sum over devices that is multiplied may be used by nothing else; use `scale` or `cont` first",
            );
        }
        if op == sys::GGML_OP_VIEW && late(0) {
            return refuse("a sum over devices can't be viewed in part; use `cont` first");
        }
        let pending = partial || scaled || (op == sys::GGML_OP_ADD && late(0) && late(1));
        if e.kept && pending {
            return refuse(
                "a sum over devices can't be read, as ggml may not have added it up; read what is made of it",
            );
        }
        if e.kept && state != State::Mirrored && !(e.ptr.is_contiguous() && e.ptr.view_src().is_none()) {
            return refuse("a result that is divided can be read if it is contiguous and no view; use `cont`");
        }
        if e.kept && matches!(state, State::Along { axis: 3, .. }) {
            return refuse("a result that is divided along axis 3 can't be read");
        }
        Ok(Seen { state, partial, pending, here: true })
    }

    /// An operation that another device computes.
    fn compute_elsewhere(&self, e: &Entry, seen: &[Seen]) -> Result<()> {
        let sources = self.sources(e, seen);
        let refuse = |reason: &str| Err(self.refuse(e, &sources, reason));
        for (_, _, _, source) in sources.iter().filter(|(_, _, _, source)| source.here) {
            if self.meta.is_host() {
                return refuse("what lies on several CPUs that work as one can't be used elsewhere");
            }
            if source.pending || source.state != State::Mirrored {
                return refuse("what is divided, or still to be added up, can't be used on another device");
            }
        }
        let root = seen.get(e.root as usize);
        if root.is_some_and(|root| root.here) {
            return refuse("it changes, or looks at, what lies on several devices that work as one");
        }
        Ok(())
    }

    fn refuse(&self, e: &Entry, sources: &[(usize, TensorPtr, usize, &Seen)], reason: &str) -> Error {
        let how = |(_, t, _, seen): &(usize, TensorPtr, usize, &Seen)| {
            let partial = if seen.partial { ", added up" } else { "" };
            format!("`{}` is {}{partial}", t.name(), seen.state)
        };
        let divided: Vec<_> = sources.iter().map(how).collect();
        let operands = sources.iter().map(|&(_, t, _, _)| t).chain([e.ptr]).map(TensorPtr::info);
        Error::unsupported(e.ptr.op_name(), operands, self.device.name(), format!("{reason}: {}", divided.join(", ")))
    }
}

/// Checks that a graph that is not for meta devices has nothing on one: views of that would be made ready there.
pub(crate) fn check_absent(graph: &Graph<'_>) -> Result<()> {
    let mut placed = graph.entries().iter().filter(|e| any() && matches!(e.kind, Kind::Placed(_)));
    placed.find(|e| state_of(e.ptr).is_some()).map_or(Ok(()), |e| {
        Err(Error::unsupported("graph", [e.ptr.info()], "CPU", "it lies on several devices that work as one"))
    })
}

/// Where the weights of a graph lie that are on meta devices, and how they are divided. ggml remembers how results are
/// divided by their addresses, and by those of their sources: a graph with the same plan but other weights at the addresses
/// of the former ones would be taken for the same.
pub(crate) fn places(graph: &Graph<'_>) -> Vec<(usize, State)> {
    if !any() {
        return Vec::new();
    }
    let placed = graph.entries().iter().filter(|e| matches!(e.kind, Kind::Placed(_)));
    placed.filter_map(|e| Some((e.ptr.as_ptr().addr(), state_of(e.ptr)?))).collect()
}
