//! Replacing a file without ever losing the one that is there.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

pub(super) fn fault(path: &Path, reason: &dyn fmt::Display) -> Error {
    Error::File { path: path.display().to_string().into(), reason: reason.to_string().into() }
}

/// A file that is removed unless it gets its final name.
struct Temporary {
    path: PathBuf,
    keep: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing can be done about one that stays; what failed before is what the caller is told.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Gives `path` the contents that `write` makes.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    // A link stays one: what it points to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&target).ok();
    // A rename would put a file in place of a device or a pipe.
    if old.as_ref().is_some_and(|m| !m.is_file()) {
        return Err(fault(path, &"this is no regular file"));
    }
    let fault = |e: io::Error| fault(path, &e);
    let (file, mut temporary) = create_beside(&target).map_err(fault)?;
    if let Some(old) = old {
        file.set_permissions(old.permissions()).map_err(fault)?;
    }
    let mut out = BufWriter::new(file);
    write(&mut out).map_err(fault)?;
    out.flush().map_err(fault)?;
    // Else the new name could reach the disk before the contents do.
    out.get_ref().sync_all().map_err(fault)?;
    drop(out);
    fs::rename(&temporary.path, &target).map_err(fault)?;
    temporary.keep = true;
    Ok(())
}

/// A new file in the same folder, hence on the same file system.
fn create_beside(target: &Path) -> io::Result<(File, Temporary)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    let path = target.with_file_name(format!(".gguf-{}-{n}.tmp", process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    Ok((file, Temporary { path, keep: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_halfway_leaves_the_old_file_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("ggml-gguf-halfway-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("model.gguf");
        fs::write(&path, "old").unwrap();
        let e = replace(&path, |out| {
            out.write_all(&vec![0; 100_000])?;
            Err(io::Error::other("no space"))
        })
        .unwrap_err();
        assert!(matches!(&e, Error::File { reason, .. } if &**reason == "no space"), "{e}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["model.gguf"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
