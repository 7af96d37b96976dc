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
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct CoverageList {
    /// Maps a function to the more general one that is called instead.
    pub(crate) shorthand: BTreeMap<String, String>,
    /// Maps a function to the file that calls it, if that is not the file with the alias.
    pub(crate) called_in: BTreeMap<String, String>,
    /// Functions that Rust code replaces, by file.
    pub(crate) in_rust: BTreeMap<String, BTreeSet<String>>,
    pub(crate) omitted: BTreeMap<String, Omission>,
    /// Maps a function to the version of ggml that brought it, if older ones are pinned, too.
    pub(crate) since: BTreeMap<String, String>,
}

impl CoverageList {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("docs/omitted.toml")
    }

    /// The tables for one version of ggml, and the functions that it does not have yet.
    pub(crate) fn at(&self, ggml: &str) -> (Self, BTreeSet<String>) {
        let later: BTreeSet<_> = self
            .since
            .iter()
            .filter(|(_, since)| numbers(since) > numbers(ggml))
            .map(|(name, _)| name.clone())
            .collect();
        let mut listed = self.clone();
        let kept = |name: &String| !later.contains(name);
        listed.shorthand.retain(|name, _| kept(name));
        listed.called_in.retain(|name, _| kept(name));
        listed.in_rust.values_mut().for_each(|names| names.retain(kept));
        listed.omitted.retain(|name, _| kept(name));
        (listed, later)
    }

    /// What is wrong about the versions that brought functions, given the words of one version's headers.
    pub(crate) fn misdated(&self, ggml: &str, known: &BTreeSet<String>) -> Vec<String> {
        let wrong =
            self.since.iter().filter(|(name, since)| known.contains(*name) != (numbers(since) <= numbers(ggml)));
        wrong.map(|(name, since)| format!("docs/omitted.toml: {name} is not since {since}, see ggml {ggml}")).collect()
    }

    /// All names in the tables; a name that is replaced in several files counts once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let in_rust = self.in_rust.values().flatten().collect::<BTreeSet<_>>();
        self.shorthand.keys().chain(self.called_in.keys()).chain(in_rust).chain(self.omitted.keys())
    }
}

/// The parts of a version, for comparisons.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_listed_from_its_version_on() {
        let text = "[omitted]\nggml_a = { reason = \"raw\", instead = \"x\" }\nggml_b = { reason = \"raw\", instead = \"x\" }\n\
                    [since]\nggml_b = \"0.28.0\"\n";
        let listed = CoverageList::parse(text).unwrap();
        let (old, later) = listed.at("0.9.0");
        assert_eq!((old.names().cloned().collect(), later), (vec!["ggml_a".to_owned()], ["ggml_b".to_owned()].into()));
        let (new, later) = listed.at("0.28.0");
        assert_eq!((new.names().count(), later.len()), (2, 0));
        let known = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(listed.misdated("0.28.0", &known(&["ggml_a", "ggml_b"])), [""; 0]);
        assert_eq!(listed.misdated("0.28.0", &known(&["ggml_a"])).len(), 1, "it is not there yet");
        assert_eq!(listed.misdated("0.27.0", &known(&["ggml_b"])).len(), 1, "it was there before");
    }
}
