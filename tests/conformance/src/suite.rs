//! ggml's cases (`suite.cpp`), and the two functions that they call through this program.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use ggml_sys as sys;

use crate::rebuild;

type Tensor = *mut sys::ggml_tensor;
type Compare = unsafe extern "C-unwind" fn(c_int, Tensor, Tensor, *mut c_void) -> bool;

unsafe extern "C-unwind" {
    fn suite_len() -> usize;
    fn suite_run(i: usize, first: sys::ggml_backend_t, second: sys::ggml_backend_t, filter: *const c_char) -> c_int;
    fn suite_name(i: usize, give: unsafe extern "C-unwind" fn(*mut c_void, *const c_char), data: *mut c_void);
}

/// What was seen of the case that runs.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The first operation that the CPU doesn't support.
    pub(crate) cpu_refused: Option<String>,
    /// The first operation that the device doesn't support, and why.
    pub(crate) refused: Option<(String, String)>,
    /// The results that were compared.
    pub(crate) compared: usize,
    /// The first results that differ in bits.
    pub(crate) different: Vec<String>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
    /// Whether the case that runs is to end before it computes.
    static ONLY_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    LeftOut,
    Failed,
    Passed,
    Unsupported,
}

/// A C backend.
pub(crate) struct Raw(sys::ggml_backend_t);

impl Raw {
    /// A backend of a device.
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        let c_name = CString::new(name).map_err(|e| e.to_string())?;
        // SAFETY: a C string.
        let device = unsafe { sys::ggml_backend_dev_by_name(c_name.as_ptr()) };
        if device.is_null() {
            return Err(format!("there is no device {name}"));
        }
        // SAFETY: a device, which lives as long as the process; NULL is no parameters.
        let backend = unsafe { sys::ggml_backend_dev_init(device, std::ptr::null()) };
        if backend.is_null() { Err(format!("{name} makes no backend")) } else { Ok(Self(backend)) }
    }

    /// ggml's CPU.
    pub(crate) fn cpu(threads: usize) -> Result<Self, String> {
        let cpu = Self::of("CPU")?;
        let threads = c_int::try_from(threads).map_err(|e| e.to_string())?;
        // SAFETY: a live backend of the CPU.
        unsafe { sys::ggml_backend_cpu_set_n_threads(cpu.0, threads) };
        Ok(cpu)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: live, and not used again. The cases free their buffers before they end.
        unsafe { sys::ggml_backend_free(self.0) };
    }
}

/// The number of cases.
pub(crate) fn len() -> usize {
    // SAFETY: no preconditions.
    unsafe { suite_len() }
}

/// Runs a case on a device and on the CPU.
pub(crate) fn run(i: usize, device: &Raw, cpu: &Raw, filter: Option<&CStr>) -> (Outcome, Seen) {
    SEEN.take();
    let filter = filter.map_or(std::ptr::null(), CStr::as_ptr);
    assert!(i < len(), "there is no case {i}");
    // SAFETY: a case, two live backends, and a C string or NULL.
    let outcome = match unsafe { suite_run(i, device.0, cpu.0, filter) } {
        -1 => Outcome::LeftOut,
        0 => Outcome::Failed,
        1 => Outcome::Passed,
        _ => Outcome::Unsupported,
    };
    (outcome, SEEN.take())
}

/// Asks both whether they support a case, and computes nothing.
pub(crate) fn ask(i: usize, device: &Raw, cpu: &Raw, filter: Option<&CStr>) -> (Outcome, Seen) {
    ONLY_ASKED.set(true);
    let result = run(i, device, cpu, filter);
    ONLY_ASKED.set(false);
    result
}

/// The case's operation and parameters.
pub(crate) fn name(i: usize) -> String {
    unsafe extern "C-unwind" fn give(data: *mut c_void, text: *const c_char) {
        // SAFETY: a C string.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the string of `name`, which nothing else uses meanwhile.
        let name = unsafe { &mut *data.cast::<String>() };
        *name = text;
    }
    let mut name = String::new();
    assert!(i < len(), "there is no case {i}");
    // SAFETY: a case; `give` is called once, with the string.
    unsafe { suite_name(i, give, (&raw mut name).cast()) };
    name
}

/// ggml's name of the operation, such as `RELU`.
fn op_of(t: *const sys::ggml_tensor) -> String {
    // SAFETY: a live tensor.
    let text = unsafe { sys::ggml_op_desc(t) };
    // SAFETY: a static C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn is_cpu(backend: sys::ggml_backend_t) -> bool {
    // SAFETY: a live backend.
    unsafe { sys::ggml_backend_is_cpu(backend) }
}

/// What the cases call in place of `ggml_backend_supports_op`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn suite_supports(backend: sys::ggml_backend_t, op: *const sys::ggml_tensor) -> bool {
    drop(rebuild::take_refusal());
    // SAFETY: the arguments of the case.
    let supported = unsafe { sys::ggml_backend_supports_op(backend, op) };
    if !supported {
        SEEN.with_borrow_mut(|seen| {
            if is_cpu(backend) {
                seen.cpu_refused.get_or_insert_with(|| op_of(op));
            } else {
                let why = rebuild::take_refusal().unwrap_or_else(|| "the device was not asked".into());
                seen.refused.get_or_insert_with(|| (op_of(op), why));
            }
        });
    }
    supported && !ONLY_ASKED.get()
}

/// A case's own comparison.
struct Own {
    callback: Option<Compare>,
    data: *mut c_void,
}

fn bytes(t: Tensor) -> Vec<u8> {
    // SAFETY: a live tensor.
    let mut data = vec![0; unsafe { sys::ggml_nbytes(t) }];
    // SAFETY: a tensor with memory of as many bytes.
    unsafe { sys::ggml_backend_tensor_get(t, data.as_mut_ptr().cast(), 0, data.len()) };
    data
}

/// Compares bytes, and if they differ, as the case does.
unsafe extern "C-unwind" fn compare(i: c_int, first: Tensor, second: Tensor, data: *mut c_void) -> bool {
    let [a, b] = [bytes(first), bytes(second)];
    let different = a.iter().zip(&b).position(|(a, b)| a != b);
    SEEN.with_borrow_mut(|seen| {
        seen.compared += 1;
        if let Some(at) = different {
            seen.different.push(format!("{}: {} bytes, which differ from byte {at} on", op_of(first), a.len()));
        }
    });
    if different.is_none() {
        return true;
    }
    // SAFETY: what `suite_compare` passes.
    let own = unsafe { &*data.cast::<Own>() };
    // SAFETY: the arguments of the comparison, and the case's data.
    own.callback.is_none_or(|callback| unsafe { callback(i, first, second, own.data) })
}

/// What the cases call in place of `ggml_backend_compare_graph_backend`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn suite_compare(
    first: sys::ggml_backend_t,
    second: sys::ggml_backend_t,
    graph: *mut sys::ggml_cgraph,
    callback: Option<Compare>,
    data: *mut c_void,
    nodes: *const *const sys::ggml_tensor,
    n_nodes: usize,
) -> bool {
    let mut own = Own { callback, data };
    let own = (&raw mut own).cast();
    // SAFETY: the arguments of the case, whose callback `compare` calls.
    unsafe {
        sys::ggml_backend_compare_graph_backend(
            first,
            second,
            graph,
            Some(compare),
            own,
            nodes.cast_mut().cast(),
            n_nodes,
        )
    }
}
