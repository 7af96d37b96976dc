//! Places weights and states on meta devices. The user's closure is called before C is; C reads its answers from a
//! table.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::device::{any, known};
use super::lock::MetaLockGuard;
use super::split::{Split, State};
use super::views::Views;
use crate::device::{self, BufferType, Device};
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::lock::Lock;

/// The user's closure, which decides how tensors are split.
type Choose = dyn Fn(&TensorInfo) -> Split + Send + Sync;

/// What is known of a tensor on a device.
struct Placed {
    /// Distinguishes tensors that had the same address.
    id: u64,
    state: State,
    /// The views of what lies in the tensor's buffer, if that holds states.
    views: Option<Arc<Views>>,
}

/// The data of C's callback: the split states of the weights and states on a device.
pub(crate) struct Splits {
    pub(crate) members: Box<[Device]>,
    choose: Box<Choose>,
    /// By tensor address.
    placed: Lock<HashMap<usize, Placed>>,
}

impl Splits {
    pub(crate) fn new(members: &[Device], choose: Box<Choose>) -> Self {
        Self { members: members.into(), choose, placed: Lock::default() }
    }

    fn state(&self, address: usize) -> Option<State> {
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
    // SAFETY: a leaked `Splits`, by contract.
    let splits = unsafe { &*user.cast::<Splits>() };
    // Every placed tensor is in the table (`divide`).
    splits.state(t.addr()).unwrap_or(State::Mirrored).raw()
}

/// Tensors with a split state in a device's table. Its drop removes them.
pub(crate) struct Divided {
    splits: &'static Splits,
    tensors: Vec<usize>,
    id: u64,
}

impl Drop for Divided {
    fn drop(&mut self) {
        let mut table = self.splits.placed.lock();
        for address in &self.tensors {
            // A new tensor may have this address by now. Keep its state.
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
pub(crate) fn divide(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Option<Divided>> {
    const WHAT: &str = "how tensors are split";
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((device, known)) = buft.device().and_then(|d| Some((d, known(d)?))) else { return Ok(None) };
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], device.name(), reason)
    };
    let mut states = Vec::new();
    states.try_reserve_exact(tensors.len()).map_err(|_| Error::no_memory(WHAT))?;
    for &t in tensors {
        if cfg!(not(ggml_0_28)) && owner == Owner::State && known.is_host() {
            // It leaves out operations on them, as if they were the CPU's own.
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
    let placed = |(address, state)| (address, Placed { id, state, views: views.clone() });
    table.extend(states.into_iter().map(placed));
    drop(table);
    Ok(Some(Divided { splits: known.splits, tensors, id }))
}

/// The split state of a tensor of weights or states, or of the one that `t` is a view of, if it is on a meta device.
pub(crate) fn state_of(t: TensorPtr) -> Option<State> {
    let known = known(device::type_of(t)?.device()?)?;
    Some(known.splits.state(t.root().as_ptr().addr()).unwrap_or(State::Mirrored))
}

/// The views of what lies in the buffer of the state tensor `t`, if it is on a meta device.
pub(crate) fn views_of(t: TensorPtr) -> Option<Arc<Views>> {
    if !any() {
        return None;
    }
    known(device::type_of(t)?.device()?)?.splits.views(t.as_ptr().addr())
}

/// Prepares a transfer of `len` bytes of `t` from byte `offset` on. If `t` is on a meta device, the result locks its
/// code for other threads.
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
    // What the graph allocates was checked at allocation. Views of states have strides that users chose, by which C would
    // cut the memory of all members.
    let root = t.root();
    let is_graphs = root.owner() == Owner::Graph;
    let mirrored = if is_graphs { t.is_leaf() } else { state_of(t) == Some(State::Mirrored) };
    let undivided = is_graphs || (t.view_offs() == 0 && t.layout() == root.layout());
    let whole = (offset, Some(len)) == (0, t.span()) && undivided;
    if !(mirrored || whole) {
        let why = "a tensor that is split among devices is transferred as a whole; read or write all of it";
        return Err(Error::unsupported(call, [t.info()], device.name(), why));
    }
    MetaLockGuard::wait(call, device.is_driven()).map(Some)
}
