//! What llama.cpp's compiled code sees of ggml, against what this program's Rust sees.

use std::ffi::{c_char, c_void};

use ggml::{Registry, sys};

use crate::Result;
use crate::llama::Llama;

/// llama.cpp walks ggml's list of backends and their features: it has to be the list that this crate has.
pub fn same_registries(llama: &Llama) -> Result<Vec<String>> {
    let said = llama.system_info()?;
    let mut expected = String::new();
    let mut names = Vec::new();
    for registry in Registry::all()? {
        names.push(registry.name());
        let features = registry.features()?;
        if !features.is_empty() {
            expected += &format!("{} : ", registry.name());
            expected.extend(features.iter().map(|(name, value)| format!("{name} = {value} | ")));
        }
    }
    if said != expected || !said.starts_with("CPU : ") {
        return Err(format!("llama.cpp says {said:?}, and this crate {expected:?}").into());
    }
    if llama.supports_rpc() != names.iter().any(|name| name == "RPC") {
        return Err(format!("llama.cpp and {names:?} disagree about RPC").into());
    }
    Ok(names)
}

/// llama.cpp's compiled code sets ggml's logger: it has to be the one that is read here.
pub fn same_logger() -> Result<()> {
    let mut marker = 0_u8;
    let mine: *mut c_void = (&raw mut marker).cast();
    // SAFETY: the callback does nothing with what it gets.
    unsafe { llama_cpp_sys_2::llama_log_set(Some(silent), mine) };
    let mut callback = None;
    let mut user = std::ptr::null_mut();
    // SAFETY: both are written.
    unsafe { sys::ggml_log_get(&raw mut callback, &raw mut user) };
    // SAFETY: as above; ggml must not keep the marker longer than it lives.
    unsafe { llama_cpp_sys_2::llama_log_set(Some(silent), std::ptr::null_mut()) };
    if user == mine { Ok(()) } else { Err("llama.cpp has another logger than this crate".into()) }
}

unsafe extern "C" fn silent(_: llama_cpp_sys_2::ggml_log_level, _: *const c_char, _: *mut c_void) {}
