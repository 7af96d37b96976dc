//! llama.cpp as a reference: a model with a context, and batches of tokens.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;

#[cfg(not(feature = "sources"))]
pub use llama_cpp_sys_2 as llama;

/// llama.cpp's declarations, of the folder that it was compiled from.
#[cfg(feature = "sources")]
#[allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#[allow(unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod llama {
    include!(concat!(env!("OUT_DIR"), "/llama.rs"));
}

pub use llama::{GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0, ggml_backend_dev_t, ggml_type};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A token of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub id: i32,
    pub position: i32,
    pub sequence: i32,
    pub output: bool,
}

/// How it computes.
#[derive(Debug, Clone)]
pub struct Options {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_seq: u32,
    pub threads: i32,
    pub repack: bool,
    /// The type of keys and values.
    pub cache: ggml_type,
    /// Flash attention.
    pub flash: bool,
}

/// A loaded model and its context.
pub struct Llama {
    context: NonNull<llama::llama_context>,
    model: NonNull<llama::llama_model>,
    n_vocab: usize,
}

unsafe extern "C" fn silent(_: llama::ggml_log_level, _: *const c_char, _: *mut c_void) {}

/// Starts llama.cpp, which then logs nothing.
pub fn start() {
    // SAFETY: the callback does nothing with what it gets.
    unsafe { llama::llama_log_set(Some(silent), std::ptr::null_mut()) };
    // SAFETY: once, by the only thread.
    unsafe { llama::llama_backend_init() };
}

/// Converts the matrices of `from` to the types of `ftype`, a number of `llama_ftype`.
pub fn quantize(from: &Path, to: &Path, ftype: u32) -> Result<()> {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_encoded_bytes()));
    let (from, to) = (from?, to?);
    // SAFETY: takes nothing.
    let mut params = unsafe { llama::llama_model_quantize_default_params() };
    (params.ftype, params.nthread) = (ftype.try_into()?, 1);
    // SAFETY: C strings and parameters, which live during the call.
    let status = unsafe { llama::llama_model_quantize(from.as_ptr(), to.as_ptr(), &raw const params) };
    if status == 0 { Ok(()) } else { Err(format!("llama.cpp does not quantise to file type {ftype}").into()) }
}

impl Llama {
    /// Loads a model on the CPU.
    pub fn open(file: &Path, options: &Options) -> Result<Self> {
        Self::open_on(file, options, None)
    }

    /// Loads a model whose layers are on a device, or else on the CPU.
    pub fn open_on(file: &Path, options: &Options, device: Option<ggml_backend_dev_t>) -> Result<Self> {
        let mut devices = [device.unwrap_or(std::ptr::null_mut()), std::ptr::null_mut()];
        let path = CString::new(file.as_os_str().as_encoded_bytes())?;
        // SAFETY: takes nothing.
        let mut params = unsafe { llama::llama_model_default_params() };
        (params.devices, params.n_gpu_layers) = (devices.as_mut_ptr(), if device.is_some() { 999 } else { 0 });
        params.use_extra_bufts = options.repack;
        // SAFETY: a C string and the parameters by value; the list of devices ends with NULL and lives during the call.
        let model = unsafe { llama::llama_model_load_from_file(path.as_ptr(), params) };
        let model = NonNull::new(model).ok_or("llama.cpp does not load the model")?;
        // SAFETY: takes nothing.
        let mut params = unsafe { llama::llama_context_default_params() };
        (params.n_ctx, params.n_batch, params.n_ubatch) = (options.n_ctx, options.n_ctx, options.n_batch);
        (params.n_seq_max, params.kv_unified) = (options.n_seq, true);
        (params.type_k, params.type_v) = (options.cache, options.cache);
        params.flash_attn_type =
            if options.flash { llama::LLAMA_FLASH_ATTN_TYPE_ENABLED } else { llama::LLAMA_FLASH_ATTN_TYPE_DISABLED };
        (params.n_threads, params.n_threads_batch) = (options.threads, options.threads);
        // SAFETY: a live model, and the parameters by value.
        let context = unsafe { llama::llama_init_from_model(model.as_ptr(), params) };
        let context = NonNull::new(context).ok_or("llama.cpp makes no context")?;
        // SAFETY: a live model.
        let vocab = unsafe { llama::llama_model_get_vocab(model.as_ptr()) };
        // SAFETY: the vocabulary of a live model.
        let n_vocab = unsafe { llama::llama_vocab_n_tokens(vocab) };
        Ok(Self { context, model, n_vocab: usize::try_from(n_vocab)? })
    }

