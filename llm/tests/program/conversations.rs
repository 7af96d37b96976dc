//! Conversations that are saved and loaded.

use std::path::Path;

use ggml_llm::Architecture;
use serde_json::Value;

use crate::{SMALL, model, run, text};

/// What a chat says to standard error, after it went well.
fn chat(file: &Path, arguments: &[&str], input: &str) -> String {
    let output = run("chat", file, &[SMALL, &["-n", "3"], arguments].concat(), input);
    text(&output);
    String::from_utf8(output.stderr).unwrap()
}

fn messages(path: &Path) -> Vec<Value> {
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    value["messages"].as_array().unwrap().clone()
}

/// The number of tokens of the last prompt, all of which are computed where a program begins anew.
fn prompt(said: &str) -> usize {
    said.rsplit("[prompt: ").next().unwrap().split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{said}"))
}

#[test]
fn a_conversation_goes_on_in_another_process() {
    let file = model(Architecture::Llama);
    let saved = file.path.with_extension("json");
    let name = saved.to_str().unwrap();
    chat(&file.path, &["--conversation", name, "--system", "be short"], "hello\n");
    let first = messages(&saved);
    assert_eq!(first.iter().map(|m| m["role"].as_str().unwrap()).collect::<Vec<_>>(), ["system", "user", "assistant"]);
    let said = chat(&file.path, &["--conversation", name, "--system", "not this"], "again\n");
    let second = messages(&saved);
    assert!(second.len() == 5 && second[..3] == first[..], "{second:?}");
    assert_eq!(second[3]["content"], "again");
    assert!(prompt(&said) > "be shorthelloagain".len(), "{said}");

    // By commands in the chat: what was said in between is replaced.
    let other = file.path.with_extension("other.json");
    let lines = format!("one\n/save {0}\ntwo\n/load {0}\nthree\n/save {0}\n", other.display());
    let said = chat(&file.path, &[], &lines);
    assert!(said.contains("[2 messages saved]") && said.contains("[2 messages loaded]"), "{said}");
    let users: Vec<_> = messages(&other).into_iter().filter(|m| m["role"] == "user").collect();
    assert_eq!(users.iter().map(|m| m["content"].as_str().unwrap()).collect::<Vec<_>>(), ["one", "three"]);
    // A space makes a message of it.
    assert!(!chat(&file.path, &[], " /save nowhere\n").contains("saved"));
}

#[test]
fn a_damaged_or_foreign_file_loses_nothing() {
    let file = model(Architecture::Llama);
    let path = |name: &str| file.path.with_extension(name);
    let (good, bad) = (path("good.json"), path("bad.json"));
    chat(&file.path, &[], &format!("hello\n/save {}\n", good.display()));
    let bytes = std::fs::read(&good).unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "damaged"),
        (bytes[..bytes.len() / 2].to_vec(), "damaged"),
        (b"\xff\x00".to_vec(), "damaged"),
        (b"[1, 2]".to_vec(), "no conversation"),
        (b"{\"messages\": []}".to_vec(), "no conversation"),
        (b"{\"ggml-llm conversation\": 2, \"messages\": []}".to_vec(), "version is 2"),
        (b"{\"ggml-llm conversation\": 1}".to_vec(), "no list"),
        (b"{\"ggml-llm conversation\": 1, \"messages\": [{\"role\": \"user\"}]}".to_vec(), "message 0"),
    ];
    for (bytes, why) in cases {
        std::fs::write(&bad, &bytes).unwrap();
        let after = path("after.json");
        // Neither is the conversation lost that is there, nor the file.
        let lines = format!("hello\n/load {0}\n/save {0}\n/save {1}\n", bad.display(), after.display());
        let said = chat(&file.path, &[], &lines);
        assert!(
            said.contains("can't be loaded") && said.contains(why) && said.contains("can't be saved"),
            "{why}: {said}"
        );
        assert!(std::fs::read(&bad).unwrap() == bytes && messages(&after).len() == 2, "{why}");
        let output = run("chat", &file.path, &[SMALL, &["--conversation", bad.to_str().unwrap()]].concat(), "hello\n");
        assert!(output.status.code() == Some(1) && std::fs::read(&bad).unwrap() == bytes, "{why}");
    }
    let said = chat(&file.path, &[], "/load none.json\n/save none/none.json\n");
    assert!(said.matches("can't be").count() == 2, "{said}");
}

/// A template that refuses a loaded conversation doesn't end the chat.
#[test]
fn a_conversation_that_the_template_refuses_is_said() {
    let file = model(Architecture::Llama);
    let (saved, template) = (file.path.with_extension("json"), file.path.with_extension("jinja"));
    let text = r#"{"ggml-llm conversation": 1, "messages": [{"role": "tool", "content": "7"}]}"#;
    std::fs::write(&saved, text).unwrap();
    let jinja = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}{% endfor %}";
    std::fs::write(&template, jinja).unwrap();
    let lines = format!("/load {}\nhello\n", saved.display());
    let said = chat(&file.path, &["--chat-template", template.to_str().unwrap()], &lines);
    assert!(said.contains("1 messages loaded") && said.contains("no tools"), "{said}");
}
