//! Writing files.

use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::path::Path;

use crate::dtype::DType;
use crate::error::invalid;
use crate::error::{Error, Result};
use crate::file;
use crate::format::{ALIGNMENT_KEY, MAGIC, VERSION, key_fault, name_fault};
use crate::header::{Entry, TensorInfo, next_offset};
use crate::parse::unread;
use crate::reader::Reader;
use crate::room::{self, reserve};
use crate::shape::Shape;
use crate::shown::Shown;
use crate::stored::{Stored, write_text};
use crate::table::{Named, Table};
use crate::value::Value;
use crate::value::alignment;

/// A tensor and its data; `None` if a closure provides the data during the write.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) info: TensorInfo,
    data: Option<Box<[u8]>>,
}

impl Content {
    /// Writes the data, by `fill` if there are none, and checks that they are all of the tensor's.
    pub(crate) fn emit<W: Write>(&self, offset: u64, out: &mut Counted<W>, fill: &mut Fill<'_>) -> io::Result<()> {
        let Self { info, data } = self;
        let start = out.bytes;
        if let Some(data) = data {
            out.write_all(data)?;
        } else {
            let name = room::text(&info.name).map_err(|_| io::ErrorKind::OutOfMemory)?;
            fill(&TensorInfo { name: name.into(), offset, ..*info }, out)?;
        }
        let (name, size, written) = (Shown::name(&info.name), info.size, out.bytes - start);
        if written != size as u64 {
            return Err(io::Error::other(format!("tensor `{name}` has {size} bytes, but {written} were written")));
        }
        Ok(())
    }
}

impl Named for Content {
    fn name(&self) -> &str {
        self.info.name()
    }
}

/// Builds and writes a GGUF file.
///
/// Metadata and tensors are written in the order in which they were added. The same contents give the same bytes.
///
/// ```
/// use ggml_gguf::{DType, Reader, Writer};
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "mlp")?.set("mlp.layers", 2_u32)?;
/// writer.tensor("w", DType::F32, [2], &[0; 8])?;
/// let file = writer.to_bytes()?; // or `writer.write("mlp.gguf")`
/// assert_eq!(Reader::from_bytes(file)?.tensors().count(), 1);
/// # Ok::<(), ggml_gguf::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Writer {
    pub(crate) metadata: Table<Entry>,
    pub(crate) tensors: Table<Content>,
}

impl Writer {
    /// Creates a file without metadata and tensors.
    #[doc(alias = "gguf_init_empty")]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a metadata key, replacing an earlier value.
    ///
    /// `general.alignment` is the alignment of all tensors' data in bytes; the default is 32.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the key is empty, longer than 65535 bytes or contains a NUL; if a string or array has more
    /// than 2^30 bytes or values, ggml's limit; or if `general.alignment` is not a `u32` that is a power of two.
    #[doc(alias = "gguf_set_val_str")]
    #[doc(alias = "gguf_set_arr_data")]
    #[doc(alias = "gguf_set_arr_str")]
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self> {
        const CALL: &str = "gguf::Writer::set";
        let value = value.into();
        if let Some(why) = key_fault(key) {
            return Err(Error::Param { call: CALL, name: "key", value: shown(key), expected: why.into() });
        }
        if let Some(what) = value.too_large() {
            let expected = "texts may have 2^30 bytes, and arrays 2^30 values".into();
            return Err(Error::Param { call: CALL, name: "value", value: what.into(), expected });
        }
        if key == ALIGNMENT_KEY {
            alignment(Some(&value)).map_err(|why| Error::Param {
                call: CALL,
                name: ALIGNMENT_KEY,
                value: value.as_array().map_or_else(|| shown(&format!("{value:?}")), |_| "an array".into()),
                expected: why.into(),
            })?;
        }
        self.metadata.put(Entry { key: room::text(key)?.into(), value })?;
        Ok(self)
    }

