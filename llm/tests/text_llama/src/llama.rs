//! llama.cpp's vocabulary of a file.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use llama_reference::llama;

use crate::Result;

/// A model of which only the vocabulary is loaded.
pub struct Vocabulary {
    model: *mut llama::llama_model,
    vocab: *const llama::llama_vocab,
}

unsafe extern "C" fn silent(_: llama::ggml_log_level, _: *const c_char, _: *mut c_void) {}

impl Vocabulary {
    pub fn load(file: &Path) -> Result<Self> {
        // SAFETY: a function that takes what it is called with.
        unsafe { llama::llama_log_set(Some(silent), std::ptr::null_mut()) };
        let path = CString::new(file.as_os_str().as_encoded_bytes())?;
        // SAFETY: takes nothing.
        let mut params = unsafe { llama::llama_model_default_params() };
        params.vocab_only = true;
        // SAFETY: a C string and the parameters by value.
        let model = unsafe { llama::llama_model_load_from_file(path.as_ptr(), params) };
        if model.is_null() {
            return Err(format!("llama.cpp does not load {}", file.display()).into());
        }
        // SAFETY: a live model.
        let vocab = unsafe { llama::llama_model_get_vocab(model) };
        Ok(Self { model, vocab })
    }

    pub fn size(&self) -> i32 {
        // SAFETY: live while the model is.
        unsafe { llama::llama_vocab_n_tokens(self.vocab) }
    }

    pub fn is_end_of_generation(&self, id: i32) -> bool {
        // SAFETY: live while the model is.
        unsafe { llama::llama_vocab_is_eog(self.vocab, id) }
    }

    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<i32>> {
        let (bytes, length) = (text.as_ptr().cast(), i32::try_from(text.len())?);
        let mut tokens = vec![0; text.len() + 8];
        let room = i32::try_from(tokens.len())?;
        // SAFETY: a live vocabulary, as many bytes as said, and room for as many tokens as said.
        let n = unsafe {
            llama::llama_tokenize(self.vocab, bytes, length, tokens.as_mut_ptr(), room, add_special, parse_special)
        };
        tokens.truncate(usize::try_from(n).map_err(|_| "llama.cpp has more tokens than bytes")?);
        Ok(tokens)
    }

    pub fn piece(&self, id: i32, show_special: bool) -> Result<Vec<u8>> {
        let mut piece = vec![0_u8; 1024];
        let (room, buffer) = (i32::try_from(piece.len())?, piece.as_mut_ptr().cast());
        // SAFETY: a live vocabulary, one of its tokens, and as much room as said.
        let n = unsafe { llama::llama_token_to_piece(self.vocab, id, buffer, room, 0, show_special) };
        piece.truncate(usize::try_from(n).map_err(|_| "a token of more than a kilobyte")?);
        Ok(piece)
    }
}

impl Drop for Vocabulary {
    fn drop(&mut self) {
        // SAFETY: live, and nothing uses it any more.
        unsafe { llama::llama_model_free(self.model) };
    }
}
