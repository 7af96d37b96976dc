//! Wrappers of the C functions that the tests need, for objects of one device.

#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "tests pass tensors that live")]

use std::ffi::CString;
use std::ptr;

use ggml::{Device, sys};

/// Room for the headers of a few tensors and graphs.
const POOL: usize = 1 << 20;

/// A context whose tensors have no data of their own.
pub struct Pool(*mut sys::ggml_context);

/// A buffer on a device.
pub struct Memory(*mut sys::ggml_backend_buffer);

/// A backend of a device.
pub struct Backend(*mut sys::ggml_backend);

/// A scheduler for a device, with the CPU as fallback. Owns its backends.
pub struct Sched {
    raw: *mut sys::ggml_backend_sched,
    _backends: [Backend; 2],
}

/// `c = a × b`, each a 64 × 64 matrix of f32.
pub struct Product {
    pub a: *mut sys::ggml_tensor,
    pub b: *mut sys::ggml_tensor,
    pub c: *mut sys::ggml_tensor,
    pub graph: *mut sys::ggml_cgraph,
}

pub const SIDE: usize = 64;

fn device(device: Device) -> *mut sys::ggml_backend_device {
    let name = CString::new(device.name()).unwrap();
    // SAFETY: the name lives during the call; ggml never frees the device.
    unsafe { sys::ggml_backend_dev_by_name(name.as_ptr()) }
}

pub fn buffer_type(on: Device) -> *mut sys::ggml_backend_buffer_type {
    // SAFETY: ggml never frees devices and their buffer types.
    unsafe { sys::ggml_backend_dev_buffer_type(device(on)) }
}

impl Default for Pool {
    fn default() -> Self {
        let params = sys::ggml_init_params { mem_size: POOL, mem_buffer: ptr::null_mut(), no_alloc: true };
        // SAFETY: `params` has no memory, so ggml allocates the pool itself.
        let raw = unsafe { sys::ggml_init(params) };
        assert!(!raw.is_null());
        Self(raw)
    }
}

impl Pool {
    pub fn bytes(&self, n: usize) -> *mut sys::ggml_tensor {
        // SAFETY: the pool is live and has room for a few tensors.
        unsafe { sys::ggml_new_tensor_1d(self.0, sys::GGML_TYPE_I8, n.try_into().unwrap()) }
    }

    fn square(&self) -> *mut sys::ggml_tensor {
        let side = SIDE.try_into().unwrap();
        // SAFETY: the pool is live and has room for a few tensors.
        unsafe { sys::ggml_new_tensor_2d(self.0, sys::GGML_TYPE_F32, side, side) }
    }

    pub fn product(&self) -> Product {
        let (a, b) = (self.square(), self.square());
        // SAFETY: inputs are live tensors of the pool.
        unsafe { sys::ggml_set_input(a) };
        // SAFETY: `b` is a live tensor of the pool.
        unsafe { sys::ggml_set_input(b) };
        // SAFETY: both are live, and square matrices can be multiplied.
        let c = unsafe { sys::ggml_mul_mat(self.0, a, b) };
        // SAFETY: `c` is a live tensor of the pool.
        unsafe { sys::ggml_set_output(c) };
        // SAFETY: the pool is live and has room for a graph of the default size.
        let graph = unsafe { sys::ggml_new_graph(self.0) };
        // SAFETY: graph and tensor are live.
        unsafe { sys::ggml_build_forward_expand(graph, c) };
        Product { a, b, c, graph }
    }

    /// Allocates every tensor of the pool on `on`; `None` if there is no memory.
    pub fn allocate(&self, on: Device) -> Option<Memory> {
        // SAFETY: pool and type are live; the caller keeps the result while it uses the tensors.
        let raw = unsafe { sys::ggml_backend_alloc_ctx_tensors_from_buft(self.0, buffer_type(on)) };
        (!raw.is_null()).then_some(Memory(raw))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: this struct owns the pool, and drop is its last use.
        unsafe { sys::ggml_free(self.0) }
    }
}

impl Memory {
    pub fn new(on: Device, size: usize) -> Self {
        // SAFETY: ggml never frees devices and their buffer types.
        let raw = unsafe { sys::ggml_backend_buft_alloc_buffer(buffer_type(on), size) };
        assert!(!raw.is_null());
        Self(raw)
    }

