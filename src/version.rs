//! The version of the linked ggml, and whether this crate was compiled for it.

use std::sync::OnceLock;

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::ffi;

/// The version of the linked ggml, such as `0.26.0` (`ggml_version`).
///
/// ```
/// # use ggml::prelude::*;
/// println!("ggml {} ({})", ggml::version(), ggml::commit());
/// assert!(ggml::version().starts_with("0."));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_version")]
pub fn version() -> String {
    // SAFETY: no arguments; C returns a constant string.
    let text = unsafe { sys::ggml_version() };
    // SAFETY: the version is a NUL-terminated constant.
    unsafe { ffi::string(text) }
}

/// The commit that the linked ggml was built from, or `unknown` (`ggml_commit`).
#[doc(alias = "ggml_commit")]
pub fn commit() -> String {
    // SAFETY: no arguments; C returns a constant string.
    let text = unsafe { sys::ggml_commit() };
    // SAFETY: the commit is a NUL-terminated constant.
    unsafe { ffi::string(text) }
}

/// Texts that ggml has in place of a commit if the commit is unknown.
const NO_COMMIT: &[&str] = &["", "unknown", "GGML_SYS_SOURCE_DIR"];

/// Fails if the linked ggml is not the one that this crate was compiled for, since operation constants, struct layouts
/// and function parameters may differ. That happens if another shared library of the same name is found at program
/// start, or if another crate links ggml statically as well.
///
/// This is called before any other function of ggml; the result is cached.
///
/// # Errors
///
/// [`Error::Version`].
#[inline]
pub(crate) fn check() -> Result<()> {
    static MISMATCH: OnceLock<Option<Error>> = OnceLock::new();
    match MISMATCH.get_or_init(|| compare([sys::VERSION, sys::COMMIT], [&version(), &commit()])) {
        None => Ok(()),
        Some(error) => Err(error.clone()),
    }
}

/// Compares two versions of ggml, and their commits if both are known, because constants change between releases, too.
/// `None` if they are equal.
fn compare(built: [&str; 2], found: [&str; 2]) -> Option<Error> {
    let ([_, built_commit], [_, found_commit]) = (built, found);
    let known = |commit: &str| !NO_COMMIT.contains(&commit);
    let commits = known(built_commit) && known(found_commit) && !same_commit(built_commit, found_commit);
    if built[0] == found[0] && !commits {
        return None;
    }
    let name = |[version, commit]: [&str; 2]| {
        let commit = if known(commit) { format!(" ({commit})") } else { String::new() };
        format!("{version}{commit}").into()
    };
    Some(Error::Version { built: name(built), found: name(found) })
}

/// Whether two hashes are of the same commit. Git abbreviates hashes to different lengths.
fn same_commit(a: &str, b: &str) -> bool {
    let hash = |c: &str| c.len() >= 7 && c.bytes().all(|b| b.is_ascii_hexdigit());
    a == b || (hash(a) && hash(b) && (a.starts_with(b) || b.starts_with(a)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_ggml_has_the_pinned_version() {
        assert!(check().is_ok(), "{:?}", check());
        assert_eq!(version(), sys::VERSION);
    }

    #[test]
    fn compare_refuses_another_version() {
        let Some(error) = compare(["1.2.3", "carrier-1"], ["1.2.4", "unknown"]) else { panic!("taken for the same") };
        let text = error.to_string();
        assert!(text.contains("ggml 1.2.3 (carrier-1)") && text.contains("with ggml 1.2.4;"), "{text}");
        assert!(compare(["1.2.3", "a"], ["1.2.30", "a"]).is_some(), "the whole version counts");
        assert!(compare(["1.2.3", "a"], ["", "a"]).is_some(), "none is another");
    }

    #[test]
    fn compare_uses_commits_where_both_are_known() {
        let same = |built: &str, found: &str| compare(["1.2.3", built], ["1.2.3", found]).is_none();
        assert!(!same("carrier-1", "carrier-2"));
        assert!(!same("0123456", "0123457"));
        assert!(!same("0123456", "0123456-dirty"), "changed sources");
        assert!(!same("012345", "0123456"), "too short to tell");
        for (built, found) in [
            ("carrier-1", "carrier-1"),
            ("0123456", "0123456789a"),
            ("carrier-1", "unknown"),
            ("carrier-1", ""),
            ("GGML_SYS_SOURCE_DIR", "0123456"),
        ] {
            assert!(same(built, found) && same(found, built), "{built} {found}");
        }
    }
}
