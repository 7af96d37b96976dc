//! `docs/omitted.toml`: functions that no item stands for, and those that one stands for without calling them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Why a function has no place in the safe layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// Rust has it, in its standard library or a crate that everybody uses.
    Rust,
    /// The crate looks after it; a user could only do harm with it.
    Internal,
    /// It hands out or changes memory that the crate answers for.
    Raw,
    /// Deprecated upstream.
    Deprecated,
    /// Another form says the same, without the second way to say it.
    Redundant,
    /// No check can make it safe.
    Unsound,
    /// A way to look into C's own objects, of no use to a program.
    Debug,
    /// Not yet.
    Later,
}

impl Reason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Rust => "Rust has it",
            Self::Internal => "internal",
            Self::Raw => "raw memory",
            Self::Deprecated => "deprecated",
            Self::Redundant => "redundant",
            Self::Unsound => "unsound",
            Self::Debug => "debugging of C",
            Self::Later => "not yet",
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Omission {
    pub(crate) reason: Reason,
    pub(crate) instead: String,
}

/// The file's tables.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Listed {
    /// Function to the more general one that is called in its place.
    pub(crate) shorthand: BTreeMap<String, String>,
    /// Function to the file that calls it, where that is not the one with the alias.
    pub(crate) called_in: BTreeMap<String, String>,
    /// Functions that Rust code replaces entirely, by file.
    pub(crate) in_rust: BTreeMap<String, BTreeSet<String>>,
    pub(crate) omitted: BTreeMap<String, Omission>,
}

impl Listed {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("docs/omitted.toml")
    }

    /// The names that the tables speak of, those that Rust replaces in several files once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let in_rust = self.in_rust.values().flatten().collect::<BTreeSet<_>>();
        self.shorthand.keys().chain(self.called_in.keys()).chain(in_rust).chain(self.omitted.keys())
    }
}
