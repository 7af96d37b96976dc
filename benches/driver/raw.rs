//! A backend that adds, on C's tables, as one in C does: it trusts what it is given.

use std::ffi::{c_char, c_void};
use std::ptr;

use ggml::Device;
use ggml_sys as sys;

type Dev = *mut sys::ggml_backend_device;
type Backend = *mut sys::ggml_backend;

static GUID: sys::ggml_guid = *b"ggml-bench-adder";
const NAME: *const c_char = c"c-adder".as_ptr();

unsafe extern "C-unwind" fn reg_name(_: *mut sys::ggml_backend_reg) -> *const c_char {
    NAME
}

unsafe extern "C-unwind" fn reg_count(_: *mut sys::ggml_backend_reg) -> usize {
    1
}

unsafe extern "C-unwind" fn reg_device(reg: *mut sys::ggml_backend_reg, _: usize) -> Dev {
    // SAFETY: the registry is live; its context is the device (`device`).
    unsafe { (*reg).context }.cast()
}

unsafe extern "C-unwind" fn dev_text(_: Dev) -> *const c_char {
    NAME
}

unsafe extern "C-unwind" fn dev_memory(_: Dev, free: *mut usize, total: *mut usize) {
    // SAFETY: C passes two numbers to write to.
    unsafe { free.write(0) };
    // SAFETY: as above.
    unsafe { total.write(0) };
}

unsafe extern "C-unwind" fn dev_type(_: Dev) -> sys::ggml_backend_dev_type {
    sys::GGML_BACKEND_DEVICE_TYPE_ACCEL
}

unsafe extern "C-unwind" fn dev_props(_: Dev, props: *mut sys::ggml_backend_dev_props) {
    let caps = sys::ggml_backend_dev_caps {
        async_: false,
        host_buffer: false,
        buffer_from_host_ptr: false,
        events: false,
        mmap_support: false,
    };
    let all = sys::ggml_backend_dev_props {
        name: NAME,
        description: NAME,
        memory_free: 0,
        memory_total: 0,
        type_: sys::GGML_BACKEND_DEVICE_TYPE_ACCEL,
        device_id: ptr::null(),
        caps,
    };
    // SAFETY: C passes a structure to write to.
    unsafe { props.write(all) };
}

unsafe extern "C-unwind" fn dev_init(device: Dev, _: *const c_char) -> Backend {
    let iface = sys::ggml_backend_i {
        get_name: Some(name),
        free: Some(free),
        set_tensor_async: None,
        get_tensor_async: None,
        set_tensor_2d_async: None,
        get_tensor_2d_async: None,
        cpy_tensor_async: None,
        synchronize: None,
        graph_plan_create: None,
        graph_plan_free: None,
        graph_plan_update: None,
        graph_plan_compute: None,
        graph_compute: Some(compute),
        event_record: None,
        event_wait: None,
        graph_optimize: None,
    };
    let guid = ptr::from_ref(&GUID).cast_mut();
    Box::into_raw(Box::new(sys::ggml_backend { guid, iface, device, context: ptr::null_mut::<c_void>() }))
}

unsafe extern "C-unwind" fn name(_: Backend) -> *const c_char {
    NAME
}

unsafe extern "C-unwind" fn free(backend: Backend) {
    // SAFETY: `dev_init` made it of a box, and C frees it once.
    drop(unsafe { Box::from_raw(backend) });
}

unsafe extern "C-unwind" fn buffer_type(_: Dev) -> *mut sys::ggml_backend_buffer_type {
    // SAFETY: no arguments.
    unsafe { sys::ggml_backend_cpu_buffer_type() }
}

unsafe extern "C-unwind" fn supports(_: Dev, _: *const sys::ggml_tensor) -> bool {
    true
}

unsafe extern "C-unwind" fn supports_buft(_: Dev, buft: *mut sys::ggml_backend_buffer_type) -> bool {
    // SAFETY: C passes a live buffer type.
    unsafe { sys::ggml_backend_buft_is_host(buft) }
}

unsafe extern "C-unwind" fn compute(_: Backend, graph: *mut sys::ggml_cgraph) -> sys::ggml_status {
    // SAFETY: C passes a live graph.
    let n = unsafe { sys::ggml_graph_n_nodes(graph) };
    for i in 0..n {
        // SAFETY: `i` is the index of a node.
        let node = unsafe { sys::ggml_graph_node(graph, i) };
        // SAFETY: C reads the live node.
        let elements = usize::try_from(unsafe { sys::ggml_nelements(node) }).unwrap_or(0);
        // SAFETY: the node is live, as are its sources, of which an addition has two.
        let [a, b, ..] = unsafe { (*node).src };
        let [y, a, b] = [node, a, b].map(|t| {
            // SAFETY: a live tensor; this reads a field.
            unsafe { (*t).data }.cast::<f32>()
        });
        for i in 0..elements {
            let [a, b] = [a, b].map(|numbers| {
                // SAFETY: all three have so many numbers in host memory.
                unsafe { numbers.wrapping_add(i).read() }
            });
            // SAFETY: as above.
            unsafe { y.wrapping_add(i).write(a + b) };
        }
    }
    sys::GGML_STATUS_SUCCESS
}

/// Registers it.
pub(crate) fn device() -> Device {
    let iface = sys::ggml_backend_device_i {
        get_name: Some(dev_text),
        get_description: Some(dev_text),
        get_memory: Some(dev_memory),
        get_type: Some(dev_type),
        get_props: Some(dev_props),
        init_backend: Some(dev_init),
        get_buffer_type: Some(buffer_type),
        get_host_buffer_type: None,
        buffer_from_host_ptr: None,
        supports_op: Some(supports),
        supports_buft: Some(supports_buft),
        offload_op: None,
        event_new: None,
        event_free: None,
        event_synchronize: None,
    };
    let context = ptr::null_mut();
    let dev = Box::leak(Box::new(sys::ggml_backend_device { iface, reg: ptr::null_mut(), context }));
    let iface = sys::ggml_backend_reg_i {
        get_name: Some(reg_name),
        get_device_count: Some(reg_count),
        get_device: Some(reg_device),
        get_proc_address: None,
    };
    let api_version = i32::try_from(sys::GGML_BACKEND_API_VERSION).unwrap();
    let context = ptr::from_mut(dev).cast();
    let reg = Box::leak(Box::new(sys::ggml_backend_reg { api_version, iface, context }));
    dev.reg = reg;
    // SAFETY: the registry and its device are complete and never freed; no other thread uses ggml yet.
    unsafe { sys::ggml_backend_register(reg) };
    Device::by_name("c-adder").unwrap()
}
