//! Writing a file.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use super::header::{Entry, TensorInfo, next_offset};
use super::parse::{MOST_TEXT, unread};
use super::reader::Reader;
use super::table::{Named, Table};
use super::value::{Stored, Value, reserve, write_text};
use super::{ALIGNMENT_KEY, MAGIC, VERSION, alignment, file, invalid, name_fault};
use crate::dtype::DType;
use crate::error::{self, Error, Result, Shown};
use crate::shape::Shape;

/// A tensor, with its data unless they are to be told when they are written.
#[derive(Clone)]
struct Content {
    info: TensorInfo,
    data: Option<Box<[u8]>>,
}

impl Named for Content {
    fn name(&self) -> &str {
        self.info.name()
    }
}

/// A file that is being put together.
///
/// Metadata and tensors are written in the order in which they were added. The same contents give the same bytes.
#[derive(Clone, Default)]
pub struct Writer {
    metadata: Table<Entry>,
    tensors: Table<Content>,
}

impl Writer {
    /// A file without metadata and tensors.
    #[doc(alias = "gguf_init_empty")]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a key; a value it had is replaced.
    ///
    /// `general.alignment` says what the data of all tensors are aligned to; without it that is 32 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where the key is empty, longer than 2^30 bytes or holds a NUL, where a text or an array has more than
    /// 2^30 bytes or values, which ggml does not read, or where `general.alignment` is no `u32` that is a power of two.
    #[doc(alias = "gguf_set_val_str")]
    #[doc(alias = "gguf_set_arr_data")]
    #[doc(alias = "gguf_set_arr_str")]
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self> {
        const OP: &str = "gguf::Writer::set";
        let value = value.into();
        if key.is_empty() || key.len() as u64 > MOST_TEXT || key.contains('\0') {
            let expected = "a key must have one byte at least and 2^30 at most, and no NUL".into();
            return Err(Error::Param { op: OP, name: "key", value: shown(key), expected });
        }
        if let Some(what) = value.too_large() {
            let expected = "texts may have 2^30 bytes, and arrays 2^30 values".into();
            return Err(Error::Param { op: OP, name: "value", value: what.into(), expected });
        }
        if key == ALIGNMENT_KEY {
            alignment(Some(&value)).map_err(|why| Error::Param {
                op: OP,
                name: ALIGNMENT_KEY,
                value: value.as_array().map_or_else(|| shown(&format!("{value:?}")), |_| "an array".into()),
                expected: why.into(),
            })?;
        }
        self.metadata.put(Entry { key: key.into(), value });
        Ok(self)
    }

