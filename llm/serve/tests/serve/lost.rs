//! Servers with layers that are lost.

use std::thread;
use std::time::{Duration, Instant};

use ggml_llm::Architecture;
use serde_json::{Value, json};
use testkit::server::ServerProcess;

use crate::many::{prompts, text};
use crate::server::{Server, reply};

/// New tokens of each client.
const NEW: usize = 80;

/// The most time from the loss to the last answer. It takes a second where nothing else runs.
const BOUND: Duration = Duration::from_secs(60);

/// With a thread each: others would wait for it, and take the processors meanwhile.
fn servers() -> [ServerProcess; 2] {
    [(); 2].map(|()| ServerProcess::of_threads(1))
}

/// A server with a layer on each of two RPC servers.
fn start(architecture: Architecture, servers: [&ServerProcess; 2], arguments: &[&str]) -> Server {
    let [first, second] = servers.map(|server| server.address.to_string());
    // Each RPC server has two devices. They have ggml's kernels, and don't repack; others round otherwise.
    let devices = ["--rpc", &first, "--rpc", &second, "--split", "1,0,1,0", "--no-repack"];
    Server::start(architecture, &[&["--ctx", "2048", "--parallel", "4"], &devices[..], arguments].concat())
}

fn request(prompt: &[i32]) -> Value {
    json!({ "prompt": prompt, "max_tokens": NEW, "temperature": 0, "logit_bias": { "257": -100 } })
}

/// All texts go on where they were, and so do those that wait and those that come later.
#[test]
fn answers_go_on_when_a_server_is_lost() {
    for architecture in [Architecture::Llama, Architecture::Mamba2] {
        let [first, mut second] = servers();
        let mut server = start(architecture, [&first, &second], &[]);
        let prompts = prompts(&server, 8, NEW);
        let send = |prompt: &[i32]| server.send("POST", "/v1/completions", "", request(prompt).to_string().as_bytes());
        let asked: Vec<_> = prompts.iter().map(|(prompt, _)| send(prompt)).collect();
        server.wait_for("all answer or wait", |s| s.metric("running") == 4 && s.metric("generated_tokens_total") > 20);
        second.kill();
        let start = Instant::now();
        for (stream, (prompt, tokens)) in asked.into_iter().zip(&prompts) {
            let (status, body) = reply(stream);
            assert_eq!(status, 200, "{architecture}: {body}");
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(answer["choices"][0]["text"], text(&server, tokens), "{architecture}: {prompt:?}");
        }
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
        assert_eq!(server.metric("lost_total"), 1);
        let answer = server.ask("/v1/completions", &request(&prompts[0].0));
        assert_eq!(answer["choices"][0]["text"], text(&server, &prompts[0].1));
        assert!(server.is_running());
    }
}

/// A loss that shows when nobody is there: before a text is computed, where what is left of others is removed.
#[test]
fn a_server_that_is_lost_between_answers_is_not_missed() {
    for architecture in [Architecture::Llama, Architecture::Mamba2] {
        let [first, mut second] = servers();
        let server = start(architecture, [&first, &second], &[]);
        let prompts = prompts(&server, 5, NEW);
        let ask = |n: usize| {
            let (status, body) = server.post("/v1/completions", &request(&prompts[n].0));
            assert_eq!(status, 200, "{architecture}: {body}");
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(answer["choices"][0]["text"], text(&server, &prompts[n].1), "{architecture}");
        };
        // All sequences have something of an earlier text.
        (0..4).for_each(ask);
        second.kill();
        ask(4);
        let embedding = server.ask("/v1/embeddings", &json!({ "input": "hello" }));
        assert_eq!(embedding["data"][0]["embedding"].as_array().unwrap().len(), 64);
        assert_eq!(server.metric("lost_total"), 1);
    }
}

/// Nothing is left but the CPU, and clients come all the time.
#[test]
fn all_servers_can_be_lost() {
    let [mut first, mut second] = servers();
    let server = start(Architecture::Llama, [&first, &second], &[]);
    let prompts = prompts(&server, 4, NEW);
    thread::scope(|scope| {
        for (prompt, tokens) in &prompts {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..8 {
                    let answer = server.ask("/v1/completions", &request(prompt));
                    assert_eq!(answer["choices"][0]["text"], text(server, tokens));
                }
            });
        }
        server.wait_for("some are answered", |s| s.metric("generated_tokens_total") > 2 * NEW as u64);
        first.kill();
        server.wait_for("the loss is noticed", |s| s.metric("lost_total") == 1);
        let then = server.metric("generated_tokens_total");
        server.wait_for("it goes on", |s| s.metric("generated_tokens_total") > then + 20);
        second.kill();
    });
    assert_eq!(server.metric("lost_total"), 2);
}

/// It neither answers nor closes its connection.
#[cfg(unix)]
#[test]
fn a_server_that_hangs_is_lost_after_its_time() {
    let [first, second] = servers();
    let server = start(Architecture::Llama, [&first, &second], &["--rpc-timeout", "2"]);
    let (prompt, tokens) = &prompts(&server, 1, NEW)[0];
    let stream = server.send("POST", "/v1/completions", "", request(prompt).to_string().as_bytes());
    server.wait_for("it answers", |s| s.metric("generated_tokens_total") > 5);
    second.stop();
    let start = Instant::now();
    let (status, body) = reply(stream);
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["choices"][0]["text"], text(&server, tokens));
    assert!(start.elapsed() < BOUND && server.metric("lost_total") == 1, "{:?}", start.elapsed());
}
