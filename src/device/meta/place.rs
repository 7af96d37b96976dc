//! Weights on meta devices. The user's closure is asked before C is called; C gets its answers from a table.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

use super::device::{any, known};
use super::lock::Alone;
use super::split::{Split, State};
use crate::callback;
use crate::device::{self, BufferType, Device};
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::lock::Lock;

/// How a closure divides tensors.
type Choose = dyn Fn(&TensorInfo) -> Split + Send + Sync;

/// What C's callback looks into: how the weights on a device are divided.
pub(crate) struct Splits {
    pub(crate) members: Box<[Device]>,
    choose: Box<Choose>,
    /// By the tensor's address, with a number that tells a tensor from the next one there.
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

/// C asks how a tensor of weights is divided.
///
/// # Safety
///
/// `user` must be a [`Splits`] that lives for ever.
pub(crate) unsafe extern "C-unwind" fn on_split_state(
    t: *const sys::ggml_tensor,
    user: *mut c_void,
) -> sys::ggml_backend_meta_split_state {
    // SAFETY: it lives for ever, by contract.
    let splits = unsafe { &*user.cast::<Splits>() };
    // All that lies there is in the table (`divide`).
    splits.state(t.addr()).unwrap_or(State::Mirrored).raw()
}

/// Tensors whose division a device knows, for as long as their memory is there.
pub(crate) struct Divided {
    splits: &'static Splits,
    tensors: Vec<usize>,
    id: u64,
}

impl Drop for Divided {
    fn drop(&mut self) {
        let mut states = self.splits.states.lock();
        for address in &self.tensors {
            // Another tensor may have its address by now.
            if states.get(address).is_some_and(|&(id, _)| id == self.id) {
                states.remove(address);
            }
        }
    }
}

/// Asks how tensors are to be divided, if memory of this type is a meta device's. C may then be asked to place them.
///
/// # Errors
///
/// [`Error::Param`] where the answer does not fit the tensor; [`Error::Unsupported`] for states.
pub(crate) fn divide(buft: BufferType, tensors: &[TensorPtr], owner: Owner) -> Result<Option<Divided>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some((device, known)) = buft.device().and_then(|d| Some((d, known(d)?))) else { return Ok(None) };
    let refuse = |t: TensorPtr, reason: &'static str| {
        Error::unsupported("WeightsBuilder::place", [t.info()], device.name(), reason)
    };
    let mut states = Vec::with_capacity(tensors.len());
    for &t in tensors {
        if owner != Owner::Weights {
            return Err(refuse(t, "several devices that work as one take weights, not what operations write to"));
        }
        if !device.fits_wire(t) {
            return Err(refuse(t, "RPC can't carry dimensions or strides of 2^32 and more"));
        }
        let info = t.info();
        let split = (known.splits.choose)(&info);
        states.push((t.as_ptr().addr(), split.resolve(&info, t.dtype(), known.splits.members.len())?));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let tensors = states.iter().map(|&(address, _)| address).collect();
    let mut table = known.splits.states.lock();
    table.extend(states.into_iter().map(|(address, state)| (address, (id, state))));
    drop(table);
    Ok(Some(Divided { splits: known.splits, tensors, id }))
}

/// How the memory of `t`, a tensor of weights, is divided, if it lies on a meta device.
pub(crate) fn state_of(t: TensorPtr) -> Option<State> {
    let known = known(device::type_of(t)?.device()?)?;
    Some(known.splits.state(t.root().as_ptr().addr()).unwrap_or(State::Mirrored))
}

/// Makes ready for a transfer of `len` bytes of `t` from byte `offset` on: where `t` lies on a meta device, no other thread
/// uses those until the result is dropped.
///
/// # Errors
///
/// [`Error::Unsupported`] where a part of a tensor would be transferred that is divided: ggml asserts that it is whole.
pub(crate) fn transfers(call: &'static str, t: TensorPtr, offset: usize, len: usize) -> Result<Option<Alone>> {
    if !any() {
        return Ok(None);
    }
    let Some(device) = device::type_of(t).and_then(BufferType::device).filter(|&d| known(d).is_some()) else {
        return Ok(None);
    };
    callback::check_open(call)?;
    let mirrored = match t.owner() {
        Owner::Graph => t.op() == sys::GGML_OP_NONE,
        _ => state_of(t) == Some(State::Mirrored),
    };
    // Views of a graph's own tensors that are read were checked when it was allocated.
    let whole = (offset, Some(len)) == (0, t.span()) && (t.owner() == Owner::Graph || t.view_src().is_none());
    if !(mirrored || whole) {
        let why = "what is divided among devices is read and written as a whole";
        return Err(Error::unsupported(call, [t.info()], device.name(), why));
    }
    Alone::wait(call, false).map(Some)
}
