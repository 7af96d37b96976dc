//! C backends.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_void};
use std::ptr;

use ggml_sys as sys;

use super::borrow;
use super::device::event;
use crate::driver::host::{self, HostSource, HostTarget, Lease};
use crate::driver::node::{Nodes, Region, tensor};
use crate::driver::split::SplitNodes;
use crate::driver::state::{DeviceState, Then};
use crate::driver::{Driver, DriverInfo, DriverStream, Failure};
use crate::ffi;
use crate::header::TensorPtr;

type Backend = *mut sys::ggml_backend;
type Tensor = *mut sys::ggml_tensor;
type ConstTensor = *const sys::ggml_tensor;
type Event = *mut sys::ggml_backend_event;

/// A stream of a device.
struct StreamState<D: Driver> {
    device: &'static DeviceState<D>,
    stream: RefCell<D::Stream>,
    /// The lease of host memory that transfers submitted since the last wait may use.
    lease: RefCell<Lease>,
}

/// The table, of which C calls what a device without asynchronous streams lacks by itself.
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

/// ggml tells its own backends apart by such numbers; this is no one of theirs.
static GUID: sys::ggml_guid = *b"ggml-rust-driver";

/// A new C backend, which `free` frees.
pub(super) fn new<D: Driver>(
    device: *mut sys::ggml_backend_device,
    state: &'static DeviceState<D>,
    stream: D::Stream,
) -> Backend {
    let stream = StreamState { device: state, stream: RefCell::new(stream), lease: RefCell::new(host::lease()) };
    let guid = ptr::from_ref(&GUID).cast_mut();
    let iface = table::<D>(&state.info);
    let context = Box::into_raw(Box::new(stream)).cast::<c_void>();
    Box::into_raw(Box::new(sys::ggml_backend { guid, iface, device, context }))
}

/// # Safety
///
/// `backend` must be made by [`new`] with the same `D`, and live for `'a`.
unsafe fn of<'a, D: Driver>(backend: Backend) -> &'a StreamState<D> {
    // SAFETY: live by contract; this reads a field.
    let context = unsafe { (*backend).context };
    // SAFETY: by contract: the context lives as long as the backend, and is only borrowed shared.
    unsafe { borrow(context) }
}

impl<D: Driver> StreamState<D> {
    /// Runs a function of the stream.
    fn run<R>(
        &self,
        call: &'static str,
        then: Then,
        f: impl FnOnce(&mut D::Stream) -> Result<R, Failure>,
    ) -> Option<R> {
        let done = self.device.run(call, then, || {
            let mut stream = self.stream.try_borrow_mut().map_err(|_| Failure::new("the stream runs already"))?;
            f(&mut stream)
        });
        if done.is_none() {
            // Servers lend no host memory, and C frees what it has while it unwinds.
            self.device.end_server();
        }
        done
    }

    /// Lets no transfer access host memory any more.
    fn end_lease(&self) {
        host::end(&self.lease.replace(host::lease()));
    }

    /// Bytes of a tensor in a buffer of the registry; `None` if it lies elsewhere.
    fn region<'a>(&self, t: ConstTensor, offset: usize, len: usize) -> Result<Option<Region<'a, D>>, Failure> {
        let Some(buffer) = tensor(t).map(|t| t.root().buffer()).filter(|buffer| !buffer.is_null()) else {
            return Ok(None);
        };
        // SAFETY: the tensor's buffer lives during the callback (3), as does what is made of it here.
        let Some(state) = (unsafe { self.device.buffer_of(buffer) }) else { return Ok(None) };
        let (view, offset) = state.at(t, offset, len)?;
        Ok(Some(Region { view, buffer: &state.buffer, offset, len }))
    }

    /// [`StreamState::region`], which must exist.
    fn own<'a>(&self, t: ConstTensor, offset: usize, len: usize) -> Result<Region<'a, D>, Failure> {
        self.region(t, offset, len)?.ok_or_else(|| Failure::new("the tensor doesn't lie in memory of the device"))
    }
}

unsafe extern "C-unwind" fn name<D: Driver>(backend: Backend) -> *const c_char {
    // SAFETY: C passes the backend (1).
    unsafe { of::<D>(backend) }.device.name.as_ptr()
}

unsafe extern "C-unwind" fn free<D: Driver>(backend: Backend) {
    // SAFETY: C passes a backend of `new`, and doesn't use it again.
    let backend = unsafe { Box::from_raw(backend) };
    // SAFETY: as above; the context was made of a box.
    let state = unsafe { Box::from_raw(backend.context.cast::<StreamState<D>>()) };
    state.end_lease();
    state.device.drop("Driver::Stream", state.stream.into_inner());
}

