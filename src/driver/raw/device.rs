//! C devices that are implemented in Rust, with their buffer types, events and registries.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use ggml_sys as sys;

use super::{borrow, buffer, stream};
use crate::device::{Device, DeviceType};
use crate::driver::memory::span;
use crate::driver::node::Node;
use crate::driver::state::{DeviceState, OnFailure};
use crate::driver::view::{TensorView, tensor};
use crate::driver::{Driver, Failure};
use crate::ffi::{self, CBufferType, CEvent};
use crate::header::TensorPtr;

type Dev = *mut sys::ggml_backend_device;
type Reg = *mut sys::ggml_backend_reg;

/// A registry's name and devices.
pub(in crate::driver) struct RegState {
    pub(in crate::driver) name: CString,
    pub(in crate::driver) devices: OnceLock<Box<[Device]>>,
}

/// A new registry, which is never freed.
pub(in crate::driver) fn registry(state: &'static RegState) -> Reg {
    let iface = sys::ggml_backend_reg_i {
        get_name: Some(reg_name),
        get_device_count: Some(reg_count),
        get_device: Some(reg_device),
        get_proc_address: None,
    };
    let api_version = c_int::try_from(sys::GGML_BACKEND_API_VERSION).unwrap_or(0);
    let context = ptr::from_ref(state).cast_mut().cast();
    Box::leak(Box::new(sys::ggml_backend_reg { api_version, iface, context }))
}

/// A new C device of a registry, which is never freed.
pub(in crate::driver) fn device<D: Driver>(reg: Reg, state: &'static DeviceState<D>) -> Dev {
    let iface = sys::ggml_backend_device_i {
        get_name: Some(name::<D>),
        get_description: Some(description::<D>),
        get_memory: Some(memory::<D>),
        get_type: Some(kind::<D>),
        get_props: Some(props::<D>),
        init_backend: Some(init::<D>),
        get_buffer_type: Some(buffer_type::<D>),
        get_host_buffer_type: None,
        buffer_from_host_ptr: None,
        supports_op: Some(supports::<D>),
        supports_buft: Some(supports_buft::<D>),
        offload_op: Some(offloads::<D>),
        event_new: state.info.has_events.then_some(event_new::<D>),
        event_free: state.info.has_events.then_some(event_free::<D>),
        event_synchronize: state.info.has_events.then_some(event_synchronize::<D>),
    };
    let context = ptr::from_ref(state).cast_mut().cast();
    Box::leak(Box::new(sys::ggml_backend_device { iface, reg, context }))
}

/// The buffer type of a device: its own, which is never freed, or the CPU's.
pub(in crate::driver) fn memory_type<D: Driver>(device: Dev, state: &'static DeviceState<D>) -> CBufferType {
    if !state.info.has_memory {
        // SAFETY: no arguments; C returns a static object.
        return unsafe { sys::ggml_backend_cpu_buffer_type() };
    }
    let iface = sys::ggml_backend_buffer_type_i {
        get_name: Some(buft_name::<D>),
        alloc_buffer: Some(buffer::allocate::<D>),
        alloc_buffer_n: None,
        get_alignment: Some(alignment::<D>),
        get_max_size: Some(max_size::<D>),
        get_alloc_size: Some(alloc_size::<D>),
        get_alloc_size_n: None,
        is_host: None,
    };
    let context = ptr::from_ref(state).cast_mut().cast();
    Box::leak(Box::new(sys::ggml_backend_buffer_type { iface, device, context }))
}

/// # Safety
///
/// `dev` must be made by [`device`] with the same `D`.
unsafe fn of<D: Driver>(dev: Dev) -> &'static DeviceState<D> {
    // SAFETY: `dev` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*dev).context };
    // SAFETY: `device` leaked both the C object (this function's `# Safety`) and its state, which nothing borrows
    // mutably.
    unsafe { borrow(context) }
}

/// # Safety
///
/// `buft` must be made by [`memory_type`] with the same `D`.
pub(super) unsafe fn of_type<D: Driver>(buft: CBufferType) -> &'static DeviceState<D> {
    // SAFETY: `buft` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*buft).context };
    // SAFETY: the context is the device's state, which is leaked and which nothing borrows mutably.
    unsafe { borrow(context) }
}

/// # Safety
///
/// `reg` must be made by [`registry`].
unsafe fn of_registry(reg: Reg) -> &'static RegState {
    // SAFETY: `reg` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*reg).context };
    // SAFETY: the context is the registry's state, which is leaked and which nothing borrows mutably.
    unsafe { borrow(context) }
}

