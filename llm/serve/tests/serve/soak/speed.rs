//! Tokens per second, with 1, 8 and 32 clients.

use std::time::Instant;

use ggml::DType;
use ggml_llm::Architecture;
use ggml_llm::made_up::Recipe;
use serde_json::json;

use crate::server::{Server, write};

/// New tokens of each client.
const NEW: usize = 64;

#[test]
#[ignore = "cargo xtask serve-check --speed runs it"]
fn speed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made-up.gguf");
    let recipe = Recipe::new(Architecture::Llama).with_dtype(DType::Q8_0).with_n_layer(12_u32).with_n_embd(768_u32);
    write(recipe.with_n_ff(2304_u32).with_n_head(12_u32).with_n_head_kv(4_u32).with_n_ctx(4096_u32), &file);
    let server = Server::of(folder, file, &["--ctx", "8192", "--parallel", "32"]);
    for clients in [1, 8, 32] {
        // The second time counts: plans are made, and memory is touched.
        let [_, rate] = [(); 2].map(|()| rate(&server, clients));
        println!("serve-check speed: clients={clients} new_tokens={NEW} tokens_per_second={rate:.1}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn rate(server: &Server, clients: usize) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for i in 0..clients {
            scope.spawn(move || {
                let request = json!({ "prompt": format!("{i} is the number of this client"), "max_tokens": NEW,
                    "temperature": 0, "logit_bias": { "257": -100 } });
                let answer = server.ask("/v1/completions", &request);
                assert_eq!(answer["usage"]["completion_tokens"], NEW);
            });
        }
    });
    (clients * NEW) as f64 / start.elapsed().as_secs_f64()
}
