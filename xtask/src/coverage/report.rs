//! `docs/coverage.md`, and the page of omitted functions.

use crate::coverage::judge::{Chapter, Fate, How};

const OMITTED: &str = "//! C functions without a counterpart here, and what to use instead.\n//!\n\
    //! Written by `cargo xtask coverage` from `docs/omitted.toml`. Do not edit.\n//!\n\
    //! The search of these docs finds this page by the full name of each function.\n";

const HEAD: &str = "# Coverage\n\n\
    Where each public function of ggml's is in this crate, or why it isn't: [what to use instead](../src/guide/omitted.rs).\n\
    Written by `cargo xtask coverage`, which compares the pinned headers with the aliases in `src/` and with\n\
    `docs/omitted.toml`. Do not edit.\n";

pub(crate) fn write(chapters: &[Chapter]) -> String {
    let chapters = chapters.iter().map(|chapter| {
        let rows = chapter.fates.iter().map(|(function, fate)| {
            let fate = match fate {
                Fate::Omitted(omission) => format!("*{}*", omission.reason.text()),
                _ => describe(fate),
            };
            format!("| `{function}` | {fate} |\n")
        });
        let rows: String = rows.collect();
        format!("\n## {}\n\n{}\n\n| C | Rust |\n|---|---|\n{rows}", chapter.header, chapter.count())
    });
    HEAD.to_owned() + &chapters.collect::<String>()
}

/// The module `guide::omitted`: the aliases are for rustdoc's search.
pub(crate) fn omitted(chapters: &[Chapter]) -> String {
    let omitted = |chapter: &'_ Chapter| -> Vec<(String, String)> {
        let omitted = chapter.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Omitted(_)));
        omitted.map(|(function, fate)| (function.clone(), describe(fate))).collect()
    };
    let tables =
        chapters.iter().map(|chapter| (&chapter.header, omitted(chapter))).filter(|(_, rows)| !rows.is_empty());
    let table = |(header, rows): (&String, Vec<(String, String)>)| {
        let rows: Vec<_> = rows.iter().map(|(c, instead)| format!("//! | `{c}` | {instead} |\n")).collect();
        format!("//!\n//! # {header}\n//!\n//! | C | what to use instead |\n//! |---|---|\n{}", rows.concat())
    };
    let alias = |(c, _)| format!("#![doc(alias = \"{c}\")]\n");
    let aliases: Vec<_> = chapters.iter().flat_map(omitted).map(alias).collect();
    format!("{OMITTED}{}\n{}", tables.map(table).collect::<String>(), aliases.concat())
}

fn describe(fate: &Fate) -> String {
    match fate {
        Fate::Wrapped(items, how) => {
            let items = items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ");
            match how {
                How::Called => items,
                How::Through(general) => format!("{items}, through `{general}`"),
                How::Rewritten => format!("{items}, in Rust"),
            }
        }
        Fate::Omitted(omission) => format!("*{}:* {}", omission.reason.text(), omission.instead),
        Fate::Missing => "**missing**".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::listed::{Omission, Reason};

    #[test]
    fn page_of_omitted_functions_has_a_row_and_an_alias_for_each() {
        let omission = Omission { reason: Reason::Rust, instead: "`panic!`".into() };
        let fates = vec![
            ("ggml_abort".to_owned(), Fate::Omitted(omission)),
            ("ggml_add".to_owned(), Fate::Wrapped(vec!["Context::add".into()], How::Called)),
        ];
        let page =
            omitted(&[Chapter { header: "ggml.h".into(), fates }, Chapter { header: "x.h".into(), fates: vec![] }]);
        assert!(page.contains("//! | `ggml_abort` | *Rust has it:* `panic!` |\n"), "{page}");
        assert!(page.ends_with("\n\n#![doc(alias = \"ggml_abort\")]\n"), "{page}");
        assert!(!page.contains("ggml_add") && !page.contains("x.h"), "{page}");
    }
}
