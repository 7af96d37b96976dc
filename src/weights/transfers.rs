//! Transfers that go on while the program does something else.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use ggml_sys as sys;

use super::placed::Placed;
use super::{State, Weights};
use crate::backend::Backend;
use crate::buffer;
use crate::device::meta;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::tensor::Tensor;
use crate::tensor::pieces::Pieces;
use crate::tensor::transfer;
use crate::{callback, guard, log};

/// Tensors that [`Transfers`] may write to: those of a [`State`], or of [`Weights`] that nothing else uses meanwhile.
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

impl fmt::Debug for Writable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").field("tensors", &self.0.len()).finish()
    }
}

/// Transfers that have been given to a backend, in order, and may not be done yet; made by [`Backend::transfers`].
///
/// # Invariants
///
/// What it was given lives for `'env`, which is longer than this value: tensors, their buffers, and host memory, that to
/// be written as exclusively borrowed. Its drop waits until all transfers are done, so none goes on after `'env`.
pub struct Transfers<'s, 'env> {
    backend: &'s mut Backend,
    /// Where copies come from, if not from the same backend.
    source: Option<&'s mut Backend>,
    /// Data that was given away.
    held: Vec<Box<dyn Any>>,
    /// Invariant: nothing that lives shorter can be lent.
    env: PhantomData<&'env mut &'env ()>,
}

impl Backend {
    /// Transfers between host memory and tensors that lie in this device's own memory, without waiting for each. When
    /// `f` has returned, or panicked, all are waited for. A device that does not work asynchronously does each at once.
    ///
    /// Other uses of the same tensors before that, also in `f`, see old values, new ones, or a mixture.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("a", DType::F32, [2])?.tensor("b", DType::F32, [2])?;
    /// let mut backend = Backend::cpu()?;
    /// let state = builder.place_state(backend.device().buffer_type())?;
    /// let mut read = [0.0_f32; 2];
    /// backend.transfers(|queue| {
    ///     queue.set(&state, "a", &[1.0_f32, 2.0])?;
    ///     queue.set(&state, "b", vec![3.0_f32, 4.0])?;
    ///     queue.get(state.get("b")?, &mut read)
    /// })?;
    /// assert_eq!(read, [3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `f`; [`Error::Poisoned`] or [`Error::RpcLost`] where backend or device are lost.
    ///
    /// # Aborts
    ///
    /// Ends the process where the device fails while it is waited for: it may go on using memory that is borrowed.
    pub fn transfers<'env, R>(&mut self, f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>) -> Result<R> {
        run(self, None, f)
    }

    /// [`Backend::transfers`] whose copies come from tensors of `source`'s device.
    ///
    /// # Errors
    ///
    /// As [`Backend::transfers`].
    pub fn transfers_from<'env, R>(
        &mut self,
        source: &mut Self,
        f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>,
    ) -> Result<R> {
        run(self, Some(source), f)
    }
}

fn run<'s, 'env, R>(
    backend: &'s mut Backend,
    source: Option<&'s mut Backend>,
    f: impl FnOnce(&mut Transfers<'_, 'env>) -> Result<R>,
) -> Result<R> {
    callback::check_open("Backend::transfers")?;
    let devices = [Some(&*backend), source.as_deref()].map(|b| b.map(Backend::device));
    for device in devices.into_iter().flatten() {
        meta::before_use("Backend::transfers", device, "several devices that work as one are waited for each time")?;
    }
    backend.check()?;
    source.as_ref().map_or(Ok(()), |s| s.check())?;
    let mut transfers = Transfers { backend, source, held: Vec::new(), env: PhantomData };
    let result = f(&mut transfers)?;
    drop(transfers);
    // What a server that is lost did not send was not read.
    devices.into_iter().flatten().try_for_each(crate::device::Device::check_alive)?;
    Ok(result)
}

