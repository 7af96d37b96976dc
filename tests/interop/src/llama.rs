//! The few calls of llama.cpp that are needed here.

use std::ffi::{CStr, CString};
use std::path::Path;

use ggml::sys::ggml_backend_dev_t;
use llama_cpp_sys_2 as llama;

use crate::Result;

/// llama.cpp, started.
pub struct Llama(());

impl Llama {
    pub fn start() -> Self {
        // SAFETY: once, by the only thread.
        unsafe { llama::llama_backend_init() };
        Self(())
    }

    /// What it says of ggml's backends.
    pub fn system_info(&self) -> Result<String> {
        // SAFETY: takes nothing, returns a string that lives until the next such call.
        let text = unsafe { llama::llama_print_system_info() };
        // SAFETY: a C string, copied before anybody calls that again.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(text.to_str()?.to_owned())
    }

    /// Whether ggml's list has the RPC backend.
    pub fn supports_rpc(&self) -> bool {
        // SAFETY: takes nothing.
        unsafe { llama::llama_supports_rpc() }
    }

    /// The logits that a model on the CPU gives for one token.
    pub fn logits(&self, file: &Path, token: i32) -> Result<Vec<f32>> {
        self.steps(file, &[token], None)
    }

    /// The logits after a prompt of up to four tokens, and after each token that follows. The layers are on a device, or
    /// on the CPU.
    pub fn steps(&self, file: &Path, tokens: &[i32], device: Option<ggml_backend_dev_t>) -> Result<Vec<f32>> {
        let path = CString::new(file.as_os_str().as_encoded_bytes())?;
        let mut devices = [device.map_or(std::ptr::null_mut(), |device| device.cast()), std::ptr::null_mut()];
        // SAFETY: takes nothing.
        let mut params = unsafe { llama::llama_model_default_params() };
        if device.is_some() {
            (params.devices, params.n_gpu_layers) = (devices.as_mut_ptr(), 99);
        }
        // SAFETY: a C string and the parameters by value; the list of devices ends with NULL and outlives the model.
        let model = unsafe { llama::llama_model_load_from_file(path.as_ptr(), params) };
        if model.is_null() {
            return Err("llama.cpp does not load the model".into());
        }
        // SAFETY: a live model, freed after its context.
        let logits = unsafe { decode(model, tokens) };
        // SAFETY: live, and nothing uses it any more.
        unsafe { llama::llama_model_free(model) };
        logits
    }
}

/// # Safety
///
/// `model` has to be live.
unsafe fn decode(model: *mut llama::llama_model, tokens: &[i32]) -> Result<Vec<f32>> {
    // SAFETY: takes nothing.
    let mut params = unsafe { llama::llama_context_default_params() };
    (params.n_ctx, params.n_batch, params.n_ubatch) = (32, 32, 32);
    // Else keys and values are rounded to f16: in the cache, and by flash attention.
    (params.type_k, params.type_v) = (llama::GGML_TYPE_F32, llama::GGML_TYPE_F32);
    params.flash_attn_type = llama::LLAMA_FLASH_ATTN_TYPE_DISABLED;
    (params.n_threads, params.n_threads_batch) = (1, 1);
    // SAFETY: live by the contract; the parameters by value.
    let context = unsafe { llama::llama_init_from_model(model, params) };
    if context.is_null() {
        return Err("llama.cpp makes no context".into());
    }
    let (prompt, rest) = tokens.split_at(tokens.len().min(4));
    let steps = std::iter::once(prompt).chain(rest.chunks(1));
    // SAFETY: live until it is freed below.
    let logits = steps.map(|tokens| unsafe { step(context, tokens) }).collect::<Result<Vec<_>>>();
    // SAFETY: live, and what was wanted of it is copied.
    unsafe { llama::llama_free(context) };
    Ok(logits?.concat())
}

/// The logits after the last of these tokens.
///
/// # Safety
///
/// `context` has to be live.
#[expect(clippy::disallowed_methods, reason = "the safe crate's own way of slices is private to it")]
unsafe fn step(context: *mut llama::llama_context, tokens: &[i32]) -> Result<Vec<f32>> {
    let mut tokens = tokens.to_vec();
    // SAFETY: as many tokens as are said, which outlive the batch.
    let batch = unsafe { llama::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32) };
    // SAFETY: a live context, and a batch for it.
    let status = unsafe { llama::llama_decode(context, batch) };
    // SAFETY: live; NULL where nothing was decoded.
    let logits = unsafe { llama::llama_get_logits_ith(context, -1) };
    if status != 0 || logits.is_null() {
        return Err(format!("llama.cpp does not decode: {status}").into());
    }
    // SAFETY: as many as the model has tokens, until the next decode.
    Ok(unsafe { std::slice::from_raw_parts(logits, crate::model::VOCABULARY) }.to_vec())
}
