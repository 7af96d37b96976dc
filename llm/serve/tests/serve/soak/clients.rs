//! Clients of all kinds.

use std::io::Read as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::many::{completion, prompts, text};
use crate::server::Server;

/// New tokens of each client that compares them.
const NEW: usize = 16;

/// What clients ask, and how much of it was right.
pub(crate) struct Clients {
    /// Prompts, and the texts that follow each if it is alone.
    known: Vec<(Vec<i32>, String)>,
    /// How many tokens were those of a client that is alone.
    pub(crate) same: usize,
    came: usize,
}

impl Clients {
    pub(crate) fn new(server: &Server) -> Self {
        let known = prompts(server, 32, NEW);
        let known = known.into_iter().map(|(prompt, tokens)| (prompt, text(server, &tokens))).collect();
        Self { known, same: 0, came: 0 }
    }

    /// Clients come for a time, and at least so many, `at_once` at a time. Returns how many came.
    pub(crate) fn come(&mut self, server: &Server, time: Duration, least: usize, at_once: usize) -> usize {
        let (start, first) = (Instant::now(), self.came);
        let (next, same) = (AtomicUsize::new(first), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= first + least && start.elapsed() >= time {
                            break;
                        }
                        same.fetch_add(self.client(server, i), Ordering::Relaxed);
                    }
                });
            }
        });
        // Each thread took a number that nobody had.
        self.came = next.into_inner() - at_once;
        self.same += same.into_inner();
        self.came - first
    }

    /// One client; returns how many tokens it compared.
    fn client(&self, server: &Server, i: usize) -> usize {
        match i % 8 {
            0 => vanish(server, i),
            1 => hostile(server, i),
            2 => schema(server, i),
            3 => {
                let list = server.ask("/v1/embeddings", &json!({ "input": ["one", "another text"] }));
                assert_eq!(list["data"].as_array().unwrap().len(), 2);
            }
            _ => return self.compare(server, i),
        }
        0
    }

    fn compare(&self, server: &Server, i: usize) -> usize {
        let (prompt, wanted) = &self.known[i / 8 % self.known.len()];
        let got = completion(server, prompt, NEW, i % 8 == 4);
        assert_eq!(&got, wanted, "client {i}");
        NEW
    }
}

/// Goes away while it waits, or after a part of the answer, or within the request.
fn vanish(server: &Server, i: usize) {
    let stream = i.is_multiple_of(16);
    let request = json!({ "prompt": format!("on and on {i}"), "max_tokens": 200, "stream": stream }).to_string();
    let bytes = if i.is_multiple_of(24) { &request.as_bytes()[..20] } else { request.as_bytes() };
    let mut connection = if bytes.len() == 20 {
        let mut half = server.connect();
        let head = format!("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n", request.len());
        std::io::Write::write_all(&mut half, head.as_bytes()).unwrap();
        half
    } else {
        server.send("POST", "/v1/completions", "", bytes)
    };
    if stream && bytes.len() > 20 {
        let _some = connection.read(&mut [0; 300]).is_ok();
    }
}

fn hostile(server: &Server, i: usize) {
    let bodies: [Vec<u8>; 6] = [
        b"{".to_vec(),
        vec![b'['; 50_000],
        br#"{"prompt": "a", "temperature": -1}"#.to_vec(),
        br#"{"prompt": [99999]}"#.to_vec(),
        b"{\"prompt\": \"\xff\"}".to_vec(),
        // Each such schema is another one.
        format!(
            r#"{{"prompt": "a", "response_format": {{"type": "json_schema", "json_schema": {{"schema":
            {{"type": "string", "pattern": "({i}"}}}}}}}}"#
        )
        .into_bytes(),
    ];
    let (status, body) = server.request("POST", "/v1/completions", "", &bodies[i / 8 % bodies.len()]);
    // As many schemas may wait as may.
    assert!(status == 400 || status == 429, "{status} {body}");
}

/// Some schemas, each of which comes again.
fn schema(server: &Server, i: usize) {
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [i / 8 % 20, "x"] } }, "required": ["n"],
        "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    let request = json!({ "prompt": "a", "max_tokens": 200, "response_format": format });
    let (status, body) = server.post("/v1/completions", &request);
    if status == 429 {
        return;
    }
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let choice = &answer["choices"][0];
    if choice["finish_reason"] == "stop" {
        let text = choice["text"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value["n"] == "x" || value["n"] == i / 8 % 20, "{text}");
    }
}