    /// Removes a key, and returns the value that it had (`gguf_remove_key`).
    #[doc(alias = "gguf_remove_key")]
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.metadata.remove(key).map(|entry| entry.value)
    }

    /// Sets all keys of another file to the values they have there (`gguf_set_kv`).
    ///
    /// # Errors
    ///
    /// As [`Writer::set`]: ggml reads some keys that it could not write.
    #[doc(alias = "gguf_set_kv")]
    pub fn set_kv<S>(&mut self, from: &Reader<S>) -> Result<&mut Self> {
        for (key, value) in from.metadata() {
            self.set(key, value.clone())?;
        }
        Ok(self)
    }

    /// Adds a tensor with the bytes of its elements or blocks.
    ///
    /// # Errors
    ///
    /// As [`Writer::declare`]; [`Error::Length`] where it takes another number of bytes.
    #[doc(alias = "gguf_set_tensor_data")]
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>, data: &[u8]) -> Result<&mut Self> {
        const OP: &str = "gguf::Writer::tensor";
        let info = self.describe(OP, name, dtype, shape.into())?;
        if data.len() != info.size {
            let tensor = error::TensorInfo { name: name.into(), dtype: dtype.name(), ne: info.shape.ne() };
            return Err(Error::Length { call: OP, tensor, expected: info.size, got: data.len(), unit: "bytes" });
        }
        let mut copy = reserve(data.len())?;
        copy.extend_from_slice(data);
        self.tensors.put(Content { info, data: Some(copy.into()) });
        Ok(self)
    }

    /// Adds a tensor whose data are told when they are written: by [`Writer::write_with`] or [`Writer::write_to`].
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where the name is longer than 63 bytes or holds a NUL, [`Error::Duplicate`] where it is taken,
    /// [`Error::Shape`] where there can be no such tensor.
    #[doc(alias = "gguf_add_tensor")]
    pub fn declare(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<&mut Self> {
        let info = self.describe("gguf::Writer::declare", name, dtype, shape.into())?;
        self.tensors.put(Content { info, data: None });
        Ok(self)
    }

    fn describe(&self, op: &'static str, name: &str, dtype: DType, shape: Shape) -> Result<TensorInfo> {
        if let Some(why) = name_fault(name) {
            return Err(Error::Param { op, name: "name", value: shown(name), expected: why.into() });
        }
        if self.tensors.get(name).is_some() {
            return Err(Error::Duplicate { call: op, what: "tensor", name: name.into() });
        }
        let size = shape.bytes(dtype).map_err(|why| Error::Shape {
            op,
            operands: [error::TensorInfo { name: name.into(), dtype: dtype.name(), ne: shape.ne() }].into(),
            expected: why.into(),
        })?;
        // The offset follows from the alignment, which may still change: `laid_out` sets it.
        Ok(TensorInfo { name: name.into(), dtype, shape, offset: 0, size })
    }

    /// The file as bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], and [`Error::Gguf`] where a tensor was declared without data.
    #[doc(alias = "gguf_get_meta_size")]
    #[doc(alias = "gguf_get_meta_data")]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut counter = Counted { out: io::sink(), bytes: 0 };
        self.emit(&mut counter, &mut no_data).map_err(|e| invalid(e.to_string()))?;
        let len = usize::try_from(counter.bytes).unwrap_or(usize::MAX);
        let mut out = Counted { out: reserve(len)?, bytes: 0 };
        self.emit(&mut out, &mut no_data).map_err(|e| invalid(e.to_string()))?;
        Ok(out.out)
    }

    /// Writes the file, in place of one that may be there.
    ///
    /// It is written under a random name in the same folder at first, and takes its name when it is complete and on disk:
    /// whatever happens, there is the old file or the new one, and a reader sees no other. A process that is killed may leave
    /// `.gguf-XXXXXX.tmp`, which keeps nobody from writing again. The new file has the permissions of the old one, or those of
    /// any new file; its owner is who writes, and other hard links keep the old contents. A link stays a link: what it points
    /// to is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::File`] where the system refuses, or where a tensor was declared without data. Before anything is written:
    /// where the path leads to anything but a regular file, to a read-only one, or to one that the process may not write,
    /// and where it is a link to nothing.
    #[doc(alias = "gguf_write_to_file")]
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write_with(path, no_data)
    }

    /// [`Writer::write`], with the data of the tensors that were only declared: `data` writes those of the tensor that it is
    /// given, all its bytes, in as many pieces as it likes. So a file may be larger than memory.
    ///
    /// ```
    /// # use ggml::gguf::{Reader, Writer};
    /// # use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
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
    /// [`Error::File`] where the system or `data` refuses, or where `data` writes more or fewer bytes than a tensor has.
    pub fn write_with(
        &self,
        path: impl AsRef<Path>,
        mut data: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        file::replace(path.as_ref(), |out| self.emit(&mut Counted { out, bytes: 0 }, &mut data))
    }

    /// [`Writer::write_with`] to anything that can be written to.
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
        self.emit(&mut out, &mut data).and_then(|()| out.flush()).map_err(|e| unread(&e))
    }

    /// The tensors, each where its data will begin.
    fn laid_out(&self, alignment: u32) -> Option<Vec<TensorInfo>> {
        let mut offset = 0;
        let place = |Content { info, .. }: &Content| {
            let info = TensorInfo { offset, ..info.clone() };
            offset = next_offset(&info, alignment)?;
            Some(info)
        };
        self.tensors.iter().map(place).collect()
    }

    fn emit<W: Write>(&self, out: &mut Counted<W>, fill: &mut Fill<'_>) -> io::Result<()> {
        let alignment = alignment(self.metadata.get(ALIGNMENT_KEY).map(|e| &e.value)).map_err(io::Error::other)?;
        out.write_all(MAGIC)?;
        VERSION.write(out)?;
        (self.tensors.len() as u64).write(out)?;
        (self.metadata.len() as u64).write(out)?;
        for Entry { key, value } in self.metadata.iter() {
            write_text(key, out)?;
            value.write(out)?;
        }
        let infos = self.laid_out(alignment).ok_or_else(|| io::Error::other("the tensors are too large"))?;
        infos.iter().try_for_each(|info| write_info(info, out))?;
        out.pad(alignment)?;
        for (info, Content { data, .. }) in infos.iter().zip(self.tensors.iter()) {
            let start = out.bytes;
            match data {
                Some(data) => out.write_all(data)?,
                None => fill(info, out)?,
            }
            let (name, size, written) = (Shown::name(&info.name), info.size, out.bytes - start);
            if written != size as u64 {
                return Err(io::Error::other(format!("tensor `{name}` has {size} bytes, but {written} were written")));
            }
            out.pad(alignment)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// A name as a parameter that is wrong.
fn shown(text: &str) -> Box<str> {
    Shown::name(text).to_string().into()
}

/// Writes the data of a tensor that was only declared.
type Fill<'a> = dyn FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()> + 'a;

fn no_data(info: &TensorInfo, _: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::other(format!("tensor `{}` was declared, but there are no data", Shown::name(&info.name))))
}

fn write_info(info: &TensorInfo, out: &mut impl Write) -> io::Result<()> {
    write_text(&info.name, out)?;
    let ne = info.shape.ne();
    // As in ggml, trailing dimensions of one element are left out, except for the first.
    let n_dims = ne.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1);
    u32::try_from(n_dims).map_err(io::Error::other)?.write(out)?;
    ne.iter().take(n_dims).try_for_each(|d| d.write(out))?;
    out.write_all(&info.dtype.raw().to_ne_bytes())?;
    info.offset.write(out)
}

/// Counts what is written.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Counted<W> {
    /// Writes zeros up to the next multiple of `alignment`.
    fn pad(&mut self, alignment: u32) -> io::Result<()> {
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