unsafe extern "C-unwind" fn reg_name(reg: Reg) -> *const c_char {
    // SAFETY: C passes a registry that was made here (rule 1 in `raw/mod.rs`).
    unsafe { of_registry(reg) }.name.as_ptr()
}

unsafe extern "C-unwind" fn reg_count(reg: Reg) -> usize {
    // SAFETY: C passes a registry that was made here (rule 1 in `raw/mod.rs`).
    unsafe { of_registry(reg) }.devices.get().map_or(0, |all| all.len())
}

unsafe extern "C-unwind" fn reg_device(reg: Reg, i: usize) -> Dev {
    // SAFETY: C passes a registry that was made here (rule 1 in `raw/mod.rs`).
    let devices = unsafe { of_registry(reg) }.devices.get();
    devices.and_then(|all| all.get(i)).map_or(ptr::null_mut(), |device| device.as_ptr())
}

unsafe extern "C-unwind" fn name<D: Driver>(dev: Dev) -> *const c_char {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of::<D>(dev) }.name.as_ptr()
}

unsafe extern "C-unwind" fn description<D: Driver>(dev: Dev) -> *const c_char {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of::<D>(dev) }.description.as_ptr()
}

unsafe extern "C-unwind" fn kind<D: Driver>(dev: Dev) -> sys::ggml_backend_dev_type {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    match unsafe { of::<D>(dev) }.info.kind {
        DeviceType::Gpu => sys::GGML_BACKEND_DEVICE_TYPE_GPU,
        DeviceType::IntegratedGpu => sys::GGML_BACKEND_DEVICE_TYPE_IGPU,
        _ => sys::GGML_BACKEND_DEVICE_TYPE_ACCEL,
    }
}

fn free_and_total<D: Driver>(state: &DeviceState<D>) -> [usize; 2] {
    state.run("Driver::memory", OnFailure::ReturnNone, || Ok(state.driver.memory())).unwrap_or_default()
}

unsafe extern "C-unwind" fn memory<D: Driver>(dev: Dev, free: *mut usize, total: *mut usize) {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let [f, t] = free_and_total(unsafe { of::<D>(dev) });
    // SAFETY: C passes a number to write to.
    unsafe { free.write(f) };
    // SAFETY: C passes a number to write to.
    unsafe { total.write(t) };
}

unsafe extern "C-unwind" fn props<D: Driver>(dev: Dev, props: *mut sys::ggml_backend_dev_props) {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    let [memory_free, memory_total] = free_and_total(state);
    let props_of = sys::ggml_backend_dev_props {
        name: state.name.as_ptr(),
        description: state.description.as_ptr(),
        memory_free,
        memory_total,
        // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
        type_: unsafe { kind::<D>(dev) },
        device_id: ptr::null(),
        caps: sys::ggml_backend_dev_caps {
            async_: state.info.is_async,
            host_buffer: false,
            buffer_from_host_ptr: false,
            events: state.info.has_events,
            mmap_support: false,
        },
    };
    // SAFETY: C passes a struct to write to.
    unsafe { props.write(props_of) };
}

unsafe extern "C-unwind" fn init<D: Driver>(dev: Dev, params: *const c_char) -> *mut sys::ggml_backend {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    // SAFETY: C passes NULL or a C string that lives during the call.
    let params = unsafe { ffi::string(params) };
    match state.run("Driver::stream", OnFailure::FailCall, || state.driver.stream(&params)) {
        Some(stream) => stream::new(dev, state, stream),
        None => ptr::null_mut(),
    }
}

unsafe extern "C-unwind" fn buffer_type<D: Driver>(dev: Dev) -> CBufferType {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of::<D>(dev) }.buft()
}

