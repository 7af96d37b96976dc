//! Reading files on demand, from a stream.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::file;
use super::header::{Header, TensorInfo, within};
use super::parse::{STREAM, unread};
use super::reader::{self, Reader};
use super::value::reserve;
use crate::buffer::BufferType;
use crate::device::DeviceType;
use crate::error::{Error, Result};
use crate::weights::Weights;

/// How many bytes of a tensor are in memory at a time while it is streamed.
const CHUNK: usize = 4 << 20;

impl Reader<File> {
    /// Opens a file and reads its header; the tensors' data are read on demand.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::{Reader, Writer};
    /// # let path = std::env::temp_dir().join(format!("ggml-doc-open-{}.gguf", std::process::id()));
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?.write(&path)?;
    /// let mut reader = Reader::open(&path)?; // reads the header
    /// let w = reader.read("w")?; // reads this tensor
    /// # std::fs::remove_file(&path).ok();
    /// assert_eq!(w, [1, 2, 3, 4]);
    /// # Ok::<(), ggml::Error>(())
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
    /// [`Error::NoSuch`] lists the existing names; [`Error::File`] if the data can't be read; [`Error::OutOfMemory`].
    pub fn read(&mut self, name: &str) -> Result<Vec<u8>> {
        let t = self.header.tensor(name)?;
        let start = self.header.range(t)?.start;
        let mut data = reserve(t.size())?;
        data.resize(t.size(), 0);
        self.source
            .seek(SeekFrom::Start(start))
            .and_then(|_| self.source.read_exact(&mut data))
            .map_err(|e| self.fault(e))?;
        Ok(data)
    }

    /// Copies each tensor, some megabytes at a time, into the buffer type that `place` returns for it; tensors with
    /// `None` are skipped. Repacking buffer types and meta devices take each tensor as a whole: the largest of those is
    /// then in host memory once. `progress` receives the number of bytes loaded so far and in total.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::{Reader, Writer};
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
    /// # let file = std::io::Cursor::new(writer.to_bytes()?);
    /// let mut reader = Reader::from_stream(file)?;
    /// let device = Device::best()?;
    /// let weights = reader.stream(|_| device, |done, total| println!("{done} of {total} bytes"))?;
    /// assert_eq!(weights.read_bytes("w")?, [1, 2, 3, 4]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place_with`](crate::WeightsBuilder::place_with); fails if a device refuses the data;
    /// [`Error::File`] if they can't be read.
    pub fn stream<P: Into<Option<BufferType>>>(
        &mut self,
        mut place: impl FnMut(&str) -> P,
        progress: impl FnMut(u64, u64),
    ) -> Result<Weights> {
        self.stream_with_info(|t| place(t.name()), progress)
    }

    /// [`Reader::stream`] whose closure is told all that the file says about a tensor, such as its type and shape.
    ///
    /// # Errors
    ///
    /// As [`Reader::stream`].
    pub fn stream_with_info<P: Into<Option<BufferType>>>(
        &mut self,
        place: impl FnMut(&TensorInfo) -> P,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Weights> {
        let (mut weights, chosen) = reader::place(&self.header, place)?;
        // A meta device takes a tensor as a whole, since each device gets a part; repacking needs the whole tensor too.
        let several = |buft: BufferType| buft.device().is_some_and(|d| d.device_type() == DeviceType::Meta);
        let total = chosen.iter().map(|(t, _)| t.size() as u64).sum();
        let mut done = 0;
        progress(done, total);
        let mut chunk = Vec::new();
        for (t, buft) in chosen {
            let most = if several(buft) || buft.is_extra()? { t.size() } else { CHUNK };
            let pieces = Pieces { header: &self.header, source: &mut self.source, name: &self.name, chunk: &mut chunk };
            pieces.each(t, most, |at, piece| {
                weights.set_bytes_at(t.name(), at, piece)?;
                done += piece.len() as u64;
                progress(done, total);
                Ok(())
            })?;
        }
        Ok(weights)
    }

    /// Writes the data of a tensor to `out`, some megabytes at a time.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`]; also fails if writing to `out` does.
    pub fn copy(&mut self, name: &str, mut out: impl Write) -> Result<()> {
        let t = self.header.tensor(name)?;
        let mut chunk = Vec::new();
        let pieces = Pieces { header: &self.header, source: &mut self.source, name: &self.name, chunk: &mut chunk };
        pieces.each(t, CHUNK, |_, piece| out.write_all(piece).map_err(unread))
    }

    /// Reads the whole file into memory.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it can't be read; [`Error::OutOfMemory`].
    pub fn into_memory(mut self) -> Result<Reader> {
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

/// Reads tensors piece by piece through a reusable buffer.
struct Pieces<'a, R> {
    header: &'a Header,
    source: &'a mut R,
    name: &'a str,
    chunk: &'a mut Vec<u8>,
}

impl<R: Read + Seek> Pieces<'_, R> {
    /// Calls `f` with the offset and the bytes of each piece of `t`, at most `most` bytes each.
    fn each(self, t: &TensorInfo, most: usize, mut f: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let fault = |e| file::fault(self.name.as_ref(), e);
        let len = t.size().min(most);
        if self.chunk.len() < len {
            // Frees the old buffer first, so that both are never in memory together.
            *self.chunk = Vec::new();
            *self.chunk = reserve(len)?;
            self.chunk.resize(len, 0);
        }
        let start = self.header.range(t)?.start;
        self.source.seek(SeekFrom::Start(start)).map_err(fault)?;
        let mut at = 0;
        while at < t.size() {
            let piece = self.chunk.get_mut(..len.min(t.size() - at)).unwrap_or_default();
            self.source.read_exact(piece).map_err(fault)?;
            f(at, piece)?;
            at += piece.len();
        }
        Ok(())
    }
}

/// Replaces a stream's generic name in the error by the file's.
fn named(name: &str, e: Error) -> Error {
    match e {
        Error::File { source, .. } => Error::File { path: name.into(), source },
        other => other,
    }
}