unsafe extern "C-unwind" fn compute<D: Driver>(backend: Backend, graph: *mut sys::ggml_cgraph) -> sys::ggml_status {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live graph, whose nodes nothing else uses meanwhile.
    let nodes = unsafe { nodes_of(graph) };
    if nodes.is_empty() {
        return sys::GGML_STATUS_SUCCESS;
    }
    let lent = Cell::new(false);
    let done = state.run("DriverStream::compute", Then::Fail, |stream| {
        // SAFETY: C computes tensors that live and have memory, which only this backend's device uses meanwhile (2, 3).
        stream.compute(unsafe { Nodes::new(nodes, state.device, &lent) }?)
    });
    if done.is_some() { sys::GGML_STATUS_SUCCESS } else { sys::GGML_STATUS_FAILED }
}

/// C's list of a graph's nodes.
///
/// # Safety
///
/// The graph must live for `'a`, and nothing else may use the list.
unsafe fn nodes_of<'a>(graph: *mut sys::ggml_cgraph) -> &'a mut [Tensor] {
    // SAFETY: live by contract; this reads a field.
    let n = usize::try_from(unsafe { sys::ggml_graph_n_nodes(graph) }).unwrap_or(0);
    // SAFETY: as above.
    let nodes = unsafe { sys::ggml_graph_nodes(graph) };
    if nodes.is_null() {
        return &mut [];
    }
    // SAFETY: not NULL (checked here); the list has `n` nodes, and is only used here, by contract.
    unsafe { ffi::slice_mut(nodes, n) }
}

unsafe extern "C-unwind" fn optimize<D: Driver>(
    backend: Backend,
    graph: *mut sys::ggml_cgraph,
    _params: *mut sys::ggml_backend_graph_optimize_params,
) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live graph, whose nodes nothing else uses meanwhile.
    let list = unsafe { nodes_of(graph) };
    let _done = state.run("DriverStream::optimize", Then::Object, |stream| {
        // SAFETY: C plans tensors that live with their sources (3).
        let nodes = unsafe { SplitNodes::new(list, state.device) }?;
        let order = if nodes.is_empty() { None } else { stream.optimize(&nodes)? };
        order.map_or(Ok(()), |order| nodes.reorder(&order, list))
    });
}

unsafe extern "C-unwind" fn synchronize<D: Driver>(backend: Backend) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    let _done = state.run("DriverStream::synchronize", Then::Lose, DriverStream::synchronize);
    // Whatever the driver did, the memory is not lent for longer.
    state.end_lease();
}

unsafe extern "C-unwind" fn set<D: Driver>(
    backend: Backend,
    t: Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    let lease = state.lease.borrow().clone();
    // SAFETY: the bytes are initialised and stay as they are until the lease ends (4).
    let data = unsafe { HostSource::new(data.cast(), size, lease) };
    let _done = state.run("DriverStream::set", Then::Fail, |stream| stream.set(state.own(t, offset, size)?, data));
}

unsafe extern "C-unwind" fn get<D: Driver>(
    backend: Backend,
    t: ConstTensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    let lease = state.lease.borrow().clone();
    // SAFETY: nothing else uses the bytes until the lease ends (4).
    let data = unsafe { HostTarget::new(data.cast(), size, lease) };
    let _done = state.run("DriverStream::get", Then::Fail, |stream| stream.get(state.own(t, offset, size)?, data));
}

unsafe extern "C-unwind" fn copy<D: Driver>(source: Backend, backend: Backend, src: ConstTensor, dst: Tensor) -> bool {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    let size = tensor(src).and_then(TensorPtr::span).unwrap_or(usize::MAX);
    let same = ptr::eq(source, backend);
    // SAFETY: C passes a live backend; this reads a field.
    let of_source = unsafe { (*source).device };
    let siblings = state.device.siblings.get();
    if !siblings.is_some_and(|all| all.iter().any(|d| d.raw.get().is_some_and(|(d, _)| d.as_ptr() == of_source))) {
        return false;
    }
    // SAFETY: a live backend of a device of this registry (checked above), whose driver is of type `D`.
    let source = unsafe { of::<D>(source) };
    if source.device.driven.check().is_err() {
        return true; // which the call that made the copy reports
    }
    let done = state.run("DriverStream::copy", Then::Fail, |stream| {
        let (Some(from), Some(to)) = (source.region(src, 0, size)?, state.region(dst, 0, size)?) else {
            return Ok(false);
        };
        if same {
            return stream.copy(None, from, to);
        }
        let mut other = source.stream.try_borrow_mut().map_err(|_| Failure::new("the stream runs already"))?;
        stream.copy(Some(&mut other), from, to)
    });
    // After a failure, which the call that made the copy reports, another attempt would make no difference.
    done.unwrap_or(true)
}

unsafe extern "C-unwind" fn record<D: Driver>(backend: Backend, raw: Event) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live event of the backend's device (1).
    let event = unsafe { event::<D>(raw) };
    let _done = state.run("DriverStream::record", Then::Fail, |stream| stream.record(event));
}

unsafe extern "C-unwind" fn wait<D: Driver>(backend: Backend, raw: Event) {
    // SAFETY: C passes the backend (1).
    let state = unsafe { of::<D>(backend) };
    // SAFETY: C passes a live event of the backend's device (1).
    let event = unsafe { event::<D>(raw) };
    let _done = state.run("DriverStream::wait", Then::Fail, |stream| stream.wait(event));
}