/// Asks the driver a question about an operation. The answer is `false` for closures, which no driver can call.
fn ask<D: Driver>(
    state: &'static DeviceState<D>,
    op: *const sys::ggml_tensor,
    call: &'static str,
    question: impl FnOnce(&D, &Node<'_, D>) -> bool,
) -> bool {
    let Some(t) = tensor(op).filter(|t| !t.is_custom()) else { return false };
    // SAFETY: C passes a tensor with its sources (rule 3 in `raw/mod.rs`). The node is part of no computation, so it
    // gives no access to memory of the host.
    let node = unsafe { Node::new(t, state) };
    state.run(call, OnFailure::ReturnNone, || Ok(question(&state.driver, &node))).unwrap_or(false)
}

unsafe extern "C-unwind" fn supports<D: Driver>(dev: Dev, op: *const sys::ggml_tensor) -> bool {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    if tensor(op).is_some_and(TensorPtr::is_view_op) {
        return true;
    }
    ask(state, op, "Driver::supports", D::supports)
}

unsafe extern "C-unwind" fn offloads<D: Driver>(dev: Dev, op: *const sys::ggml_tensor) -> bool {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    if tensor(op).is_none_or(|t| t.op() == sys::GGML_OP_MUL_MAT_ID) {
        return false;
    }
    ask(state, op, "Driver::offloads", D::offloads)
}

unsafe extern "C-unwind" fn supports_buft<D: Driver>(dev: Dev, buft: CBufferType) -> bool {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`), and a live buffer type.
    unsafe { of::<D>(dev) }.uses(buft)
}

unsafe extern "C-unwind" fn event_new<D: Driver>(dev: Dev) -> CEvent {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    let Some(event) = state.run("Driver::event", OnFailure::ReturnNone, || state.driver.event()) else {
        return ptr::null_mut();
    };
    let context = Box::into_raw(Box::new(event)).cast::<c_void>();
    Box::into_raw(Box::new(sys::ggml_backend_event { device: dev, context }))
}

/// The driver's event behind a C event.
///
/// # Safety
///
/// `event` must be made by [`event_new`] with the same `D`, and live for `'a`.
pub(super) unsafe fn event<'a, D: Driver>(event: CEvent) -> &'a D::Event {
    // SAFETY: `event` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*event).context };
    // SAFETY: `event_new` made the context (this function's `# Safety`). It lives as long as the event, and is only
    // borrowed shared.
    unsafe { borrow(context) }
}

unsafe extern "C-unwind" fn event_free<D: Driver>(dev: Dev, event: CEvent) {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    // SAFETY: C passes an event of `event_new`, and doesn't use it again.
    let event = unsafe { Box::from_raw(event) };
    // SAFETY: `event_new` made the context of a box, and C doesn't use it again.
    let context = unsafe { Box::from_raw(event.context.cast::<D::Event>()) };
    state.drop("Driver::Event", context);
}

unsafe extern "C-unwind" fn event_synchronize<D: Driver>(dev: Dev, raw: CEvent) {
    // SAFETY: C passes a device of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(dev) };
    // SAFETY: C passes a live event of this device (rule 1 in `raw/mod.rs`).
    let event = unsafe { event::<D>(raw) };
    let _done = state.run("Driver::wait_for", OnFailure::LoseDevice, || state.driver.wait_for(event));
}

unsafe extern "C-unwind" fn buft_name<D: Driver>(buft: CBufferType) -> *const c_char {
    // SAFETY: C passes a buffer type of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of_type::<D>(buft) }.name.as_ptr()
}

unsafe extern "C-unwind" fn alignment<D: Driver>(buft: CBufferType) -> usize {
    // SAFETY: C passes a buffer type of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of_type::<D>(buft) }.info.alignment
}

unsafe extern "C-unwind" fn max_size<D: Driver>(buft: CBufferType) -> usize {
    // SAFETY: C passes a buffer type of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of_type::<D>(buft) }.info.max_size
}

/// The largest size that a driver may give a tensor, so that sums of sizes don't overflow.
const LARGEST: usize = 1 << (usize::BITS * 3 / 4);

unsafe extern "C-unwind" fn alloc_size<D: Driver>(buft: CBufferType, t: *const sys::ggml_tensor) -> usize {
    // SAFETY: C passes a buffer type of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of_type::<D>(buft) };
    let Some(t) = tensor(t) else { return 0 };
    let Some(least) = span(t.layout()) else { return usize::MAX };
    // SAFETY: C compares the number of the operation with others.
    let may_expand =
        t.is_view_op() || t.dtype().is_quantized() || unsafe { sys::ggml_op_alloc_size_may_expand(t.op()) };
    if !may_expand {
        return least;
    }
    // SAFETY: C passes a live tensor (rule 3 in `raw/mod.rs`).
    let view = unsafe { TensorView::new(t) };
    let size = state.run("Driver::alloc_size", OnFailure::ReturnNone, || Ok(state.driver.alloc_size(view)));
    size.unwrap_or(least).min(LARGEST).max(least)
}

impl<D: Driver> DeviceState<D> {
    /// Drops an object that the driver made, even if the device is lost. If the drop panics, the device is lost.
    pub(super) fn drop<T>(&self, call: &'static str, what: T) {
        let mut what = Some(what);
        let done = self.run(call, OnFailure::LoseDevice, || {
            drop(what.take());
            Ok::<_, Failure>(())
        });
        if done.is_none() {
            // If the device was lost before, `what` is still there. If the drop panicked, it has taken `what`.
            let _result = crate::callback::run(|| drop(what.take())).map_err(crate::callback::forget);
        }
    }
}
