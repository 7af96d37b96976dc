//! The versions of ggml that this crate can be compiled with.

use std::path::Path;

/// Checks that the user's sources have one of the versions `accepted`: others have other operation numbers and struct
/// fields, which the safe layer relies on.
///
/// # Errors
///
/// Names the version found and those accepted.
pub fn check(folder: &Path, version: &str, accepted: &[&str]) -> Result<(), String> {
    if accepted.contains(&version) {
        return Ok(());
    }
    Err(format!(
        "GGML_SYS_SOURCE_DIR={} is ggml {version}, and this build is for {} only: name a checkout of that version, such \
         as git's tag v{}, with whatever changes, or leave the variable out",
        folder.display(),
        accepted.join(" or "),
        accepted.first().unwrap_or(&"")
    ))
}
