//! Queue, time, key, and end.

use ggml_llm::Architecture;
use serde_json::json;

use crate::server::{Server, parts, reply};

#[test]
fn what_the_queue_has_no_place_for_is_refused() {
    let server = Server::start(Architecture::Llama, &["--ctx", "2048", "--parallel", "1", "--queue", "2"]);
    let long = json!({ "prompt": "a", "max_tokens": 2000, "logit_bias": { "257": -100 } }).to_string();
    let send = || server.send("POST", "/v1/completions", "", long.as_bytes());
    let mut all = vec![send()];
    server.wait_for("one is computed", |s| s.metric("running") == 1);
    all.extend([send(), send()]);
    server.wait_for("two wait", |s| s.metric("waiting") == 2);
    let (status, body) = reply(send());
    assert!(status == 429 && body.contains("queue_full"), "{status} {body}");
    drop(all);
    server.wait_for("all are released", |s| s.metric("running") == 0 && s.metric("waiting") == 0);
    server.ask("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 }));
}

/// What waits gets an error, and what answers ends with what it has.
#[test]
fn requests_end_after_their_time() {
    let server = Server::start(Architecture::Mamba2, &["--parallel", "1", "--time-limit", "1"]);
    let long = json!({ "prompt": "a", "max_tokens": 100_000_000, "logit_bias": { "257": -100 } }).to_string();
    let first = server.send("POST", "/v1/completions", "", long.as_bytes());
    server.wait_for("one is computed", |s| s.metric("running") == 1);
    let second = server.send("POST", "/v1/completions", "", long.as_bytes());
    let (status, body) = reply(first);
    assert!(status == 200 && body.contains("\"finish_reason\":\"length\""), "{status} {body}");
    // It came later, so it may have had its turn.
    let (status, body) = reply(second);
    assert!(status == 200 || status == 503 && body.contains("timeout"), "{status} {body}");
}

#[test]
fn a_server_with_a_key_asks_for_it() {
    let server = Server::start(Architecture::Llama, &["--ctx", "256", "--api-key", "secret"]);
    assert_eq!(server.get("/health").0, 200);
    for (header, status) in [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: secret\r\n", 401),
        ("Authorization: Bearer secret2\r\n", 401),
        ("Authorization: Bearer secret\r\n", 200),
    ] {
        for path in ["/v1/models", "/metrics"] {
            let (got, body) = server.request("GET", path, header, b"");
            assert!(got == status && (status == 200) != body.contains("invalid_api_key"), "{header}: {got} {body}");
        }
    }
    assert_eq!(server.request("POST", "/v1/completions", "", b"{}").0, 401);
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_server_after_the_answers_under_way() {
    for (signals, whole) in [(&["TERM"][..], true), (&["INT"], true), (&["TERM", "INT"], false)] {
        let server = Server::start(Architecture::Llama, &["--ctx", "2048"]);
        let n = if whole { 300 } else { 2000 };
        let request =
            json!({ "prompt": "a", "max_tokens": n, "stream": true, "logit_bias": { "257": -100 } }).to_string();
        let stream = server.send("POST", "/v1/completions", "", request.as_bytes());
        server.wait_for("tokens come", |s| s.metric("generated_tokens_total") > 5);
        for signal in signals {
            server.signal(signal);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let (status, body) = reply(stream);
        let (_, done) = parts(&body);
        assert!(status == 200 && done == whole, "{signals:?}: {body}");
        let (well, said) = server.end();
        assert!(well && !said.contains("panick"), "{said}");
    }
}
