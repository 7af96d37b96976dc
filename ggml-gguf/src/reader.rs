//! What a file holds, and its data in memory or in a mapped file.

use std::fmt;
use std::fs::File;
use std::ops::Range;

use crate::error::Result;
use crate::header::{Header, TensorInfo};
use crate::value::Value;

/// A GGUF file whose header has been read and checked.
///
/// `S` is the source of the tensors' data: bytes ([`Reader::from_bytes`]), such as those of a mapped file, or a stream
/// that is read on demand ([`Reader::open`], [`Reader::from_stream`]). Metadata and tensor descriptions are kept in
/// memory, as a small multiple of their size in the file. A function that takes `&Reader` takes what [`Reader::open`]
/// returns; one that takes `&Reader<S>` takes any.
///
/// ```
/// use ggml_gguf::{DType, Reader, Writer};
/// # let mut writer = Writer::new();
/// # writer.set("general.name", "Tiny")?.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
/// # let file = writer.to_bytes()?;
/// let reader = Reader::from_bytes(file)?;
/// assert_eq!(reader.metadata("general.name").and_then(|value| value.as_str()), Some("Tiny"));
/// assert_eq!(reader.data("w")?, [1, 2, 3, 4]);
/// # Ok::<(), ggml_gguf::Error>(())
/// ```
#[doc(alias = "gguf_context")]
#[derive(Clone)]
pub struct Reader<S = File> {
    pub(crate) header: Header,
    pub(crate) source: S,
    /// The file's name, for messages.
    pub(crate) name: Box<str>,
}

impl<S> Reader<S> {
    /// The version of the format (`gguf_get_version`).
    #[doc(alias = "gguf_get_version")]
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The alignment of every tensor's data, in bytes (`gguf_get_alignment`).
    #[doc(alias = "gguf_get_alignment")]
    pub fn alignment(&self) -> u32 {
        self.header.alignment
    }

    /// The value of a metadata key (`gguf_find_key`).
    #[doc(alias = "gguf_find_key")]
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.header.metadata.get(key).map(|e| &e.value)
    }

    /// All keys and values, in file order.
    #[doc(alias = "gguf_get_n_kv")]
    #[doc(alias = "gguf_get_key")]
    pub fn key_values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.header.metadata.iter().map(|e| (&*e.key, &e.value))
    }

    /// The descriptions of all tensors, in file order.
    #[doc(alias = "gguf_get_n_tensors")]
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.header.tensors.iter()
    }

    /// The offset of the data section from the beginning of the file, in bytes (`gguf_get_data_offset`).
    #[doc(alias = "gguf_get_data_offset")]
    pub fn data_offset(&self) -> u64 {
        self.header.data
    }

    /// The description of a tensor (`gguf_find_tensor`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) if there is no such tensor; it lists the existing names.
    #[doc(alias = "gguf_find_tensor")]
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.header.tensor(name)
    }

    /// The range of a tensor's data in the file, in bytes.
    ///
    /// # Errors
    ///
    /// As [`Reader::tensor`].
    pub fn range(&self, name: &str) -> Result<Range<u64>> {
        Ok(self.header.range(self.tensor(name)?))
    }

    /// The same file with what `f` makes of the source, such as a shared one of the same data.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ggml_gguf::{DType, Reader, Writer};
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
    /// let reader = Reader::from_bytes(writer.to_bytes()?)?.map_source(Arc::<[u8]>::from);
    /// let shared = Arc::clone(reader.source());
    /// assert_eq!(reader.data("w")?, &shared[reader.range("w")?.start as usize..][..4]);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    pub fn map_source<T>(self, f: impl FnOnce(S) -> T) -> Reader<T> {
        let Self { header, source, name } = self;
        Reader { header, source: f(source), name }
    }

    /// The source of the data.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the source of the data.
    pub fn into_source(self) -> S {
        self.source
    }
}

impl<B: AsRef<[u8]>> Reader<B> {
    /// Reads a file from memory, or from a memory mapping.
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`](crate::Error::Gguf) if it is not a GGUF file, is damaged, or is not supported by ggml.
    #[doc(alias = "gguf_init_from_buffer")]
    pub fn from_bytes(bytes: B) -> Result<Self> {
        let file = bytes.as_ref();
        let header = Header::read(file, file.len() as u64)?;
        Ok(Self { header, source: bytes, name: "bytes".into() })
    }

    /// The data of a tensor, as stored in the file.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) if there is no such tensor; it lists the existing names. [`Error::Gguf`](crate::Error::Gguf)
    /// if the source has fewer bytes than when it was opened.
    pub fn data(&self, name: &str) -> Result<&[u8]> {
        let t = self.tensor(name)?;
        let range = self.header.range(t);
        let place = |n| usize::try_from(n).ok();
        let range = place(range.start).zip(place(range.end)).map(|(start, end)| start..end);
        range.and_then(|range| self.source.as_ref().get(range)).ok_or_else(|| self.header.cut(&self.name, t))
    }
}

impl<S> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("name", &self.name)
            .field("version", &self.header.version)
            .field("metadata", &self.header.metadata.len())
            .field("tensors", &self.header.tensors.len())
            .finish_non_exhaustive()
    }
}
