//! C backends of devices implemented in Rust.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::ptr;

use ggml_sys as sys;

use super::borrow;
use super::device::event;
use crate::driver::computation::Computation;
use crate::driver::host::{self, HostSource, HostTarget, Lease};
use crate::driver::memory::Types;
use crate::driver::node::Nodes;
use crate::driver::split::SplitNodes;
use crate::driver::state::{DeviceState, OnFailure};
use crate::driver::view::{Region, tensor};
use crate::driver::{Driver, DriverInfo, DriverStream, Failure};
use crate::ffi::{self, CBackend, CConstTensor, CEvent, CTensor};
use crate::header::TensorPtr;

/// A stream of a device.
struct StreamState<D: Driver> {
    device: &'static DeviceState<D>,
    stream: RefCell<D::Stream>,
    /// The lease of host memory that transfers submitted since the last wait may use.
    lease: RefCell<Lease>,
    /// A cache of how the device can use buffer types.
    types: Types,
}

/// The functions of a stream that C may call. ggml falls back to its synchronous functions where an asynchronous one is
/// missing.
fn table<D: Driver>(info: &DriverInfo) -> sys::ggml_backend_i {
    let &DriverInfo { is_async, has_events, optimizes, .. } = info;
    sys::ggml_backend_i {
        get_name: Some(name::<D>),
        free: Some(free::<D>),
        set_tensor_async: is_async.then_some(set::<D>),
        get_tensor_async: is_async.then_some(get::<D>),
        set_tensor_2d_async: None,
        get_tensor_2d_async: None,
        cpy_tensor_async: is_async.then_some(copy::<D>),
        synchronize: is_async.then_some(synchronize::<D>),
        graph_plan_create: None,
        graph_plan_free: None,
        graph_plan_update: None,
        graph_plan_compute: None,
        graph_compute: Some(compute::<D>),
        event_record: has_events.then_some(record::<D>),
        event_wait: has_events.then_some(wait::<D>),
        graph_optimize: optimizes.then_some(optimize::<D>),
    }
}

/// The number by which C tells this kind of backend from others. None of ggml's own has this one.
static GUID: sys::ggml_guid = *b"ggml-rust-driver";

/// A new C backend, which `free` frees.
pub(super) fn new<D: Driver>(
    device: *mut sys::ggml_backend_device,
    state: &'static DeviceState<D>,
    stream: D::Stream,
) -> CBackend {
    let (stream, lease) = (RefCell::new(stream), RefCell::new(host::lease()));
    let stream = StreamState { device: state, stream, lease, types: Types::default() };
    let guid = ptr::from_ref(&GUID).cast_mut();
    let iface = table::<D>(&state.info);
    let context = Box::into_raw(Box::new(stream)).cast::<c_void>();
    Box::into_raw(Box::new(sys::ggml_backend { guid, iface, device, context }))
}

/// # Safety
///
/// `backend` must be made by [`new`] with the same `D`, and live for `'a`.
unsafe fn of<'a, D: Driver>(backend: CBackend) -> &'a StreamState<D> {
    // SAFETY: `backend` is live, by this function's `# Safety`; this reads a field.
    let context = unsafe { (*backend).context };
    // SAFETY: `new` made the context (this function's `# Safety`). It lives as long as the backend, and is only
    // borrowed shared.
    unsafe { borrow(context) }
}

impl<D: Driver> StreamState<D> {
    /// Runs a function of the driver's stream.
    fn run<R>(
        &self,
        call: &'static str,
        then: OnFailure,
        f: impl FnOnce(&mut D::Stream) -> Result<R, Failure>,
    ) -> Option<R> {
        self.device.run(call, then, || {
            let mut stream = self.stream.try_borrow_mut().map_err(|_| Failure::new("the stream runs already"))?;
            f(&mut stream)
        })
    }

    /// Ends the lease: transfers submitted so far can't access host memory any more.
    fn end_lease(&self) {
        host::end(&self.lease.replace(host::lease()));
    }

