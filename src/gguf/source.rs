//! Where a file's bytes come from: memory, or the file system.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::callback::State;
use crate::error::{Error, Result};

/// The bytes of a GGUF file.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Bytes(Cow<'a, [u8]>),
    File { file: Mutex<File>, path: PathBuf, len: u64 },
}

/// An error that names the file.
pub(super) fn file_error(path: &Path, e: &io::Error) -> Error {
    Error::File { path: path.display().to_string().into(), reason: e.to_string().into() }
}

impl Source<'_> {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fail = |e: io::Error| file_error(path, &e);
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        Ok(Self::File { file: Mutex::new(file), path: path.into(), len: meta.len() })
    }

    /// The number of bytes there are.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Lets `f` read the bytes from their beginning.
    pub(super) fn with_header<R>(&self, f: impl FnOnce(&HeaderReader<'_>) -> Result<R>) -> Result<R> {
        match self {
            Self::Bytes(bytes) => HeaderReader::new(&mut Cursor::new(bytes.as_ref())).run(f, |e| self.error(&e)),
            Self::File { file, .. } => {
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                // The parser asks for a few bytes at a time.
                HeaderReader::new(&mut BufReader::new(&*file)).run(f, |e| self.error(&e))
            }
        }
    }

    /// `size` bytes from `offset` on, which lie inside [`Source::len`].
    pub(super) fn read(&self, offset: u64, size: usize) -> Result<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).ok();
                let part = start.and_then(|start| bytes.get(start..start.checked_add(size)?));
                part.map(Cow::Borrowed).ok_or_else(|| self.error(&io::ErrorKind::UnexpectedEof.into()))
            }
            Self::File { file, .. } => {
                let mut data = Vec::new();
                data.try_reserve_exact(size).map_err(|_| Error::OutOfMemory {
                    what: "reading a tensor from a file".into(),
                    bytes: size,
                    log: Box::default(),
                })?;
                data.resize(size, 0);
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.seek(SeekFrom::Start(offset)).map_err(|e| self.error(&e))?;
                file.read_exact(&mut data).map_err(|e| self.error(&e))?;
                Ok(Cow::Owned(data))
            }
        }
    }

    fn error(&self, e: &io::Error) -> Error {
        match self {
            Self::Bytes(_) => file_error(Path::new("bytes in memory"), e),
            Self::File { path, .. } => file_error(path, e),
        }
    }
}

/// A file or bytes: what a parser can read and skip in.
trait Input: Read + Seek {}

impl<T: Read + Seek> Input for T {}

/// What the C parser calls back for bytes.
pub(super) struct HeaderReader<'a>(State<Reading<'a>>);

struct Reading<'a> {
    from: &'a mut dyn Input,
    /// Where `from` is; asking it would cost a call of the system each time.
    at: u64,
    /// The parser's memory may be uninitialised, which no `&mut [u8]` may be: the bytes go through this.
    chunk: [u8; 1024],
    error: Option<io::Error>,
}

impl<'a> HeaderReader<'a> {
    fn new(from: &'a mut dyn Input) -> Self {
        Self(State::new(Reading { from, at: 0, chunk: [0; 1024], error: None }))
    }

    /// Runs `f`; an error of the file comes before whatever the parser made of the missing bytes.
    fn run<R>(self, f: impl FnOnce(&Self) -> Result<R>, error: impl FnOnce(io::Error) -> Error) -> Result<R> {
        let result = f(&self);
        let failed = self.0.run(|reading| reading.error.take()).flatten();
        self.0.finish();
        failed.map_or(result, |e| Err(error(e)))
    }

    /// What C takes as its user data.
    pub(super) fn as_user(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

impl Reading<'_> {
    /// Reads up to `len` bytes at `offset` and hands them to `put` piece by piece; fewer at the end.
    fn read_at(&mut self, offset: u64, len: usize, mut put: impl FnMut(usize, &[u8])) -> io::Result<usize> {
        if self.at != offset {
            self.from.seek(SeekFrom::Start(offset))?;
            self.at = offset;
        }
        let mut done = 0;
        while done < len {
            let want = self.chunk.len().min(len - done);
            let n = match self.from.read(self.chunk.get_mut(..want).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => n.min(want),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            put(done, self.chunk.get(..n).unwrap_or_default());
            done += n;
            self.at += n as u64;
        }
        Ok(done)
    }
}

/// # Safety
///
/// `user` must be [`HeaderReader::as_user`] of a live reader, and `output` have room for `len` bytes, initialised or not.
pub(super) unsafe extern "C-unwind" fn on_read(
    user: *mut c_void,
    output: *mut c_void,
    offset: u64,
    len: usize,
) -> usize {
    // SAFETY: live by contract; the reader is behind a RefCell.
    let reader = unsafe { &*user.cast::<HeaderReader<'_>>() };
    let read = reader.0.run(|reading| {
        let read = reading.read_at(offset, len, |done, bytes| {
            // SAFETY: `done + bytes.len() <= len` bytes have room by contract, and `bytes` are ours, no part of `output`.
            let to = unsafe { output.cast::<u8>().add(done) };
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        });
        read.map_err(|e| reading.error = Some(e))
    });
    // Too few bytes end the parsing.
    read.and_then(std::result::Result::ok).unwrap_or(0)
}
