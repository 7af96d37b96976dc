//! llama.cpp, by `llama-cpp-sys-2`, and the crate `ggml` in one program, over one installed ggml: shows that there is one
//! copy, that both have the same state, that a model which one writes is computed alike by both, and that llama.cpp's client
//! computes on this crate's RPC server what it does on ggml's.
//!
//! `cargo xtask interop` builds and runs it. A path as its argument is a library that is loaded besides: to see that a
//! second copy is noticed.

mod copies;
mod llama;
mod model;
mod remote;
mod state;

use std::path::Path;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How far the two may be apart in a logit: they add up in other orders.
const TOLERANCE: f32 = 1e-4;

fn main() -> ExitCode {
    match interop() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn interop() -> Result<()> {
    if let Some(path) = std::env::args_os().nth(1) {
        copies::load(Path::new(&path))?;
    }
    let copies = copies::count()?;
    if copies.len() != 1 {
        return Err(format!("copies={}: {copies:?}", copies.len()).into());
    }
    let llama = llama::Llama::start();
    let registries = state::same_registries(&llama)?;
    state::same_logger()?;
    let file = std::env::temp_dir().join(format!("ggml-interop-{}.gguf", std::process::id()));
    model::write(&file)?;
    let computed = both(&llama, &file);
    // The system clears the folder if this cannot.
    let _removed = std::fs::remove_file(&file);
    let (ours, theirs, remote) = computed?;
    let apart = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    if ours.len() != theirs.len() || apart.is_nan() || apart > TOLERANCE {
        return Err(format!("the logits differ by {apart}:\n{ours:?}\n{theirs:?}").into());
    }
    println!(
        "interop: ggml={} copies=1 in {} logger=shared registries={} logits={} max_abs_diff={apart:e} \
         remote_logits={remote} differing=0",
        ggml::version(),
        copies.iter().map(String::as_str).collect::<String>(),
        registries.join(","),
        ours.len()
    );
    Ok(())
}

/// The logits that this crate and llama.cpp compute from the model in a file, and how many llama.cpp computes on servers.
fn both(llama: &llama::Llama, file: &Path) -> Result<(Vec<f32>, Vec<f32>, usize)> {
    let ours = model::compute(file)?;
    let theirs = llama.logits(file, model::TOKEN)?;
    Ok((ours, theirs, remote::same_logits(llama, file)?))
}
