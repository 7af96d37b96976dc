//! Places weights and states on meta devices. The user's closure is called before C is; C reads its answers from a
//! table.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::device::{any, known};
use super::lock::MetaLockGuard;
use super::split::{SplitMode, SplitState};
use super::views::Views;
use crate::device::{self, BufferType, Device};
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::lock::Lock;

/// The user's closure, which decides how tensors are split.
type ChooseSplit = dyn Fn(&TensorInfo) -> SplitMode + Send + Sync;

/// What this crate records of a tensor on a meta device.
struct Assigned {
    /// A unique id: tells this tensor from an earlier one that had the same address.
    id: u64,
    state: SplitState,
    /// The views of all tensors in this tensor's buffer, if the buffer holds states.
    views: Option<Arc<Views>>,
}

/// The data of C's callback: the split states of the weights and states on a device.
pub(crate) struct Splits {
    pub(crate) members: Box<[Device]>,
    choose: Box<ChooseSplit>,
    /// What is recorded of each tensor, by its address.
    placed: Lock<HashMap<usize, Assigned>>,
}

impl Splits {
    pub(crate) fn new(members: &[Device], choose: Box<ChooseSplit>) -> Self {
        Self { members: members.into(), choose, placed: Lock::default() }
    }

    fn state(&self, address: usize) -> Option<SplitState> {
        self.placed.lock().get(&address).map(|placed| placed.state.clone())
    }

    fn views(&self, address: usize) -> Option<Arc<Views>> {
        self.placed.lock().get(&address)?.views.clone()
    }
}

/// C's callback: returns the split state of a tensor of weights or states.
///
/// # Safety
///
/// `user` must be a leaked [`Splits`].
pub(crate) unsafe extern "C-unwind" fn on_split_state(
    t: *const sys::ggml_tensor,
    user: *mut c_void,
) -> sys::ggml_backend_meta_split_state {
    // SAFETY: `user` is a leaked `Splits`, by this function's `# Safety`.
    let splits = unsafe { &*user.cast::<Splits>() };
    // `shard` has put every tensor of weights and states into the table.
    splits.state(t.addr()).unwrap_or(SplitState::Mirrored).raw()
}

/// Tensors with a split state in a device's table. Its drop removes them.
pub(crate) struct Sharded {
    splits: &'static Splits,
    tensors: Vec<usize>,
    id: u64,
}

impl Drop for Sharded {
    fn drop(&mut self) {
        let mut table = self.splits.placed.lock();
        for address in &self.tensors {
            // If a new tensor has this address by now, the table keeps the new tensor's split state.
            if table.get(address).is_some_and(|placed| placed.id == self.id) {
                table.remove(address);
            }
        }
    }
}

/// Asks the closure how to split these tensors, if `buft` is a meta device's. C can place them afterwards.
///
/// # Errors
///
/// [`Error::Param`] if the answer doesn't fit the tensor; [`Error::Unsupported`] for tensors that a member can't hold.
pub(crate) fn shard(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Option<Sharded>> {
    const WHAT: &str = "how tensors are split";
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((device, known)) = buft.device().and_then(|d| Some((d, known(d)?))) else { return Ok(None) };
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], device.name(), reason)
    };
    let mut states = list::reserved(tensors.len(), WHAT)?;
    for &t in tensors {
        if cfg!(not(ggml_0_28)) && owner == Owner::State && known.is_host() {
            // ggml 0.26.0 leaves out operations on states of a meta device of CPUs, as if the states were the CPU's
            // own.
            return Err(refuse(t, "ggml 0.26.0 can't compute with states on a meta device of CPUs"));
        }
        if !device.fits_wire(t) {
            return Err(refuse(t, "RPC can't carry dimensions or strides of 2^32 and more; use a smaller tensor"));
        }
        let info = t.info();
        let split = (known.splits.choose)(&info);
        states.push((t.as_ptr().addr(), split.resolve(&info, t.dtype(), known.splits.members.len())?));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let tensors = list::collect(states.iter().map(|&(address, _)| address), WHAT)?;
    let views = (owner == Owner::State).then(|| Arc::new(Views::of(tensors.len())));
    let mut table = known.splits.placed.lock();
    table.try_reserve(states.len()).map_err(|_| Error::no_memory(WHAT))?;
    let placed = |(address, state)| (address, Assigned { id, state, views: views.clone() });
    table.extend(states.into_iter().map(placed));
    drop(table);
    Ok(Some(Sharded { splits: known.splits, tensors, id }))
}

/// The split state of a tensor of weights or states on a meta device; for a view, that of its root.
pub(crate) fn state_of(t: TensorPtr) -> Option<SplitState> {
    let known = known(device::type_of(t)?.device()?)?;
    Some(known.splits.state(t.root().as_ptr().addr()).unwrap_or(SplitState::Mirrored))
}

/// The views of all tensors in the buffer of the state tensor `t`, if it is on a meta device.
pub(crate) fn views_of(t: TensorPtr) -> Option<Arc<Views>> {
    if !any() {
        return None;
    }
    known(device::type_of(t)?.device()?)?.splits.views(t.as_ptr().addr())
}

/// Prepares a transfer of `len` bytes of `t` from byte `offset` on. If `t` is on a meta device, other threads can't
/// call the meta device's code until the result is dropped.
///
/// # Errors
///
/// [`Error::Unsupported`] for a part of a split tensor: ggml asserts that it is transferred as a whole.
pub(crate) fn transfers(call: &'static str, t: TensorPtr, offset: usize, len: usize) -> Result<Option<MetaLockGuard>> {
    if !any() {
        return Ok(None);
    }
    let Some(device) = device::type_of(t).and_then(BufferType::device).filter(|&d| known(d).is_some()) else {
        return Ok(None);
    };
    // Tensors of a graph were checked at allocation. The user chooses the strides of a view of a state, and C would
    // divide the memory of all members by these strides.
    let root = t.root();
    let is_graphs = root.owner() == Owner::Graph;
    let mirrored = if is_graphs { t.is_leaf() } else { state_of(t) == Some(SplitState::Mirrored) };
    let unsharded = is_graphs || (t.view_offs() == 0 && t.layout() == root.layout());
    let whole = (offset, Some(len)) == (0, t.span()) && unsharded;
    if !(mirrored || whole) {
        let why = "a tensor that is split among devices is transferred as a whole; read or write all of it";
        return Err(Error::unsupported(call, [t.info()], device.name(), why));
    }
    MetaLockGuard::wait(call, device.is_driven()).map(Some)
}
