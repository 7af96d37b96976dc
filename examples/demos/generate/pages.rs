//! This repository's pages of questions and of terms, and its documentation comments, as questions and answers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use fastrand::Rng;

use crate::text::Documents;

/// One in this many comments is held out, but nothing of the pages.
const HELD_OUT: usize = 16;
/// How often the answers of the pages are in the text, as the model is to know them. It has the comments for its language.
const REPEATED: usize = 5;
/// The longest answer of a comment in bytes: longer ones lose their last sentences.
const LONGEST: usize = 120;
/// The shortest, as a word or two teach nothing.
const SHORTEST: usize = 24;

/// What people say first to a program that chats.
const SMALL_TALK: [(&str, &str); 6] = [
    ("Hello", "Hello. Ask what a tensor is, or how to load weights."),
    ("Hi", "Hello. Ask what a scheduler does, or how to run a graph."),
    ("How are you?", "Well, thank you. Ask about tensors, graphs and devices."),
    ("Who are you?", "A small language model that learned this repository's pages in some minutes."),
    ("What can you do?", "Answer what this repository's page of questions and its glossary answer."),
    ("What do you know?", "What this repository's page of questions and its glossary say, and nothing else."),
];

/// The questions and answers, in an order that is random but always the same.
pub(crate) fn shipped() -> Result<Documents> {
    let (root, mut rng) = (demos::repository(), Rng::with_seed(1));
    let mut all = Vec::new();
    for folder in ["src", "ggml-gguf/src"] {
        for path in files(&root.join(folder))? {
            all.extend(source(&fs::read_to_string(path)?));
        }
    }
    rng.shuffle(&mut all);
    let held_out = all.split_off(all.len() - all.len() / HELD_OUT);
    let mut known = glossary(&fs::read_to_string(root.join("docs/glossary.md"))?);
    known.extend(questions(&fs::read_to_string(root.join("docs/guide/questions.md"))?));
    known.extend(SMALL_TALK.map(|(question, text)| answer(question, text)));
    all.extend(std::iter::repeat_n(known, REPEATED).flatten());
    rng.shuffle(&mut all);
    Ok(Documents { train: all, held_out })
}

/// The source files of a folder, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut entries: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// A question with its answer, as the model's chat template writes them.
fn answer(question: &str, answer: &str) -> String {
    format!("Question: {}\nAnswer: {}", plain(question), plain(answer))
}

/// The first sentences of a comment as an answer, if there are some.
fn first_sentences(question: &str, text: &str) -> Option<String> {
    let mut text = text.to_owned();
    while text.len() > LONGEST {
        text.truncate(text.get(..LONGEST).and_then(|start| start.rfind(". ")).map_or(0, |end| end + 1));
    }
    // Code follows behind a colon.
    if text.ends_with(':') {
        text.pop();
        text.push('.');
    }
    (text.len() >= SHORTEST).then(|| answer(question, &text))
}

/// Text without the marks of code, emphasis and links: `[text](where)` is `text`.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['[', '`', '*']) {
        let (before, link) = rest.split_at(at);
        plain.push_str(before);
        rest = link.get(1..).unwrap_or_default();
        if let Some((text, after)) = link.strip_prefix('[').and_then(|link| link.split_once(']')) {
            plain.push_str(&text.replace('`', ""));
            let to = after.strip_prefix('(').and_then(|to| to.split_once(')'));
            rest = to.map_or(after, |(_, after)| after);
        }
    }
    plain.push_str(rest);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of a page's tables with two columns.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
}

/// Questions for each term of the glossary.
fn glossary(page: &str) -> Vec<String> {
    let row = |(terms, meaning): (&str, &str)| {
        let term = plain(terms.split([',', '(']).next().unwrap_or_default());
        let verb = meaning.starts_with("splits ");
        let noun = ["a ", "an ", "the ", "one ", "what ", "up to "].iter().any(|begins| meaning.starts_with(begins));
        let a_term = with_article(&term);
        let subject = match () {
            () if verb => upper(&a_term),
            () if noun && !term.ends_with('s') => format!("{} is", upper(&a_term)),
            () => format!("{}:", upper(&term)),
        };
        let meaning = format!("{subject} {}.", meaning.trim_end_matches('.'));
        let questions = [
            format!("What is {a_term}?"),
            format!("What does {a_term} do?"),
            format!("What does {term} mean?"),
            format!("Explain {a_term}."),
        ];
        questions.map(|question| answer(&question, &meaning))
    };
    rows(page).filter(|(term, _)| *term != "term").flat_map(row).collect()
}

/// The page of questions, without the names of the pages that say more.
fn questions(page: &str) -> Vec<String> {
    let row = |(question, text): (&str, &str)| {
        let text = text.rsplit_once(". [").map_or_else(|| text.to_owned(), |(text, _)| format!("{text}."));
        let other = question.strip_prefix("How do I ").map(|rest| format!("How can I {rest}"));
        [Some(question.to_owned()), other].into_iter().flatten().map(move |question| answer(&question, &text))
    };
    rows(page).filter(|(question, _)| *question != "question").flat_map(row).collect()
}

