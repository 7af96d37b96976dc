//! Asynchronous transfers between host memory and tensors.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_void;
use std::marker::PhantomData;

use ggml_sys as sys;

use super::index::Which;
use super::placed::{Placed, whole};
use super::{LeafKey, State, Weights};
use crate::backend::Backend;
use crate::buffer;
use crate::debug::debug;
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::header::TensorPtr;
use crate::tensor::Tensor;
use crate::tensor::pieces::Pieces;
use crate::tensor::transfer;
use crate::{callback, log};

/// Tensors that [`Transfers`] may write to: those of a [`State`], or of [`Weights`] borrowed mutably.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::Writable;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("t", DType::F32, [2])?;
/// let state = builder.place_state(Device::cpu()?)?;
/// let to = Writable::from(&state);
/// Backend::cpu()?.transfers(|queue| queue.set(to, "t", &[1.0_f32, 2.0]))?;
/// assert_eq!(state.tensor("t")?.read::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Writable<'env>(&'env Placed);

impl<'env> From<&'env State> for Writable<'env> {
    fn from(state: &'env State) -> Self {
        Self(&state.0)
    }
}

impl<'env> From<&'env mut Weights> for Writable<'env> {
    fn from(weights: &'env mut Weights) -> Self {
        Self(&weights.0)
    }
}

debug!(Writable<'_>, |this| tensors = &this.0.len());

/// A queue of transfers that run in order and may not have finished; made by [`Backend::transfers`].
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("from", DType::F32, [2])?;
/// builder.tensor("to", DType::F32, [2])?;
/// let state = builder.place_state(Device::cpu()?)?;
/// Backend::cpu()?.transfers(|queue| {
///     queue.set(&state, "from", vec![1.0_f32, 2.0])?; // the queue keeps the vector
///     queue.copy(state.tensor("from")?, &state, "to")
/// })?;
/// assert_eq!(state.tensor("to")?.read::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
///
/// # Invariants
///
/// All arguments live for `'env`, which outlives this value: tensors, their buffers, and host memory, which is borrowed
/// mutably where it is written. The drop waits for all transfers, so none runs after `'env`.
pub struct Transfers<'s, 'env> {
    backend: &'s mut Backend,
    /// The backend from which tensors are copied, if it is not `backend`.
    source: Option<&'s mut Backend>,
    /// Data that the user has moved into the queue. They live until all transfers have ended.
    held: Vec<Box<dyn Any>>,
    /// This makes `'env` invariant, so that nothing with a shorter lifetime is accepted.
    env: PhantomData<&'env mut &'env ()>,
}

impl Backend {
    /// Runs several transfers between host memory and tensors in this device's default buffer type, without waiting for
    /// each. All transfers are waited for when `f` returns or panics. A device without asynchronous execution runs each
    /// transfer at once.
    ///
    /// Until the transfers have ended, other uses of the same tensors, also in `f`, see old data, new data, or a
    /// mixture.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("a", DType::F32, [2])?;
    /// builder.tensor("b", DType::F32, [2])?;
    /// let mut backend = Backend::cpu()?;
    /// let state = builder.place_state(backend.device().buffer_type())?;
    /// let mut read = [0.0_f32; 2];
    /// backend.transfers(|queue| {
    ///     queue.set(&state, "a", &[1.0_f32, 2.0])?;
    ///     queue.set(&state, "b", vec![3.0_f32, 4.0])?;
    ///     queue.get(state.tensor("b")?, &mut read)
    /// })?;
    /// assert_eq!(read, [3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `f`; [`Error::Poisoned`] or [`Error::RpcLost`] if the backend or device is lost.
    ///
    /// # Aborts
    ///
    /// Aborts the process if waiting for the device fails, because it may still use borrowed memory.
    pub fn transfers<'env, R>(&mut self, f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>) -> Result<R> {
        callback::check_reentry("Backend::transfers")?;
        run(self, None, f)
    }

    /// Runs several transfers as [`Backend::transfers`] does, among them copies from tensors of `source`'s device.
    ///
    /// # Errors
    ///
    /// As [`Backend::transfers`].
    pub fn transfers_from<'env, R>(
        &mut self,
        source: &mut Self,
        f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>,
    ) -> Result<R> {
        callback::check_reentry("Backend::transfers_from")?;
        run(self, Some(source), f)
    }
}

