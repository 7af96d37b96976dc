//! Callbacks that are declared as C's.

#![cfg(test)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use ggml_sys::IntoUnwind as _;

static SAID: Mutex<String> = Mutex::new(String::new());

unsafe extern "C" fn note(_level: ggml_sys::ggml_log_level, text: *const c_char, _data: *mut c_void) {
    // SAFETY: ggml passes a C string.
    let text = unsafe { CStr::from_ptr(text) };
    SAID.lock().unwrap().push_str(&text.to_string_lossy());
}

extern "C" fn largest(a: i8, b: u64, c: f32, d: f64, e: *const u8, f: i32, g: u16, h: f32) -> f64 {
    assert!(e.is_null(), "the fifth");
    [f64::from(a), f64::from(u32::try_from(b).unwrap()), c.into(), d, f.into(), g.into(), h.into()]
        .into_iter()
        .fold(0.0, f64::max)
}

#[test]
fn ggml_calls_a_function_of_c() {
    let callback: unsafe extern "C" fn(_, _, _) = note;
    // SAFETY: the callback takes what it is given, from any thread, and lives as long as the program.
    unsafe { ggml_sys::ggml_log_set(Some(callback.into_unwind()), std::ptr::null_mut()) };
    let params = ggml_sys::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
    // SAFETY: a C string; nothing is returned for a file that is not there.
    let file = unsafe { ggml_sys::gguf_init_from_file(c"/no/such/file".as_ptr(), params) };
    assert!(file.is_null(), "there is no such file");
    let said = SAID.lock().unwrap();
    assert!(said.contains("/no/such/file"), "ggml said: {said}");
}

#[test]
fn arguments_and_results_stay_what_they_are() {
    let function: extern "C" fn(i8, u64, f32, f64, *const u8, i32, u16, f32) -> f64 = largest;
    let result = function.into_unwind()(-1, 2, 3.0, 4.5, std::ptr::null(), 5, 6, 7.25);
    assert!((result - 7.25).abs() < 1e-9, "{result}");
}
