//! What answers look like, and what options do.

use ggml_llm::Architecture;
use serde_json::{Value, json};

use crate::server::{Server, parts};

#[test]
fn answers_have_the_form_of_openais() {
    let server = Server::start(Architecture::Llama, &["--ctx", "1024"]);
    assert_eq!(server.get("/health"), (200, r#"{"status":"ok"}"#.into()));
    let models: Value = serde_json::from_str(&server.get("/v1/models").1).unwrap();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("made-up")));
    assert_eq!(server.get("/v1/models/made-up").0, 200);

    let request = json!({ "model": "made-up", "prompt": "some text", "max_tokens": 7, "temperature": 0, "logit_bias": { "257": -100 } });
    let whole = server.ask("/v1/completions", &request);
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["finish_reason"]),
        (&json!("text_completion"), &json!("length"))
    );
    let text = whole["choices"][0]["text"].as_str().unwrap();
    let usage = &whole["usage"];
    assert_eq!([&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]], [9, 7, 16]);

    // Streamed, the same text comes in parts.
    let mut streamed = request;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let (status, body) = server.post("/v1/completions", &streamed);
    let (parts_of, done) = parts(&body);
    assert!(status == 200 && done, "{body}");
    let joined: String = parts_of.iter().filter_map(|part| part["choices"][0]["text"].as_str()).collect();
    assert_eq!(joined, text);
    assert_eq!(parts_of[parts_of.len() - 2]["choices"][0]["finish_reason"], "length");
    assert_eq!(parts_of.last().unwrap()["usage"]["completion_tokens"], 7);

    let messages = json!([{ "role": "system", "content": "be short" },
        { "role": "user", "content": [{ "type": "text", "text": "hell" }, { "type": "text", "text": "o" }] }]);
    let request = json!({ "messages": messages, "max_completion_tokens": 5, "temperature": 0, "n": 2 });
    let whole = server.ask("/v1/chat/completions", &request);
    // The template's text, of which each special token is one.
    assert_eq!((&whole["object"], &whole["usage"]["prompt_tokens"]), (&json!("chat.completion"), &json!(2 * 30)));
    let choices = whole["choices"].as_array().unwrap();
    assert!(
        choices.len() == 2 && choices[0]["message"] == choices[1]["message"] && choices[1]["index"] == 1,
        "{whole}"
    );
    let mut streamed = request;
    (streamed["stream"], streamed["n"]) = (true.into(), 1.into());
    let (parts_of, done) = parts(&server.post("/v1/chat/completions", &streamed).1);
    assert!(done && parts_of[0]["choices"][0]["delta"]["role"] == "assistant", "{parts_of:?}");
    let joined: String = parts_of.iter().filter_map(|part| part["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, choices[0]["message"]["content"].as_str().unwrap());
}

#[test]
fn embeddings_are_the_last_layers_and_have_the_length_1() {
    use ggml_llm::{Batch, Model, ModelOptions, Session, SessionOptions};
    let server = Server::start(Architecture::Qwen3, &["--ctx", "512", "--batch", "8"]);
    let texts = ["a text that is longer than a batch", "another", "another"];
    let list = server.ask("/v1/embeddings", &json!({ "input": texts }));
    assert_eq!(list["usage"]["total_tokens"], 34 + 7 + 7);
    let model = Model::load(&server.file, &ModelOptions::default().with_kernels(false)).unwrap();
    let options = SessionOptions::default().with_n_ctx(256_usize).with_threads(1_usize);
    let mut session = Session::new(model, &options).unwrap();
    for (i, text) in texts.iter().enumerate() {
        let mut batch = Batch::new();
        batch.prompt(0, &text.bytes().map(i32::from).collect::<Vec<_>>());
        session.embed(&batch).unwrap();
        let own = session.embedding(0).unwrap().to_vec();
        assert!(session.logits(0).is_none());
        session.truncate(0, 0).unwrap();
        let length = own.iter().map(|x| x * x).sum::<f32>().sqrt();
        let served: Vec<f32> = serde_json::from_value(list["data"][i]["embedding"].clone()).unwrap();
        assert!(served.len() == own.len() && served.len() == 64, "{}", served.len());
        let apart = served.iter().zip(&own).map(|(a, b)| (a - b / length).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-3, "{apart}");
    }
    // Little-endian floats, four bytes each.
    let coded = server.ask("/v1/embeddings", &json!({ "input": "another", "encoding_format": "base64" }));
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), (64_usize * 4).div_ceil(3) * 4);
}

#[test]
fn options_change_what_is_answered() {
    let server = Server::start(Architecture::Llama, &["--ctx", "1024"]);
    let ask = |change: Value| {
        let mut request =
            json!({ "prompt": "some text", "max_tokens": 40, "temperature": 0, "logit_bias": { "257": -100 } });
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = server.ask("/v1/completions", &request);
        let choice = &answer["choices"][0];
        (choice["text"].as_str().unwrap().to_owned(), choice["finish_reason"].as_str().unwrap().to_owned())
    };
    let (plain, _) = ask(json!({}));
    // A stop string ends the text before it, though it comes in several tokens.
    let stop: String = plain.chars().skip(5).take(3).collect();
    let before = plain.split(&stop).next().unwrap();
    assert_eq!(ask(json!({ "stop": ["never there", stop] })), (before.to_owned(), "stop".into()));
    // A bias that only leaves one token.
    assert_eq!(ask(json!({ "logit_bias": { "65": 100 }, "max_tokens": 3 })), ("AAA".into(), "length".into()));
    // Drawn, a seed decides.
    let drawn = |seed| ask(json!({ "temperature": 2.0, "seed": seed })).0;
    assert!(drawn(1) == drawn(1) && drawn(1) != drawn(2));
    // Prompts as tokens, and several.
    assert_eq!(ask(json!({ "prompt": "some text".bytes().collect::<Vec<_>>() })).0, plain);
    let two = server.ask("/v1/completions", &json!({ "prompt": ["a", "b"], "max_tokens": 1 }));
    assert_eq!(two["choices"].as_array().unwrap().len(), 2);
}

#[test]
fn special_tokens_and_templates_are_options_of_the_server() {
    let template = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(template.path(), "{{ messages[0].content }}!").unwrap();
    let path = template.path().to_str().unwrap();
    let server = Server::start(Architecture::Llama, &["--ctx", "256", "--special", "--chat-template", path]);
    let answer = server.ask("/v1/completions", &json!({ "prompt": "a<|begin|>b", "max_tokens": 1 }));
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    let request = json!({ "messages": [{ "role": "user", "content": "hey" }], "max_tokens": 1 });
    assert_eq!(server.ask("/v1/chat/completions", &request)["usage"]["prompt_tokens"], 4);
}