    /// Bytes of a tensor in a buffer of the device's registry; `None` if the tensor lies elsewhere.
    fn region<'a>(&self, t: CConstTensor, offset: usize, len: usize) -> Result<Option<Region<'a, D>>, Failure> {
        let Some(buffer) = tensor(t).map(|t| t.root().buffer()).filter(|buffer| !buffer.is_null()) else {
            return Ok(None);
        };
        // SAFETY: the tensor's buffer lives during the callback (rule 3 in `raw/mod.rs`), and so do the results.
        let Some(state) = (unsafe { self.device.buffer_of(buffer) }) else { return Ok(None) };
        let (view, offset) = state.at(t, offset, len)?;
        Ok(Some(Region { view, buffer: &state.buffer, offset, len }))
    }

    /// Bytes of a tensor, as [`StreamState::region`] returns them, but with an error if the tensor lies elsewhere.
    fn own<'a>(&self, t: CConstTensor, offset: usize, len: usize) -> Result<Region<'a, D>, Failure> {
        self.region(t, offset, len)?.ok_or_else(|| Failure::new("the tensor doesn't lie in memory of the device"))
    }
}

unsafe extern "C-unwind" fn name<D: Driver>(backend: CBackend) -> *const c_char {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    unsafe { of::<D>(backend) }.device.name.as_ptr()
}

unsafe extern "C-unwind" fn free<D: Driver>(backend: CBackend) {
    // SAFETY: C passes a backend of `new`, and doesn't use it again.
    let backend = unsafe { Box::from_raw(backend) };
    // SAFETY: `new` made the context of a box, and C doesn't use it again.
    let state = unsafe { Box::from_raw(backend.context.cast::<StreamState<D>>()) };
    state.end_lease();
    state.device.drop("Driver::Stream", state.stream.into_inner());
}

unsafe extern "C-unwind" fn compute<D: Driver>(backend: CBackend, graph: *mut sys::ggml_cgraph) -> sys::ggml_status {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live graph, whose nodes nothing else uses meanwhile.
    let nodes = unsafe { nodes_of(graph) };
    if nodes.is_empty() {
        return sys::GGML_STATUS_SUCCESS;
    }
    let done = state.run("DriverStream::compute", OnFailure::FailCall, |stream| {
        // SAFETY: C computes tensors that live and have memory, which only this backend's device uses meanwhile (rules
        // 2 and 3 in `raw/mod.rs`), and leaves have values by then. The types are the stream's own.
        let computation = unsafe { Computation::new(nodes, state.device, &state.types) }?;
        stream.compute(Nodes::new(&computation))?;
        computation.finish()
    });
    if done.is_some() { sys::GGML_STATUS_SUCCESS } else { sys::GGML_STATUS_FAILED }
}

/// C's list of a graph's nodes.
///
/// # Safety
///
/// The graph must live for `'a`, and nothing else may use the list.
unsafe fn nodes_of<'a>(graph: *mut sys::ggml_cgraph) -> &'a mut [CTensor] {
    // SAFETY: the graph is live, by this function's `# Safety`; this reads a field.
    let n = usize::try_from(unsafe { sys::ggml_graph_n_nodes(graph) }).unwrap_or(0);
    // SAFETY: the graph is live, by this function's `# Safety`; this reads a field.
    let nodes = unsafe { sys::ggml_graph_nodes(graph) };
    if nodes.is_null() {
        return &mut [];
    }
    // SAFETY: `nodes` is not NULL (checked here). The list has `n` nodes, and is only used here, by this function's `#
    // Safety`.
    unsafe { ffi::slice_mut(nodes, n) }
}

unsafe extern "C-unwind" fn optimize<D: Driver>(
    backend: CBackend,
    graph: *mut sys::ggml_cgraph,
    _params: *mut sys::ggml_backend_graph_optimize_params,
) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live graph, whose nodes nothing else uses meanwhile.
    let list = unsafe { nodes_of(graph) };
    let _done = state.run("DriverStream::optimize", OnFailure::RejectGraph, |stream| {
        // SAFETY: C plans tensors that live with their sources (rule 3 in `raw/mod.rs`).
        let nodes = unsafe { SplitNodes::new(list, state.device) }?;
        let order = if nodes.is_empty() { None } else { stream.optimize(&nodes)? };
        order.map_or(Ok(()), |order| nodes.reorder(&order, list))
    });
}