fn run<'s, 'env, R>(
    backend: &'s mut Backend,
    source: Option<&'s mut Backend>,
    f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>,
) -> Result<R> {
    let devices = [Some(&*backend), source.as_deref()].map(|b| b.map(Backend::device));
    for device in devices.into_iter().flatten() {
        meta::before_use("Backend::transfers", device, "a meta device has no asynchronous transfers; use `set`")?;
    }
    backend.check()?;
    source.as_ref().map_or(Ok(()), |s| s.check())?;
    let mut transfers = Transfers { backend, source, held: Vec::new(), env: PhantomData };
    let result = f(&mut transfers)?;
    drop(transfers);
    // If an RPC server was lost, the destination was not filled. This reports the loss.
    devices.into_iter().flatten().try_for_each(crate::device::Device::check_alive)?;
    Ok(result)
}

impl<'env> Transfers<'_, 'env> {
    /// Overwrites a tensor (`ggml_backend_tensor_set_async`) with borrowed or owned data.
    ///
    /// # Errors
    ///
    /// As [`State::set`]; [`Error::Unsupported`] if the tensor is not in the device's default buffer type
    /// ([`Device::buffer_type`](crate::Device::buffer_type)).
    #[doc(alias = "ggml_backend_tensor_set_async")]
    pub fn set<T: Element>(
        &mut self,
        to: impl Into<Writable<'env>>,
        leaf: impl LeafKey,
        data: impl Into<Cow<'env, [T]>>,
    ) -> Result<()> {
        const CALL: &str = "Transfers::set";
        callback::check_reentry(CALL)?;
        let t = self.target(CALL, to.into(), leaf.which())?;
        let data = data.into();
        transfer::check_whole::<T>(CALL, t, data.len())?;
        let (from, bytes) = self.hold(data);
        // SAFETY: backend and tensor are live, the tensor is in the backend's default buffer type (`target`), and
        // the data have its length (check_whole). Both stay until the drop has waited.
        unsafe {
            guarded!(call, sys::ggml_backend_tensor_set_async(self.backend.as_ptr(), t.as_ptr(), from, 0, bytes))
        }?;
        buffer::check_alive(t)
    }

    /// Overwrites equally long pieces of a tensor (`ggml_backend_tensor_set_2d_async`).
    ///
    /// # Errors
    ///
    /// As [`State::set_2d`] and [`Transfers::set`].
    #[doc(alias = "ggml_backend_tensor_set_2d_async")]
    pub fn set_2d<T: Element>(
        &mut self,
        to: impl Into<Writable<'env>>,
        leaf: impl LeafKey,
        pieces: Pieces,
        data: impl Into<Cow<'env, [T]>>,
    ) -> Result<()> {
        const CALL: &str = "Transfers::set_2d";
        callback::check_reentry(CALL)?;
        let t = self.target(CALL, to.into(), leaf.which())?;
        let data = data.into();
        let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(CALL, t, data.len())? else {
            return Ok(());
        };
        let (from, _) = self.hold(data);
        let (raw, to) = (self.backend.as_ptr(), t.as_ptr());
        // SAFETY: backend and tensor are live, the tensor is in the backend's default buffer type (`target`), and all
        // pieces are in bounds of the tensor and of the data (Pieces::checked). Both stay until the drop has waited.
        unsafe {
            guarded!(call, sys::ggml_backend_tensor_set_2d_async(raw, to, from, offset, len, count, step, data_step))
        }?;
        buffer::check_alive(t)
    }

    /// Reads a tensor (`ggml_backend_tensor_get_async`). `to` is filled once [`Backend::transfers`] returns.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless it is a tensor of weights or a state; [`Error::ElementType`]; [`Error::Length`];
    /// [`Error::Unsupported`] if it is not in the device's default buffer type.
    #[doc(alias = "ggml_backend_tensor_get_async")]
    pub fn get<T: Element>(&mut self, from: Tensor<'env>, to: &'env mut [T]) -> Result<()> {
        const CALL: &str = "Transfers::get";
        callback::check_reentry(CALL)?;
        let t = whole(CALL, from)?;
        own_memory(CALL, self.backend, t)?;
        transfer::check_whole::<T>(CALL, t, to.len())?;
        let (bytes, to) = (size_of_val(to), to.as_mut_ptr().cast::<c_void>());
        // SAFETY: backend and tensor are live, the tensor is in the backend's default buffer type (own_memory) and
        // as long as `to` (check_whole). Both stay, and only C uses `to` (`&'env mut`), until the drop has waited.
        unsafe { guarded!(call, sys::ggml_backend_tensor_get_async(self.backend.as_ptr(), t.as_ptr(), to, 0, bytes)) }?;
        buffer::check_alive(t)
    }

    /// Reads equally long pieces of a tensor (`ggml_backend_tensor_get_2d_async`).
    ///
    /// # Errors
    ///
    /// As [`State::read_2d`] and [`Transfers::get`].
    #[doc(alias = "ggml_backend_tensor_get_2d_async")]
    pub fn get_2d<T: Element>(&mut self, from: Tensor<'env>, pieces: Pieces, to: &'env mut [T]) -> Result<()> {
        const CALL: &str = "Transfers::get_2d";
        callback::check_reentry(CALL)?;
        let t = whole(CALL, from)?;
        own_memory(CALL, self.backend, t)?;
        let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(CALL, t, to.len())? else {
            return Ok(());
        };
        let (raw, from, to) = (self.backend.as_ptr(), t.as_ptr(), to.as_mut_ptr().cast::<c_void>());
        // SAFETY: backend and tensor are live, the tensor is in the backend's default buffer type (own_memory), and all
        // pieces are in bounds of the tensor and of `to` (Pieces::checked). Both stay, and only C uses `to` (`&'env
        // mut`), until the drop has waited.
        unsafe {
            guarded!(call, sys::ggml_backend_tensor_get_2d_async(raw, from, to, offset, len, count, step, data_step))
        }?;
        buffer::check_alive(t)
    }

    /// Copies a tensor into another one (`ggml_backend_tensor_copy_async`), after the work already submitted to the
    /// source's backend.
    ///
    /// # Errors
    ///
    /// As [`State::copy`]; [`Error::Unsupported`] unless each tensor is in the default buffer type of its own backend's
    /// device.
    #[doc(alias = "ggml_backend_tensor_copy_async")]
    pub fn copy(&mut self, from: Tensor<'env>, to: impl Into<Writable<'env>>, leaf: impl LeafKey) -> Result<()> {
        const CALL: &str = "Transfers::copy";
        callback::check_reentry(CALL)?;
        let from = whole(CALL, from)?;
        let to = self.target(CALL, to.into(), leaf.which())?;
        let source = self.source.as_deref().unwrap_or(self.backend);
        own_memory(CALL, source, from)?;
        transfer::check_copy(CALL, from, to)?;
        let [source, backend] = [source, self.backend].map(Backend::as_ptr);
        // SAFETY: both backends and both tensors are live; the tensors are not views (placed), lie in their backends'
        // default buffer types (own_memory), and have the same layout but share no memory (check_copy). The drop waits
        // for both backends.
        unsafe { guarded!(call, sys::ggml_backend_tensor_copy_async(source, backend, from.as_ptr(), to.as_ptr())) }?;
        buffer::check_alive(from)?;
        buffer::check_alive(to)
    }

    fn target(&self, call: &'static str, to: Writable<'env>, leaf: Which<'_>) -> Result<TensorPtr> {
        let t = to.0.writable(call, leaf)?;
        own_memory(call, self.backend, t)?;
        Ok(t)
    }

    /// Keeps owned data until the transfers have ended. Returns the data's address and size in bytes.
    fn hold<T: Element>(&mut self, data: Cow<'env, [T]>) -> (*const c_void, usize) {
        let at = (data.as_ptr().cast(), size_of_val(&*data));
        if let Cow::Owned(data) = data {
            self.held.push(Box::new(data));
        }
        at
    }
}

impl Drop for Transfers<'_, '_> {
    fn drop(&mut self) {
        for backend in [Some(&mut *self.backend), self.source.as_deref_mut()].into_iter().flatten() {
            if let Err(error) = backend.wait_idle() {
                let line = format!("aborting: transfers that use borrowed memory can't be waited for: {error}");
                log::say(::log::Level::Error, line);
                std::process::abort();
            }
        }
    }
}

debug!(Transfers<'_, '_>, |this| backend = &this.backend, source = &this.source);

/// Checks that the tensor is in the default buffer type of the backend's device, as devices with asynchronous transfers
/// assert.
fn own_memory(call: &'static str, backend: &Backend, t: TensorPtr) -> Result<()> {
    let device = backend.device();
    if buffer::type_of(t) == Some(device.buffer_type()) {
        return Ok(());
    }
    let why = "the tensor is not in the device's default buffer type; place it in `Device::buffer_type`";
    Err(Error::unsupported(call, [t.info()], device.name(), why))
}
