//! Mixtures of types: which type [`Mix`] gives each tensor, beside what llama.cpp's quantiser writes.

use std::path::Path;

use ggml::gguf::{Reader, Value};
use ggml_llm::Architecture;
use ggml_llm::made_up::Recipe;

use llama_reference::Result;

// Of the example `quantize`: its crate would bring much that isn't needed here.
#[path = "../../../examples/demos/src/mix.rs"]
mod mix;
use self::mix::Mix;

/// Of how many mixtures one is made of each model. Models come in pairs, so it is odd.
const EACH: usize = 5;

/// Models whose rows are whole blocks of 256, or of 32 only; with layers enough for all parts of a mixture, with heads that
/// share keys, with as many experts as mixtures ask about, with an output matrix or without.
fn recipes() -> Vec<Recipe> {
    let mut all = Vec::new();
    for &architecture in Architecture::ALL {
        let shapes = [(17, 256, 256, 4, 4, 8), (9, 256, 288, 8, 2, 4), (26, 128, 256, 4, 1, 16)];
        for (n_layer, n_embd, n_ff, n_head, n_head_kv, experts) in shapes {
            let mut recipe = Recipe::new(architecture);
            (recipe.n_layer, recipe.n_embd, recipe.n_ff) = (n_layer, n_embd, n_ff);
            (recipe.n_head, recipe.n_head_kv) = (n_head, n_head_kv);
            if matches!(architecture, Architecture::Qwen3Moe | Architecture::GptOss) {
                recipe.n_layer = 9; // they are large
                recipe.metadata.push(("expert_count".into(), Value::U32(experts)));
            }
            all.push(recipe.clone());
            match recipe.optional.iter().position(|name| name == "output.weight") {
                Some(at) => drop(recipe.optional.remove(at)),
                None => recipe.optional.push("output.weight".into()),
            }
            all.push(recipe);
        }
    }
    all
}

/// Compares all. Fails if a type differs.
pub fn check(folder: &Path) -> Result<()> {
    let (file, mixed) = (folder.join("whole.gguf"), folder.join("mixed.gguf"));
    let (mut files, mut tensors, mut differences) = (0, 0, 0);
    for (i, recipe) in recipes().into_iter().enumerate() {
        if let Err(error) = recipe.write(&file) {
            println!("mixes: {}: {error}", recipe.architecture);
            differences += 1;
            continue;
        }
        let whole = Reader::open(&file)?;
        // Each mixture with some of the models: to quantise all would take ten minutes.
        for mix in Mix::ALL.into_iter().skip(i % EACH).step_by(EACH) {
            llama_reference::quantize(&file, &mixed, mix.ftype)?;
            let ours = mix.types(&whole, false);
            let theirs = Reader::open(&mixed)?;
            files += 1;
            for t in theirs.tensors() {
                tensors += 1;
                let ours = ours.get(t.name()).copied().map_or_else(|| whole.tensor(t.name()).map(|t| t.dtype()), Ok)?;
                if ours != t.dtype() {
                    println!(
                        "mixes: {} {}: {}: {ours}, but llama.cpp's {}",
                        recipe.architecture,
                        mix.name,
                        t.name(),
                        t.dtype()
                    );
                    differences += 1;
                }
            }
        }
    }
    println!("mixes: files={files} tensors={tensors} differences={differences}");
    if differences == 0 { Ok(()) } else { Err(format!("{differences} tensors have other types").into()) }
}
