//! Requests that nobody should send.

use std::io::Write as _;

use ggml_llm::Architecture;
use serde_json::{Value, json};

use crate::server::{Server, reply};

#[test]
#[expect(clippy::too_many_lines, reason = "a list of requests")]
fn hostile_requests_are_refused_in_openais_form() {
    let mut server = Server::start(Architecture::Llama, &["--ctx", "256", "--body-limit", "100000"]);
    let deep = |open: &str, close: &str| [open.repeat(40_000), close.repeat(40_000)].concat();
    let text = |body: Value| body.to_string().into_bytes();
    let completion = |change: Value| {
        let mut request = json!({ "prompt": "a", "max_tokens": 1 });
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        text(request)
    };
    let bodies: Vec<(u16, &str, Vec<u8>)> = vec![
        (413, "more than 100000 bytes", vec![b' '; 100_001]),
        (400, "can't be read", Vec::new()),
        (400, "can't be read", b"\xff\xfe{".to_vec()),
        (400, "can't be read", b"{\"prompt\": \"\xc3\x28\"}".to_vec()),
        (400, "can't be read", b"{\"prompt\": \"\\ud800\"}".to_vec()),
        (400, "can't be read", deep("[", "]").into_bytes()),
        (400, "can't be read", deep("{\"prompt\":", "}").into_bytes()[..100_000].to_vec()),
        (400, "can't be read", [b"{\"prompt\":".to_vec(), deep("[", "]").into_bytes(), b"}".to_vec()].concat()),
        (400, "can't be read", text(json!([]))),
        (400, "missing field `prompt`", text(json!({}))),
        (400, "expected a string", completion(json!({ "prompt": 7 }))),
        (400, "expected a string", completion(json!({ "prompt": [1.5] }))),
        (400, "expected a string", completion(json!({ "prompt": [9_999_999_999_u64] }))),
        (400, "there is no token 258", completion(json!({ "prompt": [258] }))),
        (400, "there is no token -1", completion(json!({ "prompt": [1, -1] }))),
        (400, "no tokens", completion(json!({ "prompt": "" }))),
        (400, "for 0 texts", completion(json!({ "prompt": [] }))),
        (400, "for 200 texts", completion(json!({ "prompt": vec!["a"; 200] }))),
        (400, "the prompt has 300 tokens", completion(json!({ "prompt": "a".repeat(300) }))),
        (400, "-1", completion(json!({ "max_tokens": -1 }))),
        (400, "`max_tokens` is 0", completion(json!({ "max_tokens": 0 }))),
        (400, "invalid type", completion(json!({ "max_tokens": "1" }))),
        (400, "99999999999999", completion(json!({ "max_tokens": 99_999_999_999_999_u64 }))),
        (400, "`n` is 0", completion(json!({ "n": 0 }))),
        (400, "4294967295 texts", completion(json!({ "n": u32::MAX }))),
        (400, "temperature", completion(json!({ "temperature": -0.5 }))),
        (400, "temperature", br#"{"prompt": "a", "temperature": 1e300}"#.to_vec()),
        (400, "can't be read", br#"{"prompt": "a", "temperature": 1e999}"#.to_vec()),
        (400, "can't be read", br#"{"prompt": "a", "temperature": NaN}"#.to_vec()),
        (400, "top_p", completion(json!({ "top_p": 0 }))),
        (400, "logit_bias", completion(json!({ "logit_bias": { "x": 1 } }))),
        (400, "logit_bias", completion(json!({ "logit_bias": { "258": 1 } }))),
        (400, "logit_bias", completion(json!({ "logit_bias": { "-1": 1 } }))),
        (400, "stop strings", completion(json!({ "stop": vec!["a"; 17] }))),
        (400, "no `logprobs`", completion(json!({ "logprobs": 3 }))),
        (400, "no `echo`", completion(json!({ "echo": true }))),
        (404, "there is no model", completion(json!({ "model": "gpt-4" }))),
    ];
    let chat = |messages: Value| text(json!({ "messages": messages }));
    let chats: Vec<(u16, &str, Vec<u8>)> = vec![
        (400, "`messages` is empty", chat(json!([]))),
        (400, "missing field `role`", chat(json!([{ "content": "a" }]))),
        (400, "no `content`", chat(json!([{ "role": "user" }]))),
        (400, "role is", chat(json!([{ "role": "tool", "content": "a" }]))),
        (400, "image_url", chat(json!([{ "role": "user", "content": [{ "type": "image_url" }] }]))),
        (400, "expected a string, or a list", chat(json!([{ "role": "user", "content": 1 }]))),
        (400, "no `tools`", text(json!({ "messages": [{ "role": "user", "content": "a" }], "tools": [{}] }))),
    ];
    let embeddings = vec![
        (400, "no tokens", text(json!({ "input": "" }))),
        (400, "encoding_format", text(json!({ "input": "a", "encoding_format": "x" }))),
        (400, "no `dimensions`", text(json!({ "input": "a", "dimensions": 3 }))),
        (400, "the prompt has 257 tokens", text(json!({ "input": "a".repeat(257) }))),
    ];
    for (path, bodies) in [("completions", bodies), ("chat/completions", chats), ("embeddings", embeddings)] {
        for (status, why, body) in bodies {
            let (got, reply) = server.request("POST", &format!("/v1/{path}"), "", &body);
            let error: Value = serde_json::from_str(&reply).unwrap_or_else(|e| panic!("{why}: {e}: {reply}"));
            let message = error["error"]["message"].as_str().unwrap_or_else(|| panic!("{why}: {reply}"));
            assert!(got == status && message.contains(why), "{status} {why}: {got} {reply}");
            assert!(error["error"]["type"].is_string(), "{reply}");
        }
    }
    for (method, path, status) in
        [("GET", "/v1/nothing", 404), ("GET", "/v1/completions", 405), ("POST", "/health", 405)]
    {
        let (got, text) = server.request(method, path, "", b"");
        assert!(got == status && text.contains("\"error\""), "{method} {path}: {got} {text}");
    }
    // A length that lies, a head that never ends, and what is no HTTP.
    let mut stream = server.connect();
    stream.write_all(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 99999999999\r\n\r\n{}").unwrap();
    assert_eq!(reply(stream).0, 413);
    let mut stream = server.connect();
    let lines = format!("GET /health HTTP/1.0\r\n{}\r\n", "X-A: b\r\n".repeat(500));
    let _sent = stream.write_all(lines.as_bytes()).is_ok();
    assert_eq!(reply(stream).0, 431);
    let mut stream = server.connect();
    stream.write_all(&[0xff; 1000]).unwrap();
    assert_eq!(reply(stream).0, 400);
    // Nothing of this is left.
    assert_eq!(
        server.ask("/v1/completions", &json!({ "prompt": "a", "max_tokens": 2 }))["usage"]["completion_tokens"],
        2
    );
    // An answer may arrive before its cells are free.
    server.wait_for("all are released", |s| s.metric("running") == 0 && s.metric("waiting") == 0);
    assert!(server.is_running());
}