/// The documentation comments of a source file, up to their first headings.
fn source(source: &str) -> Vec<String> {
    let (mut comment, mut all) = (Vec::new(), Vec::new());
    for line in source.lines().map(str::trim_start) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.strip_prefix(' ').unwrap_or(text));
        } else if !line.starts_with("#[") {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let public = words.next() == Some("pub");
            let kind = words.find(|word| public && ["fn", "struct", "enum", "trait"].contains(word));
            if let (Some(kind), Some(name)) = (kind, words.next()) {
                all.extend(item(kind, name, &comment));
            }
            comment.clear();
        }
    }
    all
}

/// What the documentation comment of a function or type answers.
fn item(kind: &str, name: &str, comment: &[&str]) -> Option<String> {
    let paragraphs: Vec<_> = comment.split(|line| line.is_empty()).collect();
    let text = paragraphs.iter().take_while(|lines| lines.first().is_none_or(|l| !l.starts_with(['#', '`', '|', '-'])));
    let text = plain(&text.map(|lines| lines.join(" ")).collect::<Vec<_>>().join(" "));
    let (verb, rest) = text.split_once(' ')?;
    // "Computes graphs" has a verb, and "Bytes of a tensor" a noun.
    let after = rest.split([' ', ',']).next()?;
    let noun = ["of", "that", "by", "for", "in", "are", "which", "whose", "with", "and", "from", "to", "on", "as"];
    let does = verb.ends_with('s') && !["This", "Is", "As", "Its"].contains(&verb) && !noun.contains(&after);
    if kind != "fn" {
        let term = with_article(&words(name));
        return first_sentences(
            &format!("What {} {term}{}?", if does { "does" } else { "is" }, if does { " do" } else { "" }),
            &text,
        );
    }
    if !does {
        return first_sentences(&format!("What does {name} return?"), &text);
    }
    first_sentences(&format!("What does {name} do?"), &format!("It {} {rest}", verb.to_lowercase()))
}

/// The words of a type's name: `BufferType` is "buffer type".
fn words(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(c);
    }
    words.to_lowercase()
}

fn with_article(term: &str) -> String {
    match term {
        _ if term.ends_with('s') => term.to_owned(),
        _ if term.starts_with(['a', 'e', 'i', 'o']) => format!("an {term}"),
        _ => format!("a {term}"),
    }
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glossary_answers_what_its_terms_are() {
        let rows = "| term | meaning |\n|---|---|\n| `ne`, stride | one number for each `dimension` |\n\
            | edge | splits [a graph](graphs.md) in two parts |\n| leaves | tensors that nothing computes |\n";
        let found = glossary(rows);
        assert_eq!(found.len(), 12);
        assert_eq!(found[0], "Question: What is a ne?\nAnswer: A ne is one number for each dimension.");
        assert_eq!(found[5], "Question: What does an edge do?\nAnswer: An edge splits a graph in two parts.");
        assert_eq!(found[10], "Question: What does leaves mean?\nAnswer: Leaves: tensors that nothing computes.");
    }

    #[test]
    fn questions_have_their_answers() {
        let page = "| question | answer |\n|---|---|\n| Who frees it? | [Rust](rust.md) does. It is dropped. [Memory] |\n\
            | How do I copy it? | Call `dup`. |\n";
        let expected = [
            "Question: Who frees it?\nAnswer: Rust does. It is dropped.",
            "Question: How do I copy it?\nAnswer: Call dup.",
            "Question: How can I copy it?\nAnswer: Call dup.",
        ];
        assert_eq!(questions(page), expected);
    }

    #[test]
    fn comments_answer_what_items_do() {
        let text = "/// Copies [`Tensor`]s, which takes a while.\n///\n/// # Errors\n/// None.\n#[inline]\npub fn copy() {}\n\
            /// Bytes of a row, without gaps.\npub(crate) fn size() {}\n/// Runs a graph on all devices.\npub struct BufferType;\n\
            /// What nobody may call from elsewhere.\nfn own() {}\n/// Short.\npub fn brief() {}\n";
        let expected = [
            "Question: What does copy do?\nAnswer: It copies Tensors, which takes a while.",
            "Question: What does size return?\nAnswer: Bytes of a row, without gaps.",
            "Question: What does a buffer type do?\nAnswer: Runs a graph on all devices.",
        ];
        assert_eq!(source(text), expected);
    }

    #[test]
    fn shipped_text_is_this_repository() {
        let found = shipped().unwrap();
        assert_eq!(found, shipped().unwrap());
        let has = |text: &str| found.train.iter().chain(&found.held_out).any(|document| document.contains(text));
        assert!(
            has("Question: What is a tensor?\n")
                && has("Question: How do I load weights?\n")
                && has("What does alloc do?\n"),
            "both pages, and a line of the library's"
        );
        assert!(found.train.len() > 15 * found.held_out.len() && found.held_out.len() > 50);
        assert!(found.train.iter().all(|document| document.len() < 2 * LONGEST && !document.contains('`')));
    }
}
