//! llama.cpp, through the crate that also provides this project's ggml sources.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::slice;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use llama_cpp_sys_2 as sys;
use wire::Engine;

/// The maximum number of tokens computed at once.
const MOST: u32 = 32 * 256;

#[derive(Parser)]
struct Cli {
    #[arg(long)]
    model: PathBuf,
    #[arg(long)]
    threads: i32,
}

struct Llama {
    context: NonNull<sys::llama_context>,
    width: usize,
    /// The fastest number of sentences per call, measured when a shape occurs for the first time.
    best: HashMap<(usize, usize), usize>,
}

impl Llama {
    fn open(cli: &Cli) -> Result<Self> {
        unsafe extern "C" fn silent(_: sys::ggml_log_level, _: *const c_char, _: *mut c_void) {}
        let path = CString::new(cli.model.to_str().context("a path of other than UTF-8")?)?;
        // SAFETY: the functions as their header describes them: the model and the context live until the process ends.
        unsafe {
            sys::llama_log_set(Some(silent), std::ptr::null_mut());
            sys::llama_backend_init();
            let model = sys::llama_model_load_from_file(path.as_ptr(), sys::llama_model_default_params());
            ensure!(!model.is_null(), "llama.cpp can't read {}", cli.model.display());
            let mut params = sys::llama_context_default_params();
            params.embeddings = true;
            (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max) = (MOST, MOST, MOST, 32);
            (params.n_threads, params.n_threads_batch) = (cli.threads, cli.threads);
            params.flash_attn_type = sys::LLAMA_FLASH_ATTN_TYPE_ENABLED;
            params.no_perf = true;
            let context = sys::llama_init_from_model(model, params);
            let context = NonNull::new(context).context("llama.cpp makes no context")?;
            let width = usize::try_from(sys::llama_model_n_embd(model))?;
            Ok(Self { context, width, best: HashMap::new() })
        }
    }

    /// Computes these sentences in one call.
    fn call(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>> {
        let total: usize = sentences.iter().map(Vec::len).sum();
        ensure!(total <= MOST as usize, "{total} tokens are too many");
        // SAFETY: the batch has room for `total` tokens, of one sequence each, and is filled below that; vectors of a
        // sequence have the model's width and live until the next call.
        unsafe {
            let mut batch = sys::llama_batch_init(i32::try_from(total)?, 0, 1);
            let mut i = 0;
            for (sequence, sentence) in sentences.iter().enumerate() {
                for (position, &token) in sentence.iter().enumerate() {
                    *batch.token.add(i) = token;
                    *batch.pos.add(i) = i32::try_from(position)?;
                    *batch.n_seq_id.add(i) = 1;
                    **batch.seq_id.add(i) = i32::try_from(sequence)?;
                    *batch.logits.add(i) = 1;
                    i += 1;
                }
            }
            batch.n_tokens = i32::try_from(i)?;
            let status = sys::llama_encode(self.context.as_ptr(), batch);
            sys::llama_batch_free(batch);
            ensure!(status == 0, "llama_encode returned {status}");
            let vector = |sequence: usize| {
                let numbers = sys::llama_get_embeddings_seq(self.context.as_ptr(), i32::try_from(sequence)?);
                ensure!(!numbers.is_null(), "sequence {sequence} has no vector");
                let numbers = slice::from_raw_parts(numbers, self.width);
                let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
                Ok(numbers.iter().map(|x| x / length).collect())
            };
            (0..sentences.len()).map(vector).collect()
        }
    }

    fn calls(&mut self, sentences: &[Vec<i32>], at_once: usize) -> Result<Vec<Vec<f32>>> {
        let mut vectors = Vec::with_capacity(sentences.len());
        for sentences in sentences.chunks(at_once) {
            vectors.extend(self.call(sentences)?);
        }
        Ok(vectors)
    }

    /// Measures it: each token attends to all sentences of a call, so fewer at once may be faster.
    fn find_best(&mut self, sentences: &[Vec<i32>]) -> Result<usize> {
        let mut best = (f64::INFINITY, 1);
        for at_once in [1, 2, 4, 8, 16, 32].into_iter().filter(|&n| n <= sentences.len()) {
            self.calls(sentences, at_once)?;
            let start = Instant::now();
            self.calls(sentences, at_once)?;
            let seconds = start.elapsed().as_secs_f64();
            if seconds < best.0 {
                best = (seconds, at_once);
            }
        }
        Ok(best.1)
    }
}

impl Engine for Llama {
    fn embed(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>> {
        let shape = (sentences.len(), sentences.iter().map(Vec::len).max().unwrap_or(0));
        let at_once = match self.best.get(&shape) {
            Some(&n) => n,
            None => {
                let n = self.find_best(sentences)?;
                self.best.insert(shape, n);
                n
            }
        };
        self.calls(sentences, at_once)
    }
}

fn main() -> Result<()> {
    wire::serve(Llama::open(&Cli::parse())?)
}
