//! `complete` and `chat` with JSON schemas, grammars and regular expressions: random weights, and drawn tokens.

use ggml_llm::Architecture;
use serde_json::Value;

use crate::{SMALL, model, run, text};

/// What the program answers, without the prompt.
fn complete(architecture: Architecture, arguments: &[&str], seed: u64) -> String {
    let (file, seed) = (model(architecture), seed.to_string());
    let all = [SMALL, &["hello", "--temperature", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"]].concat();
    let printed =
        text(&run("complete", &file.path, &[&all[..], &["--seed", &seed, "-n", "200"], arguments].concat(), ""));
    printed.strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn answers_are_of_their_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let schema = path(
        "schema.json",
        r#"{"type": "object", "properties": {"a": {"enum": ["x", "é"]}, "b": {"type": "integer", "minimum": -5, "maximum": 50}},
            "required": ["a", "b"], "additionalProperties": false}"#,
    );
    let grammar =
        path("sum.lark", "start: number sign number (sign number)?\nnumber: /[0-9]{1,3}/\nsign: \"+\" | \"-\"\n");
    for (seed, &architecture) in (0..).zip(Architecture::ALL) {
        let answer = complete(architecture, &["--json-schema", &schema], seed);
        let value: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
        let map = value.as_object().unwrap();
        assert!(map.len() == 2 && ["x", "é"].contains(&map["a"].as_str().unwrap()), "{answer}");
        assert!((-5..=50).contains(&map["b"].as_i64().unwrap()), "{answer}");
        let answer = complete(architecture, &["--grammar", &grammar], seed);
        let digits = |number: &str| (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        assert!(answer.split(['+', '-']).all(digits), "{answer:?}");
        let answer = complete(architecture, &["--regex", "(ab|c){2,4}z"], seed);
        let parts = answer.strip_suffix('z').unwrap_or_else(|| panic!("{answer:?}")).replace("ab", "c");
        assert!((2..=4).contains(&parts.len()) && parts.bytes().all(|b| b == b'c'), "{answer:?}");
    }
}

/// Each answer of a chat begins anew.
#[test]
fn each_answer_of_a_chat_is_of_the_grammar() {
    let file = model(Architecture::Llama);
    let arguments = [SMALL, &["--regex", "yes|no", "--temperature", "1"]].concat();
    let printed = text(&run("chat", &file.path, &arguments, "one\ntwo\nthree\n"));
    assert!(printed.lines().count() == 3 && printed.lines().all(|line| ["yes", "no"].contains(&line)), "{printed:?}");
}

#[test]
fn what_is_no_grammar_is_said() {
    let file = model(Architecture::Llama);
    let schema = file.path.with_extension("json");
    std::fs::write(&schema, "{\"type\": \"cat\"}").unwrap();
    let schema = schema.to_str().unwrap();
    for (arguments, why) in [
        (&["hello", "--regex", "("][..], "the grammar can't be used"),
        (&["hello", "--json-schema", schema], "Invalid type: cat"),
        (&["hello", "--json-schema", "none.json"], "none.json"),
        (&["hello", "--regex", "a", "--json-schema", schema], "cannot be used with"),
        (&["--tokens", "1,2", "--regex", "a"], "give a PROMPT"),
    ] {
        let output = run("complete", &file.path, &[SMALL, arguments].concat(), "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
    }
}
