//! C buffers.

use std::ffi::c_void;
use std::ptr;

use ggml_sys as sys;

use super::borrow;
use super::device::of_type;
use crate::driver::node::{TensorView, tensor};
use crate::driver::state::{BASE, BufferState, DeviceState, Then};
use crate::driver::{Driver, DriverBuffer, Failure};
use crate::ffi;
use crate::header::TensorPtr;
use crate::log;

type Buffer = *mut sys::ggml_backend_buffer;
type Tensor = *mut sys::ggml_tensor;
type ConstTensor = *const sys::ggml_tensor;

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
) -> Buffer {
    // SAFETY: C passes the buffer type (1).
    let device = unsafe { of_type::<D>(buft) };
    if size > device.info.max_size || size > isize::MAX.cast_unsigned() - BASE {
        return ptr::null_mut();
    }
    let Some(buffer) = device.run("Driver::allocate", Then::Tell, || device.driver.allocate(size)) else {
        // In these words, by which C's assertions on allocations are known to be such (`guard::or_out_of_memory`).
        log::inside(&format!("{}: failed to allocate {size} bytes", device.driven.name()));
        return ptr::null_mut();
    };
    let context = Box::into_raw(Box::new(BufferState { device, buffer, size })).cast::<c_void>();
    // SAFETY: the buffer type lives for ever; `free` drops the context. C++ may throw: then the context is leaked.
    unsafe { sys::ggml_backend_buffer_init(buft, table::<D>(), context, size) }
}

/// # Safety
///
/// `buffer` must be made by [`allocate`] with the same `D`, and live for `'a`.
unsafe fn of<'a, D: Driver>(buffer: Buffer) -> &'a BufferState<D> {
    // SAFETY: live by contract; this reads a field.
    let context = unsafe { (*buffer).context };
    // SAFETY: by contract: the context lives as long as the buffer, and is only borrowed shared.
    unsafe { borrow(context) }
}

unsafe extern "C-unwind" fn free<D: Driver>(buffer: Buffer) {
    // SAFETY: C passes the buffer (1); this reads a field.
    let context = unsafe { (*buffer).context };
    // SAFETY: `allocate` made the context of a box, and C frees a buffer once.
    let state = unsafe { Box::from_raw(context.cast::<BufferState<D>>()) };
    let BufferState { device, buffer, .. } = *state;
    device.drop("Driver::Buffer", buffer);
}

unsafe extern "C-unwind" fn base(_: Buffer) -> *mut c_void {
    ptr::without_provenance_mut(BASE)
}

impl<D: Driver> BufferState<D> {
    /// The byte of the buffer at which byte `offset` of a tensor lies, if `len` bytes from there on lie inside.
    pub(super) fn at(&self, t: ConstTensor, offset: usize, len: usize) -> Result<(TensorView<'_>, usize), Failure> {
        let t = tensor(t).ok_or_else(|| Failure::new("no tensor"))?;
        let start = t.data().addr().checked_sub(BASE).and_then(|start| start.checked_add(offset));
        let inside = start.filter(|start| start.checked_add(len).is_some_and(|end| end <= self.size));
        // SAFETY: C passes a live tensor (3).
        let view = unsafe { TensorView::new(t) };
        let outside = || Failure::new(format!("{len} bytes from {offset} of {view:?} on don't lie inside its buffer"));
        inside.map(|start| (view, start)).ok_or_else(outside)
    }
}

/// Runs a function with a buffer and bytes of a tensor in it. Tells whether it succeeded.
///
/// # Safety
///
/// `buffer` must be made by [`allocate`] with the same `D`.
unsafe fn with<D: Driver>(
    buffer: Buffer,
    call: &'static str,
    f: impl FnOnce(&'static DeviceState<D>, &BufferState<D>) -> Result<bool, Failure>,
) -> bool {
    // SAFETY: by contract; C frees no buffer that it uses.
    let state = unsafe { of::<D>(buffer) };
    let done = state.device.run(call, Then::Fail, || f(state.device, state));
    if done.is_none() {
        state.device.end_server();
    }
    done.unwrap_or(false)
}

unsafe extern "C-unwind" fn set<D: Driver>(buffer: Buffer, t: Tensor, data: *const c_void, offset: usize, size: usize) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (view, at) = state.at(t, offset, size)?;
        // SAFETY: C passes `size` initialised bytes of the host, which nothing writes to during the call.
        let data = unsafe { ffi::slice(data.cast::<u8>(), size) };
        state.buffer.set(view, at, data).map(|()| true)
    };
    // SAFETY: C passes the buffer (1).
    unsafe { with(buffer, "DriverBuffer::set", f) };
}

unsafe extern "C-unwind" fn get<D: Driver>(
    buffer: Buffer,
    t: ConstTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes `size` bytes of the host to write to. They may be uninitialised, and must not stay so.
    unsafe { data.write_bytes(0, size) };
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (view, at) = state.at(t, offset, size)?;
        // SAFETY: as above; they were initialised, and nothing else uses them during the call.
        let data = unsafe { ffi::slice_mut(data.cast::<u8>(), size) };
        state.buffer.get(view, at, data).map(|()| true)
    };
    // SAFETY: C passes the buffer (1).
    unsafe { with(buffer, "DriverBuffer::get", f) };
}

unsafe extern "C-unwind" fn memset<D: Driver>(buffer: Buffer, t: Tensor, value: u8, offset: usize, size: usize) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| {
        let (_, at) = state.at(t, offset, size)?;
        state.buffer.fill(at, size, value).map(|()| true)
    };
    // SAFETY: C passes the buffer (1).
    unsafe { with(buffer, "DriverBuffer::fill", f) };
}

unsafe extern "C-unwind" fn clear<D: Driver>(buffer: Buffer, value: u8) {
    let f = |_: &DeviceState<D>, state: &BufferState<D>| state.buffer.fill(0, state.size, value).map(|()| true);
    // SAFETY: C passes the buffer (1).
    unsafe { with(buffer, "DriverBuffer::fill", f) };
}

unsafe extern "C-unwind" fn copy<D: Driver>(buffer: Buffer, src: ConstTensor, dst: Tensor) -> bool {
    let f = |device: &'static DeviceState<D>, state: &BufferState<D>| {
        let Some(from) = tensor(src).map(|src| src.root().buffer()).filter(|from| !from.is_null()) else {
            return Ok(false);
        };
        let size = tensor(src).and_then(TensorPtr::span).unwrap_or(usize::MAX);
        // SAFETY: the source's buffer lives during the call (3).
        let Some(source) = (unsafe { device.buffer_of(from) }) else { return Ok(false) };
        let ((_, at), (_, from)) = (state.at(dst, 0, size)?, source.at(src, 0, size)?);
        state.buffer.copy(at, &source.buffer, from, size)
    };
    // SAFETY: C passes the buffer (1).
    unsafe { with(buffer, "DriverBuffer::copy", f) }
}
