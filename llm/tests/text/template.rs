//! Chat templates beside Jinja2's results: `templates/generate.py`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use ggml::gguf::Reader;
use ggml_llm::text::{ChatTemplate, Message, TextError};
use serde_json::Value;

use crate::files;

#[test]
fn templates_render_as_with_jinja2() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text/templates");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(expected["now"].as_u64().unwrap());
    let (mut texts, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in expected["cases"].as_array().unwrap() {
        let template =
            ChatTemplate::new(&read(case["template"].as_str().unwrap()), "<s>", "</s>").unwrap().with_time(now);
        let message = |m: &Value| Message::new(m[0].as_str().unwrap(), m[1].as_str().unwrap());
        let messages: Vec<Message> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let ours = template.render(&messages, case["add_generation_prompt"].as_bool().unwrap());
        let same = match (&ours, case["text"].as_str(), case["error"].as_str()) {
            (Ok(ours), Some(text), None) => {
                texts += 1;
                ours == text
            }
            (Err(TextError::Template { line: Some(_), .. }), None, Some(_)) => {
                refused += 1;
                true
            }
            _ => false,
        };
        if !same {
            wrong.push(format!("{} with {}: {ours:#?}\nbut {case:#}", case["template"], case["chat"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(texts >= 150 && refused >= 8, "{texts} texts and {refused} refusals were compared");
}

#[test]
fn templates_that_do_not_parse_are_refused_with_the_line() {
    for (template, line) in
        [("a\n{% if x %}\nb", 3), ("\n\n{{ 1 + }}", 3), ("{% nonsense %}", 1), ("a\n{% endfor %}", 2)]
    {
        let error = ChatTemplate::new(template, "", "").unwrap_err();
        assert!(matches!(error, TextError::Template { line: Some(n), .. } if n == line), "{template:?}: {error}");
        assert!(error.to_string().starts_with(&format!("the chat template, line {line}: ")), "{error}");
    }
}

#[test]
fn refusals_of_a_template_are_errors() {
    let said = |template: &str| {
        let template = ChatTemplate::new(template, "", "").unwrap();
        template.render(&[Message::new("user", "x")], false).unwrap_err().to_string()
    };
    assert_eq!(said("a\n{{ raise_exception('no system role') }}"), "the chat template, line 2: no system role");
    assert!(said("{{ messages[0].name.first }}").contains("line 1"));
    assert!(said("{{ strftime_now('%!') }}").contains("strftime_now"));
    assert!(said("{{ messages | nonsense }}").contains("nonsense"));
}

#[test]
fn templates_that_never_end_are_errors() {
    let render = |template: &str| ChatTemplate::new(template, "", "").and_then(|t| t.render(&[], false));
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    let error = render(endless).unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
    for large in [
        "{{ 'x' * 100000000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ range(100000000000) | list }}",
        &" ".repeat(65_537),
    ] {
        render(large).unwrap_err();
    }
}

#[test]
fn deep_templates_do_not_overflow_the_stack() {
    let render = |template: &str| ChatTemplate::new(template, "", "").and_then(|t| t.render(&[], false));
    let expression = |before: &str, part: &str, after: &str| {
        let n = (65_536 - 16 - before.len() - after.len()) / part.len();
        format!("{{{{ {before}{}{after} }}}}", part.repeat(n))
    };
    for deep in [
        expression("", "(", "1"),
        expression("", "-", "1"),
        expression("", "not ", "1"),
        expression("1", "+1", ""),
        expression("1", "~1", ""),
        expression("x", ".a", ""),
        expression("x", "|e", ""),
        expression("1", " if 1 else 1", ""),
        "{% if 1 %}".repeat(6000),
        ["{% if 0 %}", &"{% elif 0 %}".repeat(5000), "{% endif %}"].concat(),
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}".to_owned(),
    ] {
        // Text or an error, and no crash.
        drop(render(&deep));
    }
}

/// Each operator, filter, test, method and block, by itself.
#[test]
fn expressions_and_blocks_are_those_of_jinja2() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text/templates");
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(expected["now"].as_u64().unwrap());
    let messages = expected["cases"].as_array().unwrap().iter().find(|case| case["chat"] == "dialogue").unwrap();
    let message = |m: &Value| Message::new(m[0].as_str().unwrap(), m[1].as_str().unwrap());
    let messages: Vec<Message> = messages["messages"].as_array().unwrap().iter().map(message).collect();
    let (mut texts, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in expected["snippets"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let ours = ChatTemplate::new(source, "<s>", "</s>").and_then(|t| t.with_time(now).render(&messages, true));
        match (&ours, case["text"].as_str()) {
            (Ok(ours), Some(text)) if ours == text => texts += 1,
            (Err(TextError::Template { .. }), None) => refused += 1,
            _ => wrong.push(format!("{source}\n  {ours:?}\n  {case}")),
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(texts >= 90 && refused >= 20, "{texts} texts and {refused} refusals were compared");
}

#[test]
fn template_comes_from_the_file() {
    let mut file = files::bytes();
    let tokenizer = files::read(&file).unwrap();
    let reader = |file: &ggml::gguf::Writer| Reader::from_bytes(file.to_bytes().unwrap()).unwrap();
    let error = ChatTemplate::from_gguf(&reader(&file), &tokenizer).unwrap_err();
    assert!(error.to_string().contains("the file has no `tokenizer.chat_template`"), "{error}");
    file.set("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}").unwrap();
    let template = ChatTemplate::from_gguf(&reader(&file), &tokenizer).unwrap();
    assert_eq!(template.render(&[Message::new("user", "hi")], false).unwrap(), "<s>hi<|im_end|>");
}
