//! The cache on disk: large tensors that clients sent, in files named by a hash, so that they need not be sent again.
//!
//! The format is that of ggml's server: the file `%016x` of a tensor's FNV-1a hash has its bytes. Both can share a folder.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The hash of ggml's protocol (FNV-1a of 64 bits).
#[derive(Debug, Clone, Copy)]
pub(super) struct Fnv(pub(super) u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    }
}

/// A folder of cached tensors.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    limit: u64,
    held: AtomicU64,
    /// Numbers the files that are being written.
    next: AtomicU64,
}

impl Cache {
    /// Opens the folder, which is made if it is missing.
    pub(super) fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut held = 0_u64;
        for file in fs::read_dir(folder)? {
            held = held.saturating_add(file?.metadata()?.len());
        }
        Ok(Self { folder: folder.to_owned(), limit, held: AtomicU64::new(held), next: AtomicU64::new(0) })
    }

    fn path(&self, hash: u64) -> PathBuf {
        self.folder.join(format!("{hash:016x}"))
    }

    /// The bytes with this hash, and their number.
    pub(super) fn find(&self, hash: u64) -> Option<(impl Read, u64)> {
        let file = File::open(self.path(hash)).ok()?;
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((file, meta.len()))
    }

    /// Removes a file whose bytes have another hash than its name.
    pub(super) fn discard(&self, hash: u64) {
        let path = self.path(hash);
        let len = fs::metadata(&path).map_or(0, |meta| meta.len());
        if fs::remove_file(path).is_ok() {
            let less = |held: u64| Some(held.saturating_sub(len));
            self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or_default();
        }
    }

    /// Begins to store `len` bytes; `None` where there is no room for them.
    pub(super) fn store(&self, len: u64) -> Option<NewFile<'_>> {
        let fits = |held: u64| held.checked_add(len).filter(|&sum| sum <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("new-{}-{number}", std::process::id()));
        let file = File::create(&path).ok();
        let new = NewFile { cache: self, path, file, len, hash: Fnv::default(), is_kept: false };
        new.file.is_some().then_some(new)
    }
}

/// A file that is being written. It is removed unless it was kept.
#[derive(Debug)]
pub(super) struct NewFile<'a> {
    cache: &'a Cache,
    path: PathBuf,
    /// `None` once writing has failed.
    file: Option<File>,
    len: u64,
    hash: Fnv,
    is_kept: bool,
}

impl NewFile<'_> {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hash.add(bytes);
        if self.file.as_mut().is_some_and(|file| file.write_all(bytes).is_err()) {
            self.file = None;
        }
    }

    /// Keeps the file under the hash of its bytes, unless there is one of that name.
    pub(super) fn keep(mut self) {
        let to = self.cache.path(self.hash.0);
        if self.file.take().is_some() && !to.exists() {
            self.is_kept = fs::rename(&self.path, to).is_ok();
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.file = None;
            drop(fs::remove_file(&self.path));
            self.cache.held.fetch_sub(self.len, Ordering::Relaxed);
        }
    }
}