    pub fn address(&self) -> usize {
        // SAFETY: `self` owns the buffer, so it is live; it is not empty.
        unsafe { sys::ggml_backend_buffer_get_base(self.0) }.addr()
    }

    /// Marks the buffer as weights: ggml then asks the server whether it has large data already.
    pub fn of_weights(&self) {
        // SAFETY: the buffer is live.
        unsafe { sys::ggml_backend_buffer_set_usage(self.0, sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this struct owns the buffer, and drop is its last use.
        unsafe { sys::ggml_backend_buffer_free(self.0) }
    }
}

impl Backend {
    pub fn new(on: Device) -> Self {
        // SAFETY: ggml never frees devices; NULL means no parameters.
        let raw = unsafe { sys::ggml_backend_dev_init(device(on), ptr::null()) };
        assert!(!raw.is_null());
        Self(raw)
    }

    pub fn compute(&self, product: &Product) {
        // SAFETY: the backend is live, and the tensors of the graph have memory on its device.
        let status = unsafe { sys::ggml_backend_graph_compute(self.0, product.graph) };
        assert_eq!(status, sys::GGML_STATUS_SUCCESS);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: this struct owns the backend, and drop is its last use.
        unsafe { sys::ggml_backend_free(self.0) }
    }
}

impl Sched {
    pub fn new(on: Device) -> Self {
        let backends = [Backend::new(on), Backend::new(Device::cpu().unwrap())];
        let mut list = backends.each_ref().map(|backend| backend.0);
        // SAFETY: two live backends, which the result keeps and which outlive it; the last is a CPU.
        let raw = unsafe { sys::ggml_backend_sched_new(list.as_mut_ptr(), ptr::null_mut(), 2, 256, false, false) };
        assert!(!raw.is_null());
        Self { raw, _backends: backends }
    }

    pub fn allocate(&self, product: &Product) -> bool {
        // SAFETY: scheduler and graph are live.
        unsafe { sys::ggml_backend_sched_alloc_graph(self.raw, product.graph) }
    }

    pub fn compute(&self, product: &Product) {
        // SAFETY: the graph is the one allocated.
        let status = unsafe { sys::ggml_backend_sched_graph_compute(self.raw, product.graph) };
        assert_eq!(status, sys::GGML_STATUS_SUCCESS);
    }
}

impl Drop for Sched {
    fn drop(&mut self) {
        // SAFETY: this struct owns the scheduler, and drop is its last use; the backends are dropped later.
        unsafe { sys::ggml_backend_sched_free(self.raw) }
    }
}

/// Fills an allocated tensor.
pub fn set<T>(tensor: *mut sys::ggml_tensor, data: &[T]) {
    assert_eq!(size_of_val(data), nbytes(tensor));
    // SAFETY: the caller passes a live, allocated tensor; the data have its size.
    unsafe { sys::ggml_backend_tensor_set(tensor, data.as_ptr().cast(), 0, size_of_val(data)) }
}

/// Reads an allocated tensor; bytes that ggml does not write stay `fill`.
pub fn get<T: Copy>(tensor: *const sys::ggml_tensor, fill: T) -> Vec<T> {
    let mut data = vec![fill; nbytes(tensor) / size_of::<T>()];
    // SAFETY: the caller passes a live, allocated tensor; the data have its size.
    unsafe { sys::ggml_backend_tensor_get(tensor, data.as_mut_ptr().cast(), 0, size_of_val(data.as_slice())) };
    data
}

fn nbytes(tensor: *const sys::ggml_tensor) -> usize {
    // SAFETY: the tensor is live.
    unsafe { sys::ggml_nbytes(tensor) }
}

/// Row `i` of ggml's product of `a` and `b`: the dot products of `b`'s row `i` with the rows of `a`.
pub fn expected(a: &[f32], b: &[f32]) -> Vec<f32> {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| x * y).sum();
    b.chunks(SIDE).flat_map(|row| a.chunks(SIDE).map(move |column| dot(row, column))).collect()
}

/// A square matrix of small integers, whose products are exact.
pub fn numbers(step: usize) -> Vec<f32> {
    (0..SIDE * SIDE).map(|i| f32::from(u8::try_from(i * step % 7).unwrap())).collect()
}
