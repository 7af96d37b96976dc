//! Many clients, and some that vanish.

use std::sync::Arc;
use std::thread;

use ggml::DType;
use ggml_llm::{Architecture, Batch, Model, ModelOptions, Session, SessionOptions};
use serde_json::{Value, json};

use crate::server::{Server, parts};

/// Where the two likeliest tokens are nearer, sums in another order may decide.
const CLEAR: f32 = 1e-3;

/// New tokens of each client.
const NEW: usize = 24;

/// The likeliest tokens after a prompt that is alone, or `None` if one isn't clear.
fn alone(session: &mut Session, prompt: &[i32], new: usize) -> Option<Vec<i32>> {
    session.truncate(0, 0).unwrap();
    let (mut batch, mut tokens) = (Batch::new(), Vec::new());
    batch.prompt(0, prompt);
    loop {
        session.decode(&batch).unwrap();
        // Without the token that ends an answer.
        let mut all: Vec<_> = session.logits(0).unwrap().iter().copied().zip(0..257).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        tokens.push(all[0].1);
        if all[0].0 - all[1].0 < CLEAR {
            return None;
        }
        if tokens.len() == new {
            return Some(tokens);
        }
        batch.clear();
        batch.push(0, all[0].1, true);
    }
}

fn session(server: &Server) -> Session {
    let model = Model::load(&server.file, &ModelOptions::default().with_kernels(false)).unwrap();
    let options = SessionOptions::default().with_n_ctx(512_usize).with_threads(1_usize).with_cache(DType::F32);
    Session::new(model, &options).unwrap()
}

/// `n` prompts of different lengths, half of which begin in the same way, with the `new` tokens that follow each
/// if it is alone.
pub(crate) fn prompts(server: &Server, n: usize, new: usize) -> Vec<(Vec<i32>, Vec<i32>)> {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut session = session(server);
    let beginning: Vec<i32> = (0..50).map(|_| rng.i32(0..256)).collect();
    let mut prompts = Vec::new();
    while prompts.len() < n {
        let mut prompt = if prompts.len() % 2 == 0 { beginning.clone() } else { Vec::new() };
        prompt.extend((0..rng.usize(1..40)).map(|_| rng.i32(0..256)));
        if let Some(tokens) = alone(&mut session, &prompt, new) {
            prompts.push((prompt, tokens));
        }
    }
    prompts
}

/// The text of tokens, as the server has it.
pub(crate) fn text(server: &Server, tokens: &[i32]) -> String {
    let reader = ggml::gguf::Reader::open(&server.file).unwrap();
    let tokenizer = ggml_llm::text::Tokenizer::from_gguf(&reader).unwrap();
    let mut stream = ggml_llm::text::TokenStream::new(&tokenizer);
    let mut text: String = tokens.iter().map(|&token| stream.push(token).unwrap().to_owned()).collect();
    text += stream.finish();
    text
}

/// The text after a prompt, of `new` tokens.
pub(crate) fn completion(server: &Server, prompt: &[i32], new: usize, streams: bool) -> String {
    let mut request = json!({ "prompt": prompt, "max_tokens": new, "temperature": 0, "stream": streams });
    request["logit_bias"] = json!({ "257": -100 });
    let (status, body) = server.post("/v1/completions", &request);
    assert_eq!(status, 200, "{body}");
    if streams {
        let (parts, done) = parts(&body);
        assert!(done, "{body}");
        parts.iter().filter_map(|part| part["choices"][0]["text"].as_str()).collect()
    } else {
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    }
}

fn check_all(architecture: Architecture, arguments: &[&str], clients: usize) {
    let server = Arc::new(Server::start(architecture, arguments));
    let prompts = prompts(&server, clients, NEW);
    let asked: Vec<_> = (prompts.into_iter().enumerate())
        .map(|(i, (prompt, tokens))| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                let got = completion(&server, &prompt, NEW, i % 3 == 0);
                assert_eq!(got, text(&server, &tokens), "client {i}");
            })
        })
        .collect();
    for client in asked {
        client.join().unwrap();
    }
    let generated = server.metric("generated_tokens_total");
    assert_eq!(generated, u64::try_from(clients * NEW).unwrap());
    // Several tokens were computed in a step, or this shows nothing.
    let steps = server.metric("steps_total");
    assert!(2 * steps < generated, "{steps} steps for {generated} tokens");
}

#[test]
fn sixty_four_clients_at_once_get_what_each_gets_alone() {
    check_all(Architecture::Llama, &["--ctx", "4096", "--parallel", "16", "--batch", "64"], 64);
}

#[test]
fn all_families_answer_several_clients() {
    for &architecture in Architecture::ALL {
        check_all(architecture, &["--ctx", "1024", "--parallel", "4"], 8);
    }
}

#[test]
fn prompts_that_begin_alike_share_their_cells() {
    let server = Server::start(Architecture::Llama, &["--ctx", "1024", "--parallel", "8"]);
    let beginning = "a long beginning that all have, ".repeat(6);
    // All at once: the first is computed, and the others wait for it.
    let requests: Vec<_> = (0..8).map(|i| format!("{beginning}{i}")).collect();
    let answer = server.ask("/v1/completions", &json!({ "prompt": requests, "max_tokens": 4 }));
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached, 7 * beginning.len() as u64);
    // 8 texts of 197 tokens at least would not fit into 1024 cells.
    assert!(server.metric("room_tokens") > 700);
    // A chat that goes on.
    let again = format!("{beginning}3 and more");
    let answer = server.ask("/v1/completions", &json!({ "prompt": again, "max_tokens": 4 }));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], beginning.len() + 1);
}

#[test]
fn clients_that_vanish_free_their_cells() {
    let arguments = ["--ctx", "2048", "--parallel", "4"];
    let server = Server::start(Architecture::Llama, &arguments);
    for round in 1..=3 {
        let request = |stream: bool| {
            json!({ "prompt": "on and on", "max_tokens": 500, "stream": stream, "logit_bias": { "257": -100 } })
                .to_string()
        };
        // Some are computed and some wait; some read what comes.
        let gone: Vec<_> =
            (0..12).map(|i| server.send("POST", "/v1/completions", "", request(i % 2 == 0).as_bytes())).collect();
        server.wait_for("some are computed", |s| s.metric("running") > 0);
        drop(gone);
        server.wait_for("all are released", |s| s.metric("running") == 0 && s.metric("waiting") == 0);
        let cancelled = server.metric("cancelled_total");
        assert!(cancelled > 12 * round - 12 && cancelled <= 12 * round, "{cancelled}");
        server.wait_for("all cells are free", |s| s.metric("room_tokens") == 2048);
    }
    // Half a request.
    let mut half = server.connect();
    std::io::Write::write_all(&mut half, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{").unwrap();
    drop(half);
    assert_eq!(
        server.ask("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2 }))["usage"]["completion_tokens"],
        2
    );
}