impl<'env> Transfers<'_, 'env> {
    /// Overwrites a tensor (`ggml_backend_tensor_set_async`) with data that are borrowed until the end, or given away.
    ///
    /// # Errors
    ///
    /// As [`State::set`]; [`Error::Unsupported`] where the tensor does not lie in the device's own memory
    /// ([`Device::buffer_type`](crate::Device::buffer_type)).
    #[doc(alias = "ggml_backend_tensor_set_async")]
    pub fn set<T: Element>(
        &mut self,
        to: impl Into<Writable<'env>>,
        name: &str,
        data: impl Into<Cow<'env, [T]>>,
    ) -> Result<()> {
        const CALL: &str = "Transfers::set";
        let t = self.target(CALL, to.into(), name)?;
        let data = data.into();
        transfer::check_whole::<T>(CALL, t, data.len())?;
        let (from, bytes) = self.hold(data);
        guard::call("ggml_backend_tensor_set_async", || {
            // SAFETY: backend and tensor are live, the tensor lies in the backend's own memory (`target`), the data are as
            // long as it (check_whole). Both stay until the drop has waited.
            unsafe { sys::ggml_backend_tensor_set_async(self.backend.as_ptr(), t.as_ptr(), from, 0, bytes) }
        })?;
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
        name: &str,
        pieces: Pieces,
        data: impl Into<Cow<'env, [T]>>,
    ) -> Result<()> {
        const CALL: &str = "Transfers::set_2d";
        let t = self.target(CALL, to.into(), name)?;
        let data = data.into();
        let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(CALL, t, data.len())? else {
            return Ok(());
        };
        let (from, _) = self.hold(data);
        let (raw, to) = (self.backend.as_ptr(), t.as_ptr());
        guard::call("ggml_backend_tensor_set_2d_async", || {
            // SAFETY: as in `set`; all pieces lie inside the tensor and inside the data (Pieces::checked).
            unsafe { sys::ggml_backend_tensor_set_2d_async(raw, to, from, offset, len, count, step, data_step) }
        })?;
        buffer::check_alive(t)
    }

    /// Reads a tensor (`ggml_backend_tensor_get_async`). What was read is there when all transfers are done.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless it is a tensor of weights or a state, [`Error::ElementType`], [`Error::Length`];
    /// [`Error::Unsupported`] where it does not lie in the device's own memory.
    #[doc(alias = "ggml_backend_tensor_get_async")]
    pub fn get<T: Element>(&mut self, from: Tensor<'env>, to: &'env mut [T]) -> Result<()> {
        const CALL: &str = "Transfers::get";
        let t = placed(CALL, from)?;
        own_memory(CALL, self.backend, t)?;
        transfer::check_whole::<T>(CALL, t, to.len())?;
        let (bytes, to) = (size_of_val(to), to.as_mut_ptr().cast::<c_void>());
        guard::call("ggml_backend_tensor_get_async", || {
            // SAFETY: backend and tensor are live, the tensor lies in the backend's own memory and is as long as `to` (checked
            // above). Both stay, and `to` is used by nothing else, until the drop has waited.
            unsafe { sys::ggml_backend_tensor_get_async(self.backend.as_ptr(), t.as_ptr(), to, 0, bytes) }
        })?;
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
        let t = placed(CALL, from)?;
        own_memory(CALL, self.backend, t)?;
        let Some((offset, len, count, step, data_step)) = pieces.checked::<T>(CALL, t, to.len())? else {
            return Ok(());
        };
        let (raw, from, to) = (self.backend.as_ptr(), t.as_ptr(), to.as_mut_ptr().cast::<c_void>());
        guard::call("ggml_backend_tensor_get_2d_async", || {
            // SAFETY: as in `get`; all pieces lie inside the tensor and inside `to` (Pieces::checked).
            unsafe { sys::ggml_backend_tensor_get_2d_async(raw, from, to, offset, len, count, step, data_step) }
        })?;
        buffer::check_alive(t)
    }

    /// Copies a tensor into another one (`ggml_backend_tensor_copy_async`), after the work that the backend of its device
    /// has been given.
    ///
    /// # Errors
    ///
    /// As [`State::copy`]; [`Error::Unsupported`] unless `from` lies in the own memory of the source's device, the other
    /// tensor in that of this backend's.
    #[doc(alias = "ggml_backend_tensor_copy_async")]
    pub fn copy(&mut self, from: Tensor<'env>, to: impl Into<Writable<'env>>, name: &str) -> Result<()> {
        const CALL: &str = "Transfers::copy";
        let from = placed(CALL, from)?;
        let to = self.target(CALL, to.into(), name)?;
        let source = self.source.as_deref().unwrap_or(self.backend);
        own_memory(CALL, source, from)?;
        transfer::check_copy(CALL, from, to)?;
        let [source, backend] = [source, self.backend].map(Backend::as_ptr);
        guard::call("ggml_backend_tensor_copy_async", || {
            // SAFETY: all four are live; the tensors are no views, lie in their backends' own memory, share none, and have one
            // layout (checked above). They stay until the drop has waited for both backends.
            unsafe { sys::ggml_backend_tensor_copy_async(source, backend, from.as_ptr(), to.as_ptr()) }
        })?;
        buffer::check_alive(from)?;
        buffer::check_alive(to)
    }

    fn target(&self, call: &'static str, to: Writable<'env>, name: &str) -> Result<TensorPtr> {
        let t = to.0.writable(call, name)?;
        own_memory(call, self.backend, t)?;
        Ok(t)
    }

    /// Keeps data that were given away; says where they lie, and how many bytes they are.
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
            if let Err(error) = backend.settle() {
                let line = format!("transfers may go on in borrowed memory, and can't be stopped: {error}");
                log::say(::log::Level::Error, line);
                std::process::abort();
            }
        }
    }
}

impl fmt::Debug for Transfers<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfers")
            .field("backend", &self.backend)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// The tensor itself, if it has a buffer of its own: views have none outside of an allocation.
fn placed(call: &'static str, t: Tensor<'_>) -> Result<TensorPtr> {
    if t.ptr().owner() == Owner::Graph || t.is_view() {
        return Err(Error::NotPart { call, tensor: t.info(), whole: "the tensors of any weights or state" });
    }
    Ok(t.ptr())
}

/// Checks that the tensor lies where the backend can transfer it: in its device's default type of memory, which devices
/// that work asynchronously assert.
fn own_memory(call: &'static str, backend: &Backend, t: TensorPtr) -> Result<()> {
    let device = backend.device();
    if buffer::type_of(t) == Some(device.buffer_type()) {
        return Ok(());
    }
    let why = "the tensor does not lie in the device's own memory";
    Err(Error::unsupported(call, [t.info()], device.name(), why))
}