    /// The logits of the tokens with output.
    pub fn decode(&mut self, tokens: &[Token]) -> Result<Vec<Vec<f32>>> {
        // The arrays live until the batch was decoded.
        let mut ids: Vec<_> = tokens.iter().map(|t| t.id).collect();
        let mut positions: Vec<_> = tokens.iter().map(|t| t.position).collect();
        let mut counts = vec![1; tokens.len()];
        let mut sequences: Vec<_> = tokens.iter().map(|t| t.sequence).collect();
        let mut pointers: Vec<_> = sequences.iter_mut().map(|s| &raw mut *s).collect();
        let mut outputs: Vec<_> = tokens.iter().map(|t| i8::from(t.output)).collect();
        // SAFETY: makes arrays for no tokens, which nothing reads; those below replace them.
        let empty = unsafe { llama::llama_batch_init(0, 0, 0) };
        let mut batch = empty;
        batch.n_tokens = i32::try_from(tokens.len())?;
        batch.token = ids.as_mut_ptr();
        batch.pos = positions.as_mut_ptr();
        batch.n_seq_id = counts.as_mut_ptr();
        batch.seq_id = pointers.as_mut_ptr();
        batch.logits = outputs.as_mut_ptr();
        // SAFETY: a live context, and a batch whose arrays have an element for each token.
        let status = unsafe { llama::llama_decode(self.context.as_ptr(), batch) };
        // SAFETY: the batch that was made above, which nothing else frees.
        unsafe { llama::llama_batch_free(empty) };
        if status != 0 {
            return Err(format!("llama_decode returned {status}").into());
        }
        let wanted = tokens.iter().enumerate().filter(|(_, t)| t.output);
        wanted.map(|(i, _)| self.logits(i32::try_from(i)?)).collect()
    }

    fn logits(&self, i: i32) -> Result<Vec<f32>> {
        // SAFETY: a live context that has decoded a batch.
        let logits = unsafe { llama::llama_get_logits_ith(self.context.as_ptr(), i) };
        if logits.is_null() {
            return Err(format!("token {i} has no logits").into());
        }
        let mut copy = vec![0.0; self.n_vocab];
        // SAFETY: both have as many floats as the model has tokens, and are apart.
        unsafe { std::ptr::copy_nonoverlapping(logits, copy.as_mut_ptr(), self.n_vocab) };
        Ok(copy)
    }

    /// Removes `n` tokens after the first `keep` of a sequence, and moves the later ones to their place.
    pub fn shift(&mut self, sequence: i32, keep: i32, n: i32) -> Result<()> {
        self.remove(sequence, keep, keep + n)?;
        // SAFETY: a live context.
        let memory = unsafe { llama::llama_get_memory(self.context.as_ptr()) };
        // SAFETY: the memory of a live context.
        unsafe { llama::llama_memory_seq_add(memory, sequence, keep + n, -1, -n) };
        Ok(())
    }

    /// Removes a sequence's tokens from a position up to another; -1 for all that follow.
    pub fn remove(&mut self, sequence: i32, from: i32, to: i32) -> Result<()> {
        // SAFETY: a live context.
        let memory = unsafe { llama::llama_get_memory(self.context.as_ptr()) };
        // SAFETY: the memory of a live context.
        let removed = unsafe { llama::llama_memory_seq_rm(memory, sequence, from, to) };
        if removed { Ok(()) } else { Err("llama.cpp does not remove the tokens".into()) }
    }

    /// Makes the first `n` tokens of one sequence the beginning of another.
    pub fn share(&mut self, from: i32, to: i32, n: i32) {
        // SAFETY: a live context.
        let memory = unsafe { llama::llama_get_memory(self.context.as_ptr()) };
        // SAFETY: the memory of a live context, and two of its sequences.
        unsafe { llama::llama_memory_seq_cp(memory, from, to, 0, n) };
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        // SAFETY: a live context.
        let memory = unsafe { llama::llama_get_memory(self.context.as_ptr()) };
        // SAFETY: the memory of a live context.
        unsafe { llama::llama_memory_clear(memory, false) };
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        // SAFETY: live, and nothing uses it any more.
        unsafe { llama::llama_free(self.context.as_ptr()) };
        // SAFETY: live; its only context is freed.
        unsafe { llama::llama_model_free(self.model.as_ptr()) };
    }
}
