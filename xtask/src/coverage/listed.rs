//! `docs/omitted.toml`: functions that no item wraps, and those that are wrapped without being called.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// Why a function is not in the safe layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// Rust's standard library or a popular crate has it.
    Rust,
    /// The crate calls or replaces it itself; users could only misuse it.
    Internal,
    /// It exposes or changes memory that the crate manages.
    Raw,
    /// Deprecated upstream.
    Deprecated,
    /// Another function does the same.
    Redundant,
    /// No check can make it sound.
    Unsound,
    /// It inspects C's own objects, which programs don't need.
    Debug,
    /// Not implemented yet.
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
    /// Maps a function to the more general one that is called instead.
    pub(crate) shorthand: BTreeMap<String, String>,
    /// Maps a function to the file that calls it, if that is not the file with the alias.
    pub(crate) called_in: BTreeMap<String, String>,
    /// Functions that Rust code replaces, by file.
    pub(crate) in_rust: BTreeMap<String, BTreeSet<String>>,
    pub(crate) omitted: BTreeMap<String, Omission>,
}

impl Listed {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("docs/omitted.toml")
    }

    /// All names in the tables; a name that is replaced in several files counts once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let in_rust = self.in_rust.values().flatten().collect::<BTreeSet<_>>();
        self.shorthand.keys().chain(self.called_in.keys()).chain(in_rust).chain(self.omitted.keys())
    }
}
