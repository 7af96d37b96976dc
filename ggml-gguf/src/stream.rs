//! Reading files on demand, from a stream.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::file;
use crate::header::{Header, within};
use crate::parse::{STREAM, unread};
use crate::reader::Reader;
use crate::room::reserve;
use crate::shown::Shown;

/// How many bytes of a tensor are in memory at a time while it is copied.
const CHUNK: usize = 4 << 20;

impl Reader<File> {
    /// Opens a file and reads its header; the tensors' data are read on demand.
    ///
    /// ```
    /// use ggml_gguf::{DType, Reader, Writer};
    /// # let path = std::env::temp_dir().join(format!("ggml-doc-open-{}.gguf", std::process::id()));
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?.write(&path)?;
    /// let mut reader = Reader::open(&path)?; // reads the header
    /// let w = reader.read("w")?; // reads this tensor
    /// # std::fs::remove_file(&path).ok();
    /// assert_eq!(w, [1, 2, 3, 4]);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it can't be read; [`Error::Gguf`] if it is not a GGUF file, is damaged, or is not supported
    /// by ggml.
    #[doc(alias = "gguf_init_from_file")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let fault = |e| file::fault(path, e);
        // Checked before opening: opening a pipe without a writer blocks, and pipes and devices may never end.
        if !fs::metadata(path).map_err(fault)?.is_file() {
            return Err(fault(file::not_regular()));
        }
        let file = File::open(path).map_err(fault)?;
        let name: Box<str> = path.display().to_string().into();
        let reader = Self::from_stream(file).map_err(|e| named(&name, within(&name, e)))?;
        Ok(Self { name, ..reader })
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header of a file from a seekable stream. The file starts at the beginning of the stream.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    #[doc(alias = "gguf_init_from_file_ptr")]
    #[doc(alias = "gguf_init_from_callback")]
    pub fn from_stream(mut stream: R) -> Result<Self> {
        let len = stream.seek(SeekFrom::End(0)).map_err(unread)?;
        stream.rewind().map_err(unread)?;
        let header = Header::read(BufReader::new(&mut stream), len)?;
        Ok(Self { header, source: stream, name: STREAM.into() })
    }

    /// Reads the data of a tensor.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the existing names; [`Error::File`] if the data can't be read; [`Error::Gguf`] if the file was
    /// cut since it was opened; [`Error::OutOfMemory`].
    pub fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        let size = self.header.tensor(name)?.size();
        let mut data = reserve(size)?;
        data.resize(size, 0);
        self.read_into(name, 0, &mut data)?;
        Ok(data)
    }

    /// Reads a part of a tensor's data, from byte `offset` of them on. So a tensor can be larger than memory.
    ///
    /// ```
    /// use ggml_gguf::{DType, Reader, Writer};
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
    /// # let file = std::io::Cursor::new(writer.to_bytes()?);
    /// let mut reader = Reader::from_stream(file)?;
    /// let mut half = [0; 2];
    /// reader.read_into("w", 2, &mut half)?;
    /// assert_eq!(half, [3, 4]);
    /// assert!(reader.read_into("w", 3, &mut half).is_err());
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reader::read`]; [`Error::Param`] if the part lies outside of the data.
    pub fn read_into(&mut self, name: &str, offset: usize, to: &mut [u8]) -> Result<()> {
        let t = self.header.tensor(name)?;
        if offset.checked_add(to.len()).is_none_or(|end| end > t.size()) {
            let (call, value) = ("gguf::Reader::read_into", format!("{} bytes from byte {offset} on", to.len()));
            let expected = format!("tensor `{}` has {} bytes", Shown::name(name), t.size()).into();
            return Err(Error::Param { call, name: "to", value: value.into(), expected });
        }
        let start = self.header.range(t).start + offset as u64;
        let read = self.source.seek(SeekFrom::Start(start)).and_then(|_| self.source.read_exact(to));
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.header.cut(&self.name, t),
            _ => self.fault(e),
        })
    }

    /// Writes the data of a tensor to `out`, some megabytes at a time.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`]; also fails if writing to `out` does.
    pub fn copy(&mut self, name: &str, mut out: impl Write) -> Result<()> {
        let size = self.header.tensor(name)?.size();
        let mut chunk = reserve(size.min(CHUNK))?;
        chunk.resize(size.min(CHUNK), 0);
        for at in (0..size).step_by(CHUNK) {
            let piece = chunk.get_mut(..CHUNK.min(size - at)).unwrap_or_default();
            self.read_into(name, at, piece)?;
            out.write_all(piece).map_err(unread)?;
        }
        Ok(())
    }

    /// Reads the whole file into memory.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it can't be read; [`Error::OutOfMemory`].
    pub fn into_memory(mut self) -> Result<Reader<Vec<u8>>> {
        let len = self.source.seek(SeekFrom::End(0)).map_err(|e| self.fault(e))?;
        let mut bytes = reserve(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.source.rewind().map_err(|e| self.fault(e))?;
        self.source.by_ref().take(len).read_to_end(&mut bytes).map_err(|e| self.fault(e))?;
        Ok(Reader { header: self.header, source: bytes, name: self.name })
    }

    fn fault(&self, e: io::Error) -> Error {
        file::fault((*self.name).as_ref(), e)
    }
}

/// Replaces a stream's generic name in the error by the file's.
fn named(name: &str, e: Error) -> Error {
    match e {
        Error::File { source, .. } => Error::File { path: name.into(), source },
        other => other,
    }
}
