//! Which versions of ggml this crate can be compiled with.

use std::path::Path;

/// Whether sources that a user named are of the pinned version: between versions, numbers of operations and fields of structs
/// move, and the safe layer relies on them.
///
/// # Errors
///
/// Which version they are, and which one fits.
pub(crate) fn check(folder: &Path, version: &str, pinned: &str) -> Result<(), String> {
    if version == pinned {
        return Ok(());
    }
    Err(format!(
        "GGML_SYS_SOURCE_DIR={} is ggml {version}, and this crate is for {pinned} only: name a checkout of that version, such \
         as git's tag v{pinned}, with whatever changes, or leave the variable out",
        folder.display()
    ))
}
