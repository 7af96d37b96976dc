//! The views of states on a meta device: a graph claims them before C allocates it ([`Views`]).

use std::sync::Arc;

use crate::backend::Backend;
use crate::device::meta::{self, SplitState, Views};
use crate::device::{BufferType, Device, type_of};
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{Owner, TensorPtr};
use crate::list;

use super::plan::next_id;

const LIST: &str = "the views of states";

/// The views of an allocated graph on a meta device.
pub(crate) struct Claims {
    id: u64,
    /// The views of each buffer of states that the graph uses.
    views: Vec<Arc<Views>>,
}

impl Claims {
    /// Claims the views of each state on `backend`, a meta device's, of which the graph has views, and makes room for
    /// them. The caller holds the lock of meta devices until C has allocated the graph.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if C has no room for so many views, or would compute the place of one wrongly.
    pub(crate) fn of(graph: &Graph<'_>, backend: &mut Backend) -> Result<Self> {
        let device = backend.device();
        let refuse = |t: TensorPtr, reason| Err(Error::unsupported(t.op_name(), [t.info()], device.name(), reason));
        let (mut counted, mut states): (Vec<(Arc<Views>, usize)>, Vec<_>) = (Vec::new(), Vec::new());
        for (e, state) in views(graph) {
            let Some(views) = meta::views_of(state) else { continue };
            // C scales the offset of a view of a split tensor, by a rule that does not fit all shapes.
            if e.ptr.view_offs() != 0 && meta::state_of(state) != Some(SplitState::Mirrored) {
                let reason = "a view of a state that is split among devices begins at its first element";
                return refuse(e.ptr, reason.to_owned());
            }
            if let Some((_, n)) = counted.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &views)) {
                *n += 1;
            } else {
                list::push(&mut counted, (views, 1), LIST)?;
                list::push(&mut states, state.as_ptr(), LIST)?;
            }
            if let Some((views, n)) = counted.iter().find(|(views, n)| *n > views.room()) {
                let room = views.room();
                return refuse(
                    e.ptr,
                    format!("ggml has room for {room} views of these states; the graph has {n} or more"),
                );
            }
        }
        let id = next_id();
        // The views change hands before any call that may fail, so that earlier allocations are refused in any case.
        for (views, _) in &counted {
            views.hand_to(id);
        }
        if !states.is_empty() {
            backend.renew_views(&mut states)?;
        }
        Ok(Self { id, views: counted.into_iter().map(|(views, _)| views).collect() })
    }

    /// Checks that no later allocation of another graph has taken the views.
    pub(super) fn check(&self, call: &'static str, graph: &Graph<'_>) -> Result<()> {
        if self.views.iter().all(|views| views.are_of(self.id)) {
            return Ok(());
        }
        let state = views(graph).find(|(_, state)| meta::views_of(*state).is_some()).map(|(_, state)| state);
        let device = state.and_then(type_of).and_then(BufferType::device).map(Device::name);
        let reason = "another graph with views of this state was allocated later, and ggml keeps the views of one graph on \
                      a meta device; allocate this one again";
        Err(Error::unsupported(call, state.map(TensorPtr::info), device.unwrap_or_default(), reason))
    }
}

/// The views of states that are in a graph, each with its state.
fn views<'g>(graph: &'g Graph<'_>) -> impl Iterator<Item = (&'g Entry, TensorPtr)> {
    let all = graph.entries().iter().filter(|e| e.views_placed() && e.root_kind == Kind::Placed(Owner::State));
    all.map(|e| (e, e.ptr.root()))
}
