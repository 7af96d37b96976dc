//! C headers: the functions they declare and all names they contain.

use std::collections::BTreeSet;

/// The macros that mark public functions.
const MARKS: [&str; 2] = ["GGML_API", "GGML_BACKEND_API"];

/// The parts of a header that coverage needs.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) file: String,
    /// The public functions, in order.
    pub(crate) functions: Vec<String>,
    /// Every word, so that types, callbacks and macros are included.
    pub(crate) words: BTreeSet<String>,
}

impl Header {
    pub(crate) fn parse(file: &str, text: &str) -> Self {
        let text = without_comments(text);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_word(c)).filter(|w| !w.is_empty()).map(str::to_owned).collect();
        let code = without_directives(&text);
        let mut functions = Vec::new();
        let mut rest = code.as_str();
        while let Some(at) = rest.find(is_word) {
            rest = &rest[at..];
            let (word, after) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
            rest = after;
            if MARKS.contains(&word) {
                // `GGML_API type * name(…)`: the name is the word before the first parenthesis.
                let declaration = after.split(['(', ';']).next().unwrap_or_default();
                let name = declaration.trim_end().rsplit(|c| !is_word(c)).next().unwrap_or_default();
                functions.push(name.to_owned());
            }
        }
        Self { file: file.to_owned(), functions, words }
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        let (code, comment) = rest.split_at(at);
        out.push_str(code);
        out.push(' ');
        let end = if comment.starts_with("//") { comment.find('\n') } else { comment.find("*/").map(|n| n + 2) };
        rest = &comment[end.unwrap_or(comment.len())..];
    }
    out.push_str(rest);
    out
}

/// Removes preprocessor directives, which may continue over several lines.
fn without_directives(text: &str) -> String {
    let mut inside = false;
    let code = text.lines().filter(|line| {
        let directive = inside || line.trim_start().starts_with('#');
        inside = directive && line.trim_end().ends_with('\\');
        !directive
    });
    code.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_parser_finds_every_declaration_form() {
        let header = Header::parse(
            "a.h",
            "#define GGML_API extern \\\n  GGML_API int not_this(void);\n\
             // GGML_API void ggml_commented(void);\n\
             /* GGML_API void ggml_commented_too(void); */\n\
             typedef void (*ggml_callback_t)(int x);\n\
             GGML_API const char * ggml_plain(int a);\n\
             GGML_API struct x *\n    ggml_lines\n    (void (*f)(int), int b);\n\
             GGML_DEPRECATED(GGML_API void ggml_old(int a),\n \"use ggml_plain\");\n\
             GGML_NORETURN GGML_ATTRIBUTE_FORMAT(3, 4)\nGGML_API void ggml_stop(void); GGML_BACKEND_API bool ggml_two(void);",
        );
        assert_eq!(header.functions, ["ggml_plain", "ggml_lines", "ggml_old", "ggml_stop", "ggml_two"]);
        assert!(header.words.contains("ggml_callback_t"));
        assert!(!header.words.contains("ggml_commented"));
    }
}