unsafe extern "C-unwind" fn synchronize<D: Driver>(backend: CBackend) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    let _done = state.run("DriverStream::synchronize", OnFailure::LoseDevice, DriverStream::synchronize);
    // The lease of host memory ends here, even if the driver failed.
    state.end_lease();
}

unsafe extern "C-unwind" fn set<D: Driver>(
    backend: CBackend,
    t: CTensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    let lease = state.lease.borrow().clone();
    // SAFETY: the bytes are initialised and stay as they are until the lease ends (rule 4 in `raw/mod.rs`).
    let data = unsafe { HostSource::new(data.cast(), size, lease) };
    let _done =
        state.run("DriverStream::set", OnFailure::FailCall, |stream| stream.set(state.own(t, offset, size)?, data));
}

unsafe extern "C-unwind" fn get<D: Driver>(
    backend: CBackend,
    t: CConstTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    let lease = state.lease.borrow().clone();
    // SAFETY: C passes `size` bytes of the host to write to, which nothing else uses (rule 4 in `raw/mod.rs`). Those
    // that the driver doesn't write become zero here.
    unsafe { data.write_bytes(0, size) };
    // SAFETY: nothing else uses the bytes until the lease ends (rule 4 in `raw/mod.rs`).
    let data = unsafe { HostTarget::new(data.cast(), size, lease) };
    let _done =
        state.run("DriverStream::get", OnFailure::FailCall, |stream| stream.get(state.own(t, offset, size)?, data));
}

unsafe extern "C-unwind" fn copy<D: Driver>(
    source: CBackend,
    backend: CBackend,
    src: CConstTensor,
    dst: CTensor,
) -> bool {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    let size = tensor(src).and_then(TensorPtr::span).unwrap_or(usize::MAX);
    let same = ptr::eq(source, backend);
    // SAFETY: C passes a live backend as the source; this reads a field.
    let of_source = unsafe { (*source).device };
    let siblings = state.device.siblings.get();
    if !siblings.is_some_and(|all| all.iter().any(|d| d.raw.get().is_some_and(|(d, _)| d.as_ptr() == of_source))) {
        return false;
    }
    // SAFETY: the source is a live backend of a device of this registry (checked above), whose driver is of type `D`.
    let source = unsafe { of::<D>(source) };
    if source.device.driven.check().is_err() {
        return true; // the call that made the copy reports the loss
    }
    let done = state.run("DriverStream::copy", OnFailure::FailCall, |stream| {
        let (Some(from), Some(to)) = (source.region(src, 0, size)?, state.region(dst, 0, size)?) else {
            return Ok(false);
        };
        if same {
            return stream.copy(None, from, to);
        }
        let mut other = source.stream.try_borrow_mut().map_err(|_| Failure::new("the stream runs already"))?;
        stream.copy(Some(&mut other), from, to)
    });
    // After a failure this is `true`, so that C doesn't try to copy in another way. The call that made the copy reports
    // the failure.
    done.unwrap_or(true)
}

unsafe extern "C-unwind" fn record<D: Driver>(backend: CBackend, raw: CEvent) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live event of the backend's device (rule 1 in `raw/mod.rs`).
    let event = unsafe { event::<D>(raw) };
    let _done = state.run("DriverStream::record", OnFailure::FailCall, |stream| stream.record(event));
}

unsafe extern "C-unwind" fn wait<D: Driver>(backend: CBackend, raw: CEvent) {
    // SAFETY: C passes a backend of this driver type (rule 1 in `raw/mod.rs`).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live event of the backend's device (rule 1 in `raw/mod.rs`).
    let event = unsafe { event::<D>(raw) };
    let _done = state.run("DriverStream::wait", OnFailure::FailCall, |stream| stream.wait(event));
}
