//! Answers in the form of JSON schemas, and schemas that nobody should send.

use std::time::{Duration, Instant};

use ggml_llm::Architecture;
use serde_json::{Value, json};

use crate::many::{prompts, text};
use crate::server::Server;

/// What it says is short, so that a model with random weights comes to an end.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 8 },
            "kind": { "enum": ["cat", "dog"] },
            "age": { "type": "integer", "minimum": 0, "maximum": 99 },
            "tags": { "type": "array", "items": { "type": "boolean" }, "maxItems": 3 },
        },
        "required": ["name", "kind", "age"],
        "additionalProperties": false,
    })
}

/// What a validator would say, for this schema.
fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
    let map = value.as_object().unwrap_or_else(|| panic!("{text}"));
    assert!(map.keys().all(|key| ["name", "kind", "age", "tags"].contains(&&**key)), "{text}");
    assert!(map["name"].as_str().unwrap().chars().count() <= 8, "{text}");
    assert!(["cat", "dog"].contains(&map["kind"].as_str().unwrap()), "{text}");
    assert!(map["age"].as_u64().unwrap() <= 99, "{text}");
    let tags = map.get("tags").map(|tags| tags.as_array().unwrap().clone()).unwrap_or_default();
    assert!(tags.len() <= 3 && tags.iter().all(Value::is_boolean), "{text}");
}

fn format(schema: &Value) -> Value {
    json!({ "type": "json_schema", "json_schema": { "name": "pet", "strict": true, "schema": schema } })
}

/// Random weights, and drawn tokens.
fn constrained(format: &Value, seed: u64, max: usize) -> Value {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    json!({ "messages": messages, "max_tokens": max, "temperature": 1, "seed": seed, "response_format": format })
}

#[test]
fn answers_are_what_the_schema_describes() {
    let server = Server::start(Architecture::Llama, &["--ctx", "2048"]);
    for seed in 0..20 {
        let answer = server.ask("/v1/chat/completions", &constrained(&format(&schema()), seed, 400));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{answer}");
        check(choice["message"]["content"].as_str().unwrap());
    }
    // Any object is one; it may be longer than the answer.
    let mut whole = 0;
    for seed in 0..20 {
        let answer = server.ask("/v1/chat/completions", &constrained(&json!({ "type": "json_object" }), seed, 400));
        let (text, reason) = (&answer["choices"][0]["message"]["content"], &answer["choices"][0]["finish_reason"]);
        let text = text.as_str().unwrap();
        assert!(text.starts_with('{'), "{text}");
        if reason == "stop" {
            whole += 1;
            assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
        }
    }
    assert!(whole > 0, "none came to its end");
    let text = server.ask("/v1/chat/completions", &constrained(&json!({ "type": "text" }), 1, 50));
    assert!(serde_json::from_str::<Value>(text["choices"][0]["message"]["content"].as_str().unwrap()).is_err());
}

/// Beside clients with schemas, the tokens of others are those that each gets alone.
#[test]
fn a_schema_is_nothing_to_other_clients() {
    let server = Server::start(Architecture::Llama, &["--ctx", "4096", "--parallel", "8"]);
    let prompts = prompts(&server, 8, 40);
    std::thread::scope(|scope| {
        for (i, (prompt, tokens)) in prompts.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let request = json!({ "prompt": prompt, "max_tokens": 40, "temperature": 0,
                    "logit_bias": { "257": -100 } });
                let answer = server.ask("/v1/completions", &request);
                assert_eq!(answer["choices"][0]["text"], text(server, tokens));
            });
            scope.spawn(move || {
                let answer = server.ask("/v1/chat/completions", &constrained(&format(&schema()), i as u64, 400));
                check(answer["choices"][0]["message"]["content"].as_str().unwrap());
            });
        }
    });
}

/// A chain of definitions, each of which has the one before twice.
fn doubling(key: &str) -> Value {
    let mut definitions = json!({ "d0": { "type": "object", "properties": { "a": { "type": "string" } } } });
    for i in 1..40 {
        let one = json!({ "$ref": format!("#/$defs/d{}", i - 1) });
        definitions[format!("d{i}")] = json!({ key: [one, one] });
    }
    json!({ "$defs": definitions, "$ref": "#/$defs/d39" })
}

