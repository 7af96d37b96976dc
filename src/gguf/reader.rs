//! What a file holds, and reading it from memory or from a mapped file.

use std::fmt;
use std::sync::Arc;

use super::header::{Header, TensorInfo, outside};
use super::value::Value;
use crate::buffer::BufferType;
use crate::device::Device;
use crate::error::Result;
use crate::list;
use crate::weights::{Weights, WeightsBuilder};

/// A GGUF file whose header has been read and checked.
///
/// `S` is the source of the tensors' data: bytes ([`Reader::from_bytes`]), such as those of a mapped file, or a stream
/// that is read on demand ([`Reader::open`], [`Reader::from_stream`]). Metadata and tensor descriptions are kept in
/// memory, as a small multiple of their size in the file.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::gguf::{Reader, Writer};
/// # let mut writer = Writer::new();
/// # writer.set("general.name", "Tiny")?.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
/// # let file = writer.to_bytes()?;
/// let reader = Reader::from_bytes(file)?;
/// assert_eq!(reader.metadata("general.name").and_then(|value| value.as_str()), Some("Tiny"));
/// assert_eq!(reader.data("w")?, [1, 2, 3, 4]);
/// let device = Device::cpu()?;
/// let weights = reader.load(|_| device)?;
/// assert_eq!(weights.tensor("w")?.ne(), [4, 1, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "gguf_context")]
#[derive(Clone)]
pub struct Reader<S = Vec<u8>> {
    pub(super) header: Header,
    pub(super) source: S,
    /// The file's name, for messages.
    pub(super) name: Box<str>,
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
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
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

    /// Returns the source of the data.
    pub fn into_source(self) -> S {
        self.source
    }
}

/// What there is no memory for, in errors.
const TENSORS: &str = "the tensors of a GGUF file";

/// Allocates the tensors that `choose` returns a buffer type for, and returns them with those types, in file order.
pub(super) fn place<P: Into<Option<BufferType>>>(
    header: &Header,
    mut choose: impl FnMut(&TensorInfo) -> P,
) -> Result<(Weights, Vec<(&TensorInfo, BufferType)>)> {
    let chosen = list::collect(header.tensors.iter().filter_map(|t| Some((t, choose(t).into()?))), TENSORS)?;
    let weights = builder(chosen.iter().map(|&(t, _)| t))?.place_each(chosen.iter().map(|&(_, buft)| buft))?;
    Ok((weights, chosen))
}

/// A builder with the given tensors.
#[expect(single_use_lifetimes, reason = "`impl Trait` takes no anonymous one")]
fn builder<'a>(tensors: impl Iterator<Item = &'a TensorInfo>) -> Result<WeightsBuilder> {
    let mut builder = WeightsBuilder::new();
    for t in tensors {
        builder.tensor(t.name(), t.dtype(), t.shape())?;
    }
    Ok(builder)
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
    /// [`Error::NoSuch`](crate::Error::NoSuch) if there is no such tensor; it lists the existing names.
    pub fn data(&self, name: &str) -> Result<&[u8]> {
        self.data_of(self.tensor(name)?)
    }

    fn data_of(&self, t: &TensorInfo) -> Result<&[u8]> {
        let range = self.header.range(t)?;
        let place = |n| usize::try_from(n).ok();
        let range = place(range.start).zip(place(range.end)).map(|(start, end)| start..end);
        range.and_then(|range| self.source.as_ref().get(range)).ok_or_else(|| outside(t))
    }

    /// Copies each tensor into the buffer type that `place` returns for it; tensors with `None` are skipped.
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place_with`], and where a device refuses the data.
    pub fn load<P: Into<Option<BufferType>>>(&self, mut place: impl FnMut(&str) -> P) -> Result<Weights> {
        self.load_with_info(|t| place(t.name()))
    }

    /// [`Reader::load`] whose closure is told all that the file says about a tensor, such as its type and shape.
    ///
    /// ```no_run
    /// use ggml::gguf::Reader;
    /// use ggml::prelude::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let reader = Reader::from_bytes(std::fs::read("model.gguf")?)?;
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let weights = reader.load_with_info(|t| if t.size() > 1 << 20 { best } else { cpu })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reader::load`].
    pub fn load_with_info<P: Into<Option<BufferType>>>(&self, place: impl FnMut(&TensorInfo) -> P) -> Result<Weights> {
        let (mut weights, chosen) = self::place(&self.header, place)?;
        for (t, _) in chosen {
            weights.set_bytes(t.name(), self.data_of(t)?)?;
        }
        Ok(weights)
    }
}

impl<B: AsRef<[u8]> + Send + Sync + 'static> Reader<B> {
    /// Loads the tensors zero-copy on `device`; tensors for which `place` returns a buffer type are copied there. The
    /// weights own the bytes, such as a mapped file.
    ///
    /// ```no_run
    /// use ggml::gguf::Reader;
    /// use ggml::prelude::*;
    /// # fn mapped(_: &std::fs::File) -> std::io::Result<Vec<u8>> { Ok(vec![]) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = std::fs::File::open("model.gguf")?;
    /// let reader = Reader::from_bytes(mapped(&file)?)?; // such as memmap2::Mmap
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let weights = reader.map(cpu, |name| name.starts_with("blk.").then(|| best.buffer_type()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place_over`] and [`WeightsBuilder::place_with`]. A file whose alignment is smaller than the
    /// device's can't be used zero-copy.
    pub fn map(self, device: Device, mut place: impl FnMut(&str) -> Option<BufferType>) -> Result<Weights> {
        self.map_with_info(device, |t| place(t.name()))
    }

    /// [`Reader::map`] whose closure is told all that the file says about a tensor, such as its type and shape.
    ///
    /// # Errors
    ///
    /// As [`Reader::map`].
    pub fn map_with_info<P: Into<Option<BufferType>>>(
        self,
        device: Device,
        mut place: impl FnMut(&TensorInfo) -> P,
    ) -> Result<Weights> {
        let builder = builder(self.tensors())?;
        let Self { header, source, name } = self;
        let (shared, mut copied) = (Shared(Arc::new(source)), Vec::new());
        let reader = Reader { header, source: shared.clone(), name };
        let mut weights = builder.place_partly_over(device, shared, |name| {
            let t = reader.tensor(name)?;
            if let Some(buft) = place(t).into() {
                list::push(&mut copied, t, TENSORS)?;
                return Ok(Err(buft));
            }
            let start = reader.header.range(t)?.start;
            usize::try_from(start).map(Ok).map_err(|_| outside(t))
        })?;
        for t in copied {
            weights.set_bytes(t.name(), reader.data_of(t)?)?;
        }
        Ok(weights)
    }
}

/// The source's bytes, shared by the reader and the weights.
struct Shared<B>(Arc<B>);

impl<B> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Shared<B> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
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
