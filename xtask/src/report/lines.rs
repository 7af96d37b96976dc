//! Lines of C that are compared regardless of where they are.

use std::collections::BTreeMap;

/// `+` and `-` for each line that one side has more often than the other, in their order.
pub(crate) fn difference(old: &[String], new: &[String]) -> Vec<String> {
    let surplus = |of: &[String], than: &[String], sign: char| {
        let mut left = BTreeMap::<&str, usize>::new();
        for line in than {
            *left.entry(line).or_default() += 1;
        }
        let more = of.iter().filter(|line| match left.get_mut(line.as_str()) {
            Some(n) if *n > 0 => {
                *n -= 1;
                false
            }
            _ => true,
        });
        more.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [surplus(old, new, '-'), surplus(new, old, '+')].concat()
}

/// One blank for any white space.
pub(super) fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that stop a program, or a debug build.
pub(super) fn assertions(text: &str) -> Vec<String> {
    const WORDS: &[&str] = &["GGML_ASSERT(", "GGML_ABORT(", "assert(", "RPC_STATUS_ASSERT(", "abort()", "throw "];
    let code = text.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.starts_with('*'));
    code.filter(|line| WORDS.iter().any(|word| line.contains(word))).map(squeezed).collect()
}

/// The comments, without their signs.
pub(super) fn comments(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let comment =
            if inside { Some(line) } else { line.split_once("//").or_else(|| line.split_once("/*")).map(|(_, c)| c) };
        inside = if inside { !line.contains("*/") } else { line.contains("/*") && !line.contains("*/") };
        let bare = comment.map(|c| squeezed(c.trim().trim_start_matches(['/', '*', '!']).trim_end_matches("*/")));
        found.extend(bare.filter(|c| c.contains(char::is_alphabetic)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn lines_count_as_often_as_they_are_there_and_order_does_not() {
        assert_eq!(difference(&list(&["a", "b", "a"]), &list(&["b", "a", "c"])), ["- a", "+ c"]);
        assert!(difference(&list(&["a", "b"]), &list(&["b", "a"])).is_empty());
    }

    #[test]
    fn what_stops_a_program_is_taken_and_comments_are_not() {
        let text = "  GGML_ASSERT(a  == b);\n // GGML_ASSERT(c)\n x = 1;\n assert(d);\n throw std::bad_alloc();\n";
        assert_eq!(assertions(text), ["GGML_ASSERT(a == b);", "assert(d);", "throw std::bad_alloc();"]);
    }

    #[test]
    fn comments_of_both_kinds_are_taken() {
        let text = "int a; // one  thing\n/* two\n   three */\nint b; /* four */\n//\nint c;\n";
        assert_eq!(comments(text), ["one thing", "two", "three", "four"]);
    }
}
