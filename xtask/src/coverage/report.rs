//! `docs/coverage.md`.

use std::fmt::Write as _;

use crate::coverage::judge::{Chapter, Fate, How};

const HEAD: &str = "# Coverage\n\n\
    Where each public function of ggml's is in this crate, or what to use instead. Written by `cargo xtask coverage`, which\n\
    compares the pinned headers with the aliases in `src/` and with `docs/omitted.toml`. Do not edit.\n";

pub(crate) fn write(chapters: &[Chapter]) -> String {
    let mut text = String::from(HEAD);
    for chapter in chapters {
        // Writing to a string can't fail.
        let _ = write!(text, "\n## {}\n\n{}\n\n| C | Rust |\n|---|---|\n", chapter.header, chapter.count());
        for (function, fate) in &chapter.fates {
            let _ = writeln!(text, "| `{function}` | {} |", describe(fate));
        }
    }
    text
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