#[test]
fn hostile_schemas_are_refused_and_others_go_on() {
    let mut server = Server::start(Architecture::Llama, &["--ctx", "1024"]);
    let pattern = |text: String| json!({ "type": "string", "pattern": text });
    let deep = |open: &str, close: &str, n: usize| format!("{}a{}", open.repeat(n), close.repeat(n));
    let nested =
        (0..7).fold(json!({ "type": "null" }), |inner, _| json!({ "allOf": [inner], "anyOf": [inner, inner] }));
    let refused: Vec<(&str, Value)> = vec![
        ("no object", json!(7)),
        ("nothing is allowed", json!(false)),
        ("unknown type", json!({ "type": "cat" })),
        ("no such reference", json!({ "$ref": "#/$defs/none" })),
        ("another file", json!({ "$ref": "https://example.com/schema.json" })),
        ("contradiction", json!({ "type": "integer", "minimum": 3, "maximum": 2 })),
        ("wrong pattern", pattern("(".into())),
        ("long", json!({ "enum": vec!["x".repeat(200); 5000] })),
    ];
    // Some may be harmless to the crate that compiles them: an answer or a refusal, but within a time.
    let either: Vec<(&str, Value)> = vec![
        ("pattern, 10^9 times", pattern("((((((((a{10}){10}){10}){10}){10}){10}){10}){10}){10}".into())),
        ("pattern, deep", pattern(deep("(", ")*", 20_000))),
        ("pattern, doubling", pattern(format!("({})$", "(a|b)*a(a|b){30}".repeat(50)))),
        ("doubling", doubling("allOf")),
        ("nested", nested),
        ("its own reference", json!({ "$ref": "#" })),
        ("any of doubling", doubling("anyOf")),
        ("long string", json!({ "type": "string", "minLength": 100_000 })),
        ("many items", json!({ "type": "array", "items": { "type": "null" }, "minItems": 1_000_000 })),
        ("many choices", json!({ "enum": (0..8000).map(|i| format!("{i:07}")).collect::<Vec<_>>() })),
        (
            "many properties",
            json!({ "type": "object", "properties":
            (0..2000).map(|i| (format!("p{i}"), json!({}))).collect::<serde_json::Map<_, _>>() }),
        ),
        (
            "patterns",
            json!({ "type": "object", "patternProperties":
            (0..60).map(|i| (format!("(a|b)*{i}(a|b){{{i}}}"), json!({}))).collect::<serde_json::Map<_, _>>() }),
        ),
    ];
    std::thread::scope(|scope| {
        let server = &server;
        // Others are served meanwhile, each within seconds.
        let others = scope.spawn(move || {
            for _ in 0..100 {
                let start = Instant::now();
                server.ask("/v1/completions", &json!({ "prompt": "a", "max_tokens": 3 }));
                assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for (must, schemas) in [(true, refused), (false, either)] {
            for (what, schema) in schemas {
                let start = Instant::now();
                let (status, body) = server.post("/v1/chat/completions", &constrained(&format(&schema), 1, 20));
                let time = start.elapsed();
                eprintln!("{what}: {status} after {time:?}: {}", body.chars().take(200).collect::<String>());
                assert!(status == 400 || status == 200 && !must, "{what}: {status} {body}");
                assert!(time < Duration::from_secs(30), "{what}: {time:?}");
            }
        }
        others.join().unwrap();
    });
    for (why, format) in
        [("expected \"text\"", json!({ "type": "xml" })), ("has no `json_schema", json!({ "type": "json_schema" }))]
    {
        let (status, body) = server.post("/v1/chat/completions", &constrained(&format, 1, 9));
        assert!(status == 400 && body.contains(why.replace('"', "\\\"").as_str()), "{status} {body}");
    }
    server.wait_for("all are released", |s| s.metric("running") == 0 && s.metric("waiting") == 0);
    assert!(server.is_running());
}