    /// Removes a metadata key and returns its value (`gguf_remove_key`).
    #[doc(alias = "gguf_remove_key")]
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.metadata.remove(key).map(|entry| entry.value)
    }

    /// Copies all metadata of another file, replacing earlier values (`gguf_set_kv`).
    ///
    /// ```
    /// use ggml_gguf::{Reader, Writer};
    /// # let mut original = Writer::new();
    /// # original.set("general.name", "Tiny")?;
    /// # let reader = Reader::from_bytes(original.to_bytes()?)?;
    /// let mut writer = Writer::new();
    /// writer.set_kv(&reader)?.set("general.file_type", 2_u32)?; // all that the file says, and one change
    /// assert_eq!(Reader::from_bytes(writer.to_bytes()?)?.key_values().count(), 2);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    #[doc(alias = "gguf_set_kv")]
    pub fn set_kv<S>(&mut self, from: &Reader<S>) -> Result<&mut Self> {
        for (key, value) in from.key_values() {
            self.set(key, value.copied()?)?;
        }
        Ok(self)
    }

    /// Adds a tensor; `data` are the bytes of its elements or quantised blocks.
    ///
    /// # Errors
    ///
    /// As [`Writer::declare`]; [`Error::Length`] if `data` has another length than the tensor.
    #[doc(alias = "gguf_set_tensor_data")]
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>, data: &[u8]) -> Result<&mut Self> {
        const CALL: &str = "gguf::Writer::tensor";
        let info = self.describe(CALL, name, dtype, shape.into())?;
        if data.len() != info.size {
            let TensorInfo { name, dtype, shape, size: expected, .. } = info;
            return Err(Error::Length { call: CALL, name, dtype, shape, expected, got: data.len() });
        }
        self.tensors.put(Content { info, data: Some(room::copy(data)?.into()) })?;
        Ok(self)
    }

    /// Adds a tensor without data; [`Writer::write_with`] or [`Writer::write_to`] gets them from a closure.
    ///
    /// ```
    /// use ggml_gguf::{DType, Writer};
    /// let mut writer = Writer::new();
    /// writer.declare("ones", DType::I8, [3])?; // no data yet
    /// let mut file = Vec::new();
    /// writer.write_to(&mut file, |t, out| out.write_all(&vec![1; t.size()]))?;
    /// assert_eq!(file.len() % 32, 0);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the name is longer than 63 bytes or contains a NUL; [`Error::Duplicate`] if it is in use;
    /// [`Error::Shape`] if a tensor of this type can't have this shape.
    #[doc(alias = "gguf_add_tensor")]
    pub fn declare(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<&mut Self> {
        let info = self.describe("gguf::Writer::declare", name, dtype, shape.into())?;
        self.tensors.put(Content { info, data: None })?;
        Ok(self)
    }

    fn describe(&self, call: &'static str, name: &str, dtype: DType, shape: Shape) -> Result<TensorInfo> {
        if let Some(why) = name_fault(name) {
            return Err(Error::Param { call, name: "name", value: shown(name), expected: why.into() });
        }
        if self.tensors.get(name).is_some() {
            return Err(Error::Duplicate { call, what: "tensor", name: name.into() });
        }
        let size =
            shape.nbytes(dtype).map_err(|reason| Error::Shape { call, name: name.into(), dtype, shape, reason })?;
        // The offset depends on the alignment, which may still change: `laid_out` counts it.
        Ok(TensorInfo { name: room::text(name)?.into(), dtype, shape, offset: 0, size })
    }

    /// Returns the file as bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Gguf`] if a tensor was declared without data.
    #[doc(alias = "gguf_get_meta_size")]
    #[doc(alias = "gguf_get_meta_data")]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut counter = Counted { out: io::sink(), bytes: 0 };
        self.emit(&mut counter, &mut no_data).map_err(|e| unwritten(&e))?;
        let len = usize::try_from(counter.bytes).unwrap_or(usize::MAX);
        let mut out = Counted { out: reserve(len)?, bytes: 0 };
        self.emit(&mut out, &mut no_data).map_err(|e| unwritten(&e))?;
        Ok(out.out)
    }

    /// Writes the file to `path`, replacing an existing file atomically.
    ///
    /// The data go to a randomly named file in the same folder, which is renamed when it is complete and on disk: there
    /// is always either the old file or the new one, and readers see nothing else. A killed process may leave
    /// `.gguf-XXXXXX.tmp` behind, which blocks no later write. The new file gets the permissions of the old one, or
    /// those of any new file; it belongs to the current user, and other hard links keep the old contents. A symbolic
    /// link stays a link: its target is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the system refuses, or if a tensor was declared without data. Fails before writing anything
    /// if the path leads to something other than a regular file, to a read-only file, or to one that the process may
    /// not write, or if it is a dangling link.
    #[doc(alias = "gguf_write_to_file")]
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_with(path, no_data)
    }

    /// Writes the file as [`Writer::write`] does; `data` provides the data of declared tensors. It is called with each
    /// such tensor and writes all its bytes, in any number of pieces. So a file may be larger than memory.
    ///
    /// ```
    /// # use ggml_gguf::{DType, Reader, Writer};
    /// # fn main() -> ggml_gguf::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("ggml-doc-{}.gguf", std::process::id()));
    /// let mut writer = Writer::new();
    /// writer.declare("ones", DType::I8, [1000])?;
    /// writer.write_with(&path, |_, out| (0..10).try_for_each(|_| out.write_all(&[1; 100])))?;
    /// assert_eq!(Reader::open(&path)?.read("ones")?, [1; 1000]);
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the system or `data` fails, or if `data` writes more or fewer bytes than the tensor has.
    pub fn write_with(
        &self,
        path: impl AsRef<Path>,
        mut data: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        file::replace(path.as_ref(), |out| self.emit(&mut Counted { out, bytes: 0 }, &mut data))
    }

    /// Writes the file as [`Writer::write_with`] does, to any writer.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_with`].
    #[doc(alias = "gguf_write_to_file_ptr")]
    pub fn write_to(
        &self,
        out: impl Write,
        mut data: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = Counted { out, bytes: 0 };
        self.emit(&mut out, &mut data).and_then(|()| out.flush()).map_err(unread)
    }

    /// The tensors with their offsets.
    ///
    /// # Errors
    ///
    /// For a tensor whose end overflows.
    fn laid_out(&self, alignment: u32) -> impl Iterator<Item = io::Result<(u64, &Content)>> {
        let mut next = 0;
        self.tensors.iter().map(move |content| {
            let end = next_offset(&content.info, next, alignment);
            let end = end.ok_or_else(|| io::Error::other("the tensors are too large"))?;
            Ok((mem::replace(&mut next, end), content))
        })
    }

    fn emit<W: Write>(&self, out: &mut Counted<W>, fill: &mut Fill<'_>) -> io::Result<()> {
        let alignment = alignment(self.metadata.get(ALIGNMENT_KEY).map(|e| &e.value)).map_err(io::Error::other)?;
        self.laid_out(alignment).try_for_each(|tensor| tensor.map(drop))?;
        out.write_all(MAGIC)?;
        VERSION.write(out)?;
        (self.tensors.len() as u64).write(out)?;
        (self.metadata.len() as u64).write(out)?;
        for Entry { key, value } in self.metadata.iter() {
            write_text(key, out)?;
            value.write(out)?;
        }
        for tensor in self.laid_out(alignment) {
            let (offset, Content { info, .. }) = tensor?;
            write_info(info, offset, out)?;
        }
        out.pad(alignment)?;
        for tensor in self.laid_out(alignment) {
            let (offset, content) = tensor?;
            content.emit(offset, out, fill)?;
            out.pad(alignment)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metadata, tensors) = (self.metadata.len(), self.tensors.len());
        f.debug_struct("Writer").field("metadata", &metadata).field("tensors", &tensors).finish_non_exhaustive()
    }
}

