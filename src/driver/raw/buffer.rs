//! C buffers of devices implemented in Rust.

use std::ffi::c_void;
use std::ptr;

use ggml_sys as sys;

use super::borrow;
use super::device::of_type;
use crate::device::driven;
use crate::driver::node::{TensorView, tensor};
use crate::driver::state::{BASE, BufferState, DeviceState, OnFailure};
use crate::driver::{Driver, DriverBuffer, Failure};
use crate::ffi::{self, CBuffer, CConstTensor, CTensor};
use crate::header::TensorPtr;
use crate::log;

fn table<D: Driver>() -> sys::ggml_backend_buffer_i {
    sys::ggml_backend_buffer_i {
        free_buffer: Some(free::<D>),
        get_base: Some(base),
        init_tensor: None,
        memset_tensor: Some(memset::<D>),
        set_tensor: Some(set::<D>),
        get_tensor: Some(get::<D>),
        set_tensor_2d: None,
        get_tensor_2d: None,
        #[cfg(ggml_0_28)]
        set_tensor_n: None,
        #[cfg(ggml_0_28)]
        get_tensor_n: None,
        #[cfg(ggml_0_28)]
        cpy_tensor_n: None,
        cpy_tensor: Some(copy::<D>),
        clear: Some(clear::<D>),
        reset: None,
    }
}

pub(super) unsafe extern "C-unwind" fn allocate<D: Driver>(
    buft: *mut sys::ggml_backend_buffer_type,
    size: usize,
) -> CBuffer {
    // SAFETY: C passes a buffer type of this driver type (rule 1 in `raw/mod.rs`).
    let device = unsafe { of_type::<D>(buft) };
    if let Some(buffer) = driven::from_stock(buft, size) {
        return buffer;
    }
    // ggml asks for more than `max_size` if a single tensor needs it.
    if size > isize::MAX.cast_unsigned() - BASE {
        return ptr::null_mut();
    }
    let Some(buffer) = device.run("Driver::allocate", OnFailure::ReturnNone, || device.driver.allocate(size)) else {
        // `guard::or_out_of_memory` recognises a failed allocation by the words of this line.
        log::inside(&format!("{}: failed to allocate {size} bytes", device.driven.name()));
        return ptr::null_mut();
    };
    let context = Box::into_raw(Box::new(BufferState { device, buffer, size })).cast::<c_void>();
    // SAFETY: the buffer type lives for ever; `free` drops the context. If C++ throws, the context is leaked.
    unsafe { sys::ggml_backend_buffer_init(buft, table::<D>(), context, size) }
}

/// # Safety
///
/// `buffer` must be made by [`allocate`] with the same `D`, and live for `'a`.
unsafe fn of<'a, D: Driver>(buffer: CBuffer) -> &'a BufferState<D> {
    // SAFETY: `buffer` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*buffer).context };
    // SAFETY: `allocate` made the context (this function's `# Safety`). It lives as long as the buffer, and is only
    // borrowed shared.
    unsafe { borrow(context) }
}

