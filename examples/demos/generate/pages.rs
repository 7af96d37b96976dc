//! This repository's glossary, pages and documentation comments as questions and answers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use fastrand::Rng;

use crate::text::Documents;

/// One in this many answers is held out, but none of the glossary.
const HELD_OUT: usize = 16;
/// The longest answer in bytes: longer ones lose their last sentences, so that most fit into the model's window.
const LONGEST: usize = 400;
/// The shortest, as a word or two teach nothing.
const SHORTEST: usize = 24;

/// The questions and answers, in an order that is random but always the same.
pub(crate) fn shipped() -> Result<Documents> {
    let (root, mut rng) = (demos::repository(), Rng::with_seed(1));
    let mut all = Vec::new();
    for folder in ["docs", "docs/guide", "llm", "."] {
        for path in files(&root.join(folder), "md", false)? {
            // Lists of changes and of functions are no answers.
            if !["CHANGELOG.md", "coverage.md", "safety.md"].iter().any(|other| path.ends_with(other)) {
                all.extend(page(&fs::read_to_string(path)?));
            }
        }
    }
    for folder in ["src", "ggml-gguf/src", "ggml-draw/src", "llm/src", "examples/kernels/src"] {
        for path in files(&root.join(folder), "rs", true)? {
            all.extend(source(&fs::read_to_string(path)?));
        }
    }
    rng.shuffle(&mut all);
    let held_out = all.split_off(all.len() - all.len() / HELD_OUT);
    all.extend(glossary(&fs::read_to_string(root.join("docs/glossary.md"))?));
    rng.shuffle(&mut all);
    Ok(Documents { train: all, held_out })
}

/// The files of a folder with this extension, sorted by name.
fn files(folder: &Path, extension: &str, below: bool) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut entries: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() && below {
            found.extend(files(&path, extension, below)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

/// A question with its answer, as the model's chat template writes them.
fn answer(question: &str, answer: &str) -> Option<String> {
    let mut answer = plain(answer);
    while answer.len() > LONGEST {
        answer.truncate(answer.get(..LONGEST).and_then(|start| start.rfind(". ")).map_or(0, |end| end + 1));
    }
    // Code follows behind a colon.
    if answer.ends_with(':') {
        answer.pop();
        answer.push('.');
    }
    let question = plain(question);
    (answer.len() >= SHORTEST).then(|| format!("Question: {}?\nAnswer: {}", question.trim_end_matches('?'), answer))
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

/// Questions for each row of the glossary's tables.
fn glossary(page: &str) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
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
        let questions =
            [format!("What is {a_term}"), format!("What does {a_term} do"), format!("What does {term} mean")];
        questions.map(|question| answer(&question, &meaning))
    };
    rows.filter(|(term, _)| *term != "term").flat_map(row).flatten().collect()
}

/// The paragraphs of a page: its title and the heading above them ask for them.
fn page(page: &str) -> Vec<String> {
    let (mut title, mut heading, mut code, mut paragraph) = (String::new(), String::new(), false, String::new());
    let mut all = Vec::new();
    for line in page.lines().chain([""]) {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        let text = !(code || fence || line.is_empty() || line.starts_with(['#', '|', '<']));
        let (item, rest) = line.split_at(if line.starts_with("- ") { 2 } else { 0 });
        if !text || !item.is_empty() {
            let question = if heading.is_empty() { title.clone() } else { format!("{title}: {heading}") };
            all.extend(answer(&question, &std::mem::take(&mut paragraph)));
        }
        if text {
            paragraph.push_str(rest);
            paragraph.push(' ');
        } else if let Some(name) = line.strip_prefix("# ").filter(|_| !code && title.is_empty()) {
            name.clone_into(&mut title);
        } else if let Some((_, name)) = line.split_once("# ").filter(|_| !code && line.starts_with("##")) {
            name.clone_into(&mut heading);
        }
    }
    all
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
        return answer(
            &format!("What {} {term}{}", if does { "does" } else { "is" }, if does { " do" } else { "" }),
            &text,
        );
    }
    if !does {
        return answer(&format!("What does {name} return"), &text);
    }
    let short = rest.split(['.', ',', ':', ';', '(']).next()?.trim();
    let question = format!("How do I {} {short}", base(verb));
    answer(&question, &format!("Call {name}. It {} {rest}", verb.to_lowercase()))
}

/// The base form of a verb: "Copies" is "copy".
fn base(verb: &str) -> String {
    let verb = verb.to_lowercase();
    let stem = |ending, new| verb.strip_suffix(ending).map(|stem| format!("{stem}{new}"));
    let hisses = |stem: &String| ["ss", "sh", "ch", "x"].iter().any(|end| stem.ends_with(end));
    stem("ies", "y").or_else(|| stem("es", "").filter(hisses)).or_else(|| stem("s", "")).unwrap_or(verb.clone())
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
        assert_eq!(found.len(), 9);
        assert_eq!(found[0], "Question: What is a ne?\nAnswer: A ne is one number for each dimension.");
        assert_eq!(found[4], "Question: What does an edge do?\nAnswer: An edge splits a graph in two parts.");
        assert_eq!(found[8], "Question: What does leaves mean?\nAnswer: Leaves: tensors that nothing computes.");
    }

    #[test]
    fn page_answers_its_headings() {
        let text = "# Memory\n\nA buffer is\none *allocation*.\n\n## Who frees it?\n\n- Rust does, when it is dropped:\n\
            - `drop` alone does too little\n\n```rust\n# Ok(())\nlet no_text = \"in a text that is long enough\";\n```\n";
        let expected = [
            "Question: Memory?\nAnswer: A buffer is one allocation.",
            "Question: Memory: Who frees it?\nAnswer: Rust does, when it is dropped.",
            "Question: Memory: Who frees it?\nAnswer: drop alone does too little",
        ];
        assert_eq!(page(text), expected);
    }

    #[test]
    fn source_answers_how_to_call_it() {
        let text = "/// Copies [`Tensor`]s, which takes a while.\n///\n/// # Errors\n/// None.\n#[inline]\npub fn copy() {}\n\
            /// Bytes of a row, without gaps.\npub(crate) fn size() {}\n/// Runs a graph on all devices.\npub struct BufferType;\n\
            /// What nobody may call from elsewhere.\nfn own() {}\n/// Short.\npub fn brief() {}\n";
        let expected = [
            "Question: How do I copy Tensors?\nAnswer: Call copy. It copies Tensors, which takes a while.",
            "Question: What does size return?\nAnswer: Bytes of a row, without gaps.",
            "Question: What does a buffer type do?\nAnswer: Runs a graph on all devices.",
        ];
        assert_eq!(source(text), expected);
    }

    #[test]
    fn verbs_have_base_forms() {
        let found = ["Copies", "Passes", "Finishes", "Takes", "Fixes"].map(base);
        assert_eq!(found, ["copy", "pass", "finish", "take", "fix"]);
    }

    #[test]
    fn shipped_text_is_this_repository() {
        let found = shipped().unwrap();
        assert_eq!(found, shipped().unwrap());
        let has = |text: &str| found.train.iter().chain(&found.held_out).any(|document| document.contains(text));
        assert!(
            has("Question: What is a tensor?\n") && has("Call alloc. It"),
            "the glossary, and a line of the library's"
        );
        assert!(found.train.len() > 15 * found.held_out.len() && found.held_out.len() > 50);
        assert!(found.train.iter().all(|document| document.len() < 2 * LONGEST && !document.contains('`')));
    }
}
