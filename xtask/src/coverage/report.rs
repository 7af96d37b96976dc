//! `docs/coverage.md`, and the page of omitted functions.

use crate::coverage::judge::{Chapter, Fate, How};

const OMITTED: &str = "//! C functions without a counterpart here, and what to use instead.\n//!\n\
    //! Written by `cargo xtask coverage` from `docs/omitted.toml`. Do not edit.\n//!\n\
    //! The search of these docs finds this page by the full name of each function.\n";

const HEAD: &str = "# Coverage\n\n\
    Where each public function of ggml's is in this crate, or what to use instead. Written by `cargo xtask coverage`, which\n\
    compares the pinned headers with the aliases in `src/` and with `docs/omitted.toml`. Do not edit.\n";

pub(crate) fn write(chapters: &[Chapter]) -> String {
    let chapters = chapters.iter().map(|chapter| {
        let rows = chapter.fates.iter().map(|(function, fate)| format!("| `{function}` | {} |\n", describe(fate)));
        let rows: String = rows.collect();
        format!("\n## {}\n\n{}\n\n| C | Rust |\n|---|---|\n{rows}", chapter.header, chapter.count())
    });
    HEAD.to_owned() + &chapters.collect::<String>()
}

/// The module `guide::omitted`: the aliases are for rustdoc's search.
pub(crate) fn omitted(chapters: &[Chapter]) -> String {
    let (mut page, mut aliases) = (OMITTED.to_owned(), String::new());
    for chapter in chapters {
        let omitted: Vec<_> = chapter.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Omitted(_))).collect();
        if !omitted.is_empty() {
            page += &format!("//!\n//! # {}\n//!\n//! | C | what to use instead |\n//! |---|---|\n", chapter.header);
        }
        for (function, fate) in omitted {
            page += &format!("//! | `{function}` | {} |\n", describe(fate));
            aliases += &format!("#![doc(alias = \"{function}\")]\n");
        }
    }
    page + "\n" + &aliases
}

pub(crate) fn describe(fate: &Fate) -> String {
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
