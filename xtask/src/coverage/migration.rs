//! `docs/migration.md`: every function that ggml-backend.h and ggml-alloc.h ever declared, and its Rust form.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::coverage::judge::{Chapter, Fate};
use crate::coverage::report;

/// The headers whose history is listed.
const HEADERS: [&str; 2] = ["ggml-backend.h", "ggml-alloc.h"];

const HEAD: &str = "# Coming from C\n\n\
    Every function of `ggml-backend.h` and `ggml-alloc.h`, of all generations of that API, and what stands for it here.\n\
    Written by `cargo xtask coverage` from `docs/migration.toml`, the pinned headers and the aliases in `src/`. Do not edit.\n\n";

/// `docs/migration.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migration {
    generation: Vec<Generation>,
    /// The replacements of removed functions.
    gone: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generation {
    name: String,
    about: String,
    /// Names, separated by spaces.
    functions: String,
}

impl Migration {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("cannot read docs/migration.toml")
    }

    /// The document, and the problems of the list. `exists` tells whether Rust has a function of that name.
    pub(crate) fn write(&self, chapters: &[Chapter], exists: impl Fn(&str) -> bool) -> (String, Vec<String>) {
        let now: BTreeMap<&str, &Fate> =
            chapters.iter().flat_map(|c| &c.fates).map(|(function, fate)| (function.as_str(), fate)).collect();
        let last = chapters.iter().filter(|c| HEADERS.contains(&c.header.as_str()));
        let last: BTreeSet<&str> = last.flat_map(|c| &c.fates).map(|(function, _)| function.as_str()).collect();
        let former: Vec<BTreeSet<&str>> =
            self.generation.iter().map(|g| g.functions.split_whitespace().collect()).collect();
        let all: BTreeSet<&str> = former.iter().flatten().chain(&last).copied().collect();

        let mut problems = Vec::new();
        let mut out = HEAD.to_owned();
        for (i, g) in self.generation.iter().enumerate() {
            let _ok = writeln!(out, "{}. **{}.** {}", i + 1, g.name, g.about);
        }
        let _ok = writeln!(
            out,
            "{}. **Today.** Devices and their registries, loaded at run time; what the pinned headers have.\n",
            former.len() + 1
        );
        out.push_str("| C | in | Rust |\n|---|---|---|\n");
        for function in all {
            let instead = match (now.get(function), self.gone.get(function)) {
                (Some(fate), None) => report::describe(fate),
                (None, Some(instead)) => instead.clone(),
                (Some(_), Some(_)) => {
                    problems.push(format!("docs/migration.toml: {function} is not gone"));
                    continue;
                }
                (None, None) => {
                    problems.push(format!("docs/migration.toml does not say what replaced {function}"));
                    continue;
                }
            };
            let generations = former.iter().chain([&last]).enumerate().filter(|(_, g)| g.contains(function));
            let generations: Vec<_> = generations.map(|(i, _)| (i + 1).to_string()).collect();
            let _ok = writeln!(out, "| `{function}` | {} | {instead} |", generations.join(" "));
        }
        for (function, instead) in &self.gone {
            if !former.iter().any(|g| g.contains(function.as_str())) {
                problems.push(format!("docs/migration.toml: no generation has {function}"));
            }
            let names = instead.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"));
            let unknown = names.map(|(_, name)| name).filter(|name| !exists(name));
            problems.extend(unknown.map(|name| format!("docs/migration.toml: {function}: there is no {name}")));
        }
        (out, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::judge::How;

    #[test]
    fn migration_lists_every_generation_completely() {
        let text = r#"
            [[generation]]
            name = "First"
            about = "Old."
            functions = "ggml_a ggml_b ggml_c"
            [gone]
            ggml_b = "`X::known`"
            ggml_d = "`X::unknown`"
        "#;
        let fate = Fate::Wrapped(vec!["X::a".into()], How::Called);
        let chapter = Chapter { header: "ggml-alloc.h".into(), fates: vec![("ggml_a".into(), fate)] };
        let (table, problems) = Migration::parse(text).unwrap().write(&[chapter], |name| name == "known");
        assert!(table.contains("| `ggml_a` | 1 2 | `X::a` |"), "{table}");
        assert!(table.contains("| `ggml_b` | 1 | `X::known` |"), "{table}");
        assert_eq!(
            problems,
            [
                "docs/migration.toml does not say what replaced ggml_c",
                "docs/migration.toml: no generation has ggml_d",
                "docs/migration.toml: ggml_d: there is no unknown",
            ]
        );
    }
}
