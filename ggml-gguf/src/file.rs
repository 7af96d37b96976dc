//! Replacing a file atomically: the old file is never lost.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

pub(crate) fn fault(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.display().to_string().into(), source: error }
}

/// Replaces the contents of `path` with what `write` produces.
///
/// The contents go to a randomly named file in the same folder (hence on the same file system), which is renamed at the
/// end, or removed on error. A killed process leaves that file behind; it blocks no later write.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> Result<()> {
    let fault = |e: io::Error| fault(path, e);
    let (target, old) = target(path).map_err(fault)?;
    let mut temporary = create_beside(&target).map_err(fault)?;
    if let Some(old) = old {
        temporary.as_file().set_permissions(old.permissions()).map_err(fault)?;
    }
    let mut out = BufWriter::new(temporary.as_file_mut());
    write(&mut out).map_err(fault)?;
    out.flush().map_err(fault)?;
    drop(out);
    // Without this, the rename could reach the disk before the contents.
    temporary.as_file().sync_all().map_err(fault)?;
    temporary.persist(&target).map_err(|e| fault(e.error))?;
    Ok(())
}

pub(crate) fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "this is not a regular file")
}

/// The file to write and, if it exists, its metadata. Symbolic links are resolved, so that they stay links.
///
/// # Errors
///
/// Fails if `path` exists and must not be replaced.
fn target(path: &Path) -> io::Result<(PathBuf, Option<Metadata>)> {
    match fs::symlink_metadata(path) {
        // A dangling link may be a mistake, or point to an unmounted disk.
        Ok(link) if link.is_symlink() && !fs::exists(path)? => {
            return Err(io::Error::new(ErrorKind::NotFound, "this is a link to a file that is not there"));
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok((path.to_owned(), None)),
        Err(e) => return Err(e),
    }
    let target = fs::canonicalize(path)?;
    let old = fs::metadata(&target)?;
    // A rename would replace a device or a pipe by a regular file.
    if !old.is_file() {
        return Err(not_regular());
    }
    // A rename only needs permission for the folder. Opening alone is no test either: root may open read-only files.
    if old.permissions().readonly() {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the file that is there is read-only"));
    }
    drop(OpenOptions::new().write(true).open(&target)?);
    Ok((target, Some(old)))
}

/// Creates a temporary file in the folder of `target`, with the permissions of any new file.
fn create_beside(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gguf-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // except what the umask takes away
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_keeps_the_old_file_when_a_write_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        fs::write(&path, "old").unwrap();
        let e = replace(&path, |out| {
            out.write_all(&vec![0; 100_000])?;
            Err(ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(matches!(&e, Error::File { source, .. } if source.kind() == ErrorKind::StorageFull), "{e}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["model.gguf"]);
    }
}
