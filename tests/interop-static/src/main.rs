//! whisper.cpp, C and the crate `ggml` in one program, over the ggml that ggml-sys compiles and links statically.
//! `cargo xtask interop` builds and runs it, with the whisper.cpp of `whisper-rs-sys`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Mutex;

use ggml::prelude::*;
use ggml::sys;
use sys::IntoUnwind as _;

unsafe extern "C" {
    fn sum_of(a: *const f32, b: *const f32) -> f32;
    fn whisper_print_system_info() -> *const c_char;
    fn whisper_log_set(callback: sys::ggml_log_callback, data: *mut c_void);
    fn whisper_init_from_buffer(buffer: *mut c_void, size: usize) -> *mut c_void;
}

static SAID: Mutex<String> = Mutex::new(String::new());

/// A callback as programs for C declare it.
unsafe extern "C" fn note(_level: sys::ggml_log_level, text: *const c_char, _data: *mut c_void) {
    // SAFETY: whisper.cpp and ggml pass C strings.
    let text = unsafe { CStr::from_ptr(text) };
    SAID.lock().unwrap().push_str(&text.to_string_lossy());
}

fn main() -> ggml::Result<()> {
    let (a, b) = ([1.0_f32, 2.0], [30.0_f32, 40.0]);
    // SAFETY: two vectors of two numbers.
    let c = unsafe { sum_of(a.as_ptr(), b.as_ptr()) };
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2])?;
    let y = ctx.input("y", DType::F32, [2])?;
    let total = ctx.sum(ctx.add(x, y)?)?;
    let graph = ctx.graph([total])?;
    let mut sched = Sched::best()?;
    let mut run = sched.alloc(&graph)?;
    run.set(x, &a)?;
    run.set(y, &b)?;
    run.compute()?;
    let ours: Vec<f32> = run.get(total)?;
    assert_eq!(ours, [c], "this crate and C compute the same");

    let note: unsafe extern "C" fn(_, _, _) = note;
    // SAFETY: the callback takes what it is given, from any thread, and lives as long as the program.
    unsafe { whisper_log_set(Some(note.into_unwind()), ptr::null_mut()) };
    let mut model = [0_u8; 64];
    // SAFETY: a buffer of its size, which is only read.
    let whisper = unsafe { whisper_init_from_buffer(model.as_mut_ptr().cast(), model.len()) };
    let said = SAID.lock().unwrap().clone();
    assert!(whisper.is_null() && said.contains("bad magic"), "zeros are no model; whisper.cpp said: {said}");
    // SAFETY: no preconditions.
    let info = unsafe { whisper_print_system_info() };
    // SAFETY: a C string that stays.
    let info = unsafe { CStr::from_ptr(info) }.to_string_lossy();
    assert!(info.contains("CPU :"), "whisper.cpp asks ggml for its backends: {info}");
    println!("interop-static: ggml={} {c} {info}", ggml::version());
    Ok(())
}
