//! The versions of ggml that this crate can be compiled with.

use std::path::Path;

/// Checks that the user's sources have the pinned version: other versions have other operation numbers and struct
/// fields, which the safe layer relies on.
///
/// # Errors
///
/// Names the version found and the one required.
pub fn check(folder: &Path, version: &str, pinned: &str) -> Result<(), String> {
    if version == pinned {
        return Ok(());
    }
    Err(format!(
        "GGML_SYS_SOURCE_DIR={} is ggml {version}, and this crate is for {pinned} only: name a checkout of that version, such \
         as git's tag v{pinned}, with whatever changes, or leave the variable out",
        folder.display()
    ))
}