unsafe extern "C-unwind" fn free<D: Driver>(buffer: CBuffer) {
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`); this reads a field.
    let context = unsafe { (*buffer).context };
    // SAFETY: `allocate` made the context of a box, and C frees a buffer once.
    let state = unsafe { Box::from_raw(context.cast::<BufferState<D>>()) };
    let BufferState { device, buffer, .. } = *state;
    device.drop("Driver::Buffer", buffer);
}

unsafe extern "C-unwind" fn base(_: CBuffer) -> *mut c_void {
    ptr::without_provenance_mut(BASE)
}

impl<D: Driver> BufferState<D> {
    /// The byte of the buffer at which byte `offset` of a tensor lies, if `len` bytes from there on lie inside the
    /// buffer.
    pub(super) fn at(&self, t: CConstTensor, offset: usize, len: usize) -> Result<(TensorView<'_>, usize), Failure> {
        let t = tensor(t).ok_or_else(|| Failure::new("no tensor"))?;
        let start = t.data().addr().checked_sub(BASE).and_then(|start| start.checked_add(offset));
        let inside = start.filter(|start| start.checked_add(len).is_some_and(|end| end <= self.size));
        // SAFETY: C passes a live tensor (rule 3 in `raw/mod.rs`).
        let view = unsafe { TensorView::new(t) };
        let outside = || Failure::new(format!("{len} bytes from {offset} of {view:?} on don't lie inside its buffer"));
        inside.map(|start| (view, start)).ok_or_else(outside)
    }
}

/// Runs a function with a buffer and the place of a tensor's bytes in it. Returns whether it succeeded.
///
/// # Safety
///
/// `buffer` must be made by [`allocate`] with the same `D`.
unsafe fn with<D: Driver>(
    buffer: CBuffer,
    call: &'static str,
    f: impl FnOnce(&'static DeviceState<D>, &BufferState<D>) -> Result<bool, Failure>,
) -> bool {
    // SAFETY: `allocate` made the buffer, by this function's `# Safety`; C frees no buffer that it uses.
    let state = unsafe { of::<D>(buffer) };
    state.device.run(call, OnFailure::FailCall, || f(state.device, state)).unwrap_or(false)
}

unsafe extern "C-unwind" fn set<D: Driver>(
    buffer: CBuffer,
    t: CTensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (view, at) = state.at(t, offset, size)?;
        // SAFETY: C passes `size` initialised bytes of the host, which nothing writes to during the call.
        let data = unsafe { ffi::slice(data.cast::<u8>(), size) };
        state.buffer.set(view, at, data).map(|()| true)
    };
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { with(buffer, "DriverBuffer::set", f) };
}

unsafe extern "C-unwind" fn get<D: Driver>(
    buffer: CBuffer,
    t: CConstTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes `size` bytes of the host to write to. They may be uninitialised, and must not stay so.
    unsafe { data.write_bytes(0, size) };
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (view, at) = state.at(t, offset, size)?;
        // SAFETY: C passes `size` bytes of the host. They were initialised above, and nothing else uses them during the
        // call.
        let data = unsafe { ffi::slice_mut(data.cast::<u8>(), size) };
        state.buffer.get(view, at, data).map(|()| true)
    };
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { with(buffer, "DriverBuffer::get", f) };
}

unsafe extern "C-unwind" fn memset<D: Driver>(buffer: CBuffer, t: CTensor, value: u8, offset: usize, size: usize) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (_, at) = state.at(t, offset, size)?;
        state.buffer.fill(at, size, value).map(|()| true)
    };
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { with(buffer, "DriverBuffer::fill", f) };
}

unsafe extern "C-unwind" fn clear<D: Driver>(buffer: CBuffer, value: u8) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| state.buffer.fill(0, state.size, value).map(|()| true);
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { with(buffer, "DriverBuffer::fill", f) };
}

unsafe extern "C-unwind" fn copy<D: Driver>(buffer: CBuffer, src: CConstTensor, dst: CTensor) -> bool {
    let f = |device: &'static DeviceState<D>, state: &BufferState<D>| {
        let Some(from) = tensor(src).map(|src| src.root().buffer()).filter(|from| !from.is_null()) else {
            return Ok(false);
        };
        let size = tensor(src).and_then(TensorPtr::span).unwrap_or(usize::MAX);
        // SAFETY: the source's buffer lives during the call (rule 3 in `raw/mod.rs`).
        let Some(source) = (unsafe { device.buffer_of(from) }) else { return Ok(false) };
        let ((_, at), (_, from)) = (state.at(dst, 0, size)?, source.at(src, 0, size)?);
        state.buffer.copy(at, &source.buffer, from, size)
    };
    // SAFETY: C passes a buffer of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { with(buffer, "DriverBuffer::copy", f) }
}