/// The error of a write to memory.
pub(crate) fn unwritten(e: &io::Error) -> Error {
    if e.kind() == io::ErrorKind::OutOfMemory { Error::OutOfMemory { bytes: None } } else { invalid(e.to_string()) }
}

/// A name as printed in [`Error::Param`].
fn shown(text: &str) -> Box<str> {
    Shown::name(text).to_string().into()
}

/// Writes the data of a declared tensor.
pub(crate) type Fill<'a> = dyn FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()> + 'a;

pub(crate) fn no_data(info: &TensorInfo, _: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::other(format!("tensor `{}` was declared, but there are no data", Shown::name(&info.name))))
}

fn write_info(info: &TensorInfo, offset: u64, out: &mut impl Write) -> io::Result<()> {
    write_text(&info.name, out)?;
    let ne = info.shape.ne();
    // As in ggml, trailing dimensions of size 1 are omitted, except for the first.
    let n_dims = ne.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1);
    u32::try_from(n_dims).map_err(io::Error::other)?.write(out)?;
    ne.iter().take(n_dims).try_for_each(|d| d.write(out))?;
    info.dtype.id().write(out)?;
    offset.write(out)
}

/// Counts the bytes written.
pub(crate) struct Counted<W> {
    pub(crate) out: W,
    pub(crate) bytes: u64,
}

impl<W: Write> Counted<W> {
    /// Writes zeros up to the next multiple of `alignment`.
    pub(crate) fn pad(&mut self, alignment: u32) -> io::Result<()> {
        let end = self.bytes.checked_next_multiple_of(alignment.into()).unwrap_or(self.bytes);
        let n = end - self.bytes;
        io::copy(&mut io::Read::take(io::repeat(0), n), self).map(drop)
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
