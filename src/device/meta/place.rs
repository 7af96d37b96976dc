//! Places weights on meta devices. The user's closure is called before C is; C reads its answers from a table.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::device::{any, known};
use super::lock::MetaLockGuard;
use super::split::{Split, State};
use crate::device::{self, BufferType, Device};
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::lock::Lock;

/// The user's closure, which decides how tensors are split.
type Choose = dyn Fn(&TensorInfo) -> Split + Send + Sync;

/// The data of C's callback: the split states of the weights on a device.
pub(crate) struct Splits {
    pub(crate) members: Box<[Device]>,
    choose: Box<Choose>,
    /// By tensor address, with an id that distinguishes tensors that had the same address.
    states: Lock<HashMap<usize, (u64, State)>>,
}

impl Splits {
    pub(crate) fn new(members: &[Device], choose: Box<Choose>) -> Self {
        Self { members: members.into(), choose, states: Lock::default() }
    }

    fn state(&self, address: usize) -> Option<State> {
        let states = self.states.lock();
        states.get(&address).map(|(_, state)| state.clone())
    }
}

/// C's callback: returns the split state of a weight tensor.
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
        let mut states = self.splits.states.lock();
        for address in &self.tensors {
            // A new tensor may have this address by now. Keep its state.
            if states.get(address).is_some_and(|&(id, _)| id == self.id) {
                states.remove(address);
            }
        }
    }
}

/// Asks the closure how to split these tensors, if `buft` is a meta device's. C can place them afterwards.
///
/// # Errors
///
/// [`Error::Param`] if the answer doesn't fit the tensor; [`Error::Unsupported`] for states.
pub(crate) fn divide(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Option<Divided>> {
    const WHAT: &str = "how weights are split";
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((device, known)) = buft.device().and_then(|d| Some((d, known(d)?))) else { return Ok(None) };
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], device.name(), reason)
    };
    let mut states = Vec::new();
    states.try_reserve_exact(tensors.len()).map_err(|_| Error::no_memory(WHAT))?;
    for &t in tensors {
        if owner != Owner::Weights {
            return Err(refuse(t, "a meta device holds weights only; place states on one of its members"));
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
    let mut table = known.splits.states.lock();
    table.try_reserve(states.len()).map_err(|_| Error::no_memory(WHAT))?;
    table.extend(states.into_iter().map(|(address, state)| (address, (id, state))));
    drop(table);
    Ok(Some(Divided { splits: known.splits, tensors, id }))
}

/// The split state of the weight tensor `t`, if it is on a meta device.
pub(crate) fn state_of(t: TensorPtr) -> Option<State> {
    let known = known(device::type_of(t)?.device()?)?;
    Some(known.splits.state(t.root().as_ptr().addr()).unwrap_or(State::Mirrored))
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
    let mirrored = match t.owner() {
        Owner::Graph => t.is_leaf(),
        _ => state_of(t) == Some(State::Mirrored),
    };
    // Views of tensors that the graph allocates were checked at allocation.
    let whole = (offset, Some(len)) == (0, t.span()) && (t.owner() == Owner::Graph || t.view_src().is_none());
    if !(mirrored || whole) {
        let why = "a tensor that is split among devices is transferred as a whole; read or write all of it";
        return Err(Error::unsupported(call, [t.info()], device.name(), why));
    }
    MetaLockGuard::wait(call, device.is_driven()).map(Some)
}
