//! Checks that every declared function exists in the compiled library.

use std::collections::BTreeSet;
use std::ffi::CStr;

/// Every declared function with its address: referring to it makes the linker resolve it.
fn functions() -> Vec<(&'static str, usize)> {
    include!(concat!(env!("OUT_DIR"), "/functions.rs"))
}

#[test]
fn library_has_every_declared_function() {
    let functions = std::hint::black_box(functions());
    assert!(functions.len() > 600, "only {} functions are declared", functions.len());
    assert!(functions.iter().all(|(_, address)| *address != 0));
    let names: BTreeSet<_> = functions.iter().map(|(name, _)| *name).collect();
    for name in ["ggml_mul_mat", "ggml_backend_sched_new", "ggml_opt_fit", "gguf_init_from_file", "ggml_sys_guard"] {
        assert!(names.contains(name), "{name}");
    }
    assert_eq!(names.contains("ggml_backend_rpc_add_server"), ggml_sys::BACKENDS.contains(&"rpc"));
}

#[test]
fn library_reports_the_pinned_version() {
    // SAFETY: no preconditions; returns a static string.
    let version = unsafe { ggml_sys::ggml_version() };
    // SAFETY: no preconditions; returns a static string.
    let commit = unsafe { ggml_sys::ggml_commit() };
    // SAFETY: `ggml_version` returned a static NUL-terminated string.
    assert_eq!(unsafe { CStr::from_ptr(version) }.to_str(), Ok(ggml_sys::VERSION));
    // SAFETY: `ggml_commit` returned a static NUL-terminated string.
    assert_eq!(unsafe { CStr::from_ptr(commit) }.to_str(), Ok(ggml_sys::COMMIT));
    assert_eq!(ggml_sys::BACKENDS.first(), Some(&"cpu"));
}
