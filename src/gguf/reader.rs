//! Reading a file.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use ggml_sys as sys;

use super::parse::Cursor;
use super::table::{Named, Table};
use super::value::{Stored, Value, reserve};
use super::{ALIGNMENT_KEY, MAGIC, VERSION, alignment, file, invalid, name_fault};
use crate::buffer::BufferType;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::weights::{Weights, WeightsBuilder};

/// The fewest bytes of a metadata entry: the length of its key, a byte of it, a type, and a value.
const LEAST_ENTRY: usize = 8 + 1 + 4 + 1;

/// The fewest bytes of a tensor's description: the length of its name, no dimensions, a type, and an offset.
const LEAST_TENSOR: usize = 8 + 4 + 4 + 8;

/// A key and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) value: Value,
}

impl Named for Entry {
    fn name(&self) -> &str {
        &self.key
    }
}

/// What a file says about one of its tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub(super) name: Box<str>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) offset: u64,
    pub(super) size: usize,
}

impl TensorInfo {
    /// The name (`gguf_get_tensor_name`).
    #[doc(alias = "gguf_get_tensor_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements (`gguf_get_tensor_type`).
    #[doc(alias = "gguf_get_tensor_type")]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The elements per dimension (`gguf_get_tensor_ne`).
    #[doc(alias = "gguf_get_tensor_ne")]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where the data begin, in bytes from the beginning of the data section (`gguf_get_tensor_offset`).
    #[doc(alias = "gguf_get_tensor_offset")]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of the data (`gguf_get_tensor_size`).
    #[doc(alias = "gguf_get_tensor_size")]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Named for TensorInfo {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A file that has been read and checked.
///
/// The whole file is kept in memory, tensor data included; [`Reader::load`] copies them to where they are to be used.
#[doc(alias = "gguf_context")]
#[derive(Clone)]
pub struct Reader {
    bytes: Vec<u8>,
    version: u32,
    alignment: u32,
    /// Where tensor data begin.
    data: usize,
    metadata: Table<Entry>,
    tensors: Table<TensorInfo>,
}

impl Reader {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`Error::File`] where it can't be read, [`Error::Gguf`] where it is no GGUF file, a damaged one, or one that ggml
    /// does not support.
    #[doc(alias = "gguf_init_from_file")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read_file(path)?;
        Self::from_bytes(bytes).map_err(|e| within(&path.display(), e))
    }

    /// Reads a file that lies in memory already.
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`] as with [`Reader::open`].
    #[doc(alias = "gguf_init_from_buffer")]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let bytes = bytes.into();
        let mut cursor = Cursor::new(&bytes);
        let version = read_version(&mut cursor)?;
        let n_tensors = cursor.count(LEAST_TENSOR).map_err(|e| within(&"tensors", e))?;
        let n_metadata = cursor.count(LEAST_ENTRY).map_err(|e| within(&"metadata", e))?;

        let mut metadata = reserve(n_metadata)?;
        for i in 0..n_metadata {
            metadata.push(read_entry(&mut cursor, i)?);
        }
        let metadata = Table::new(metadata).map_err(|key| invalid(format!("the key `{key}` occurs twice")))?;
        let alignment = alignment(metadata.get(ALIGNMENT_KEY).map(|e| &e.value))
            .map_err(|why| invalid(format!("{ALIGNMENT_KEY} is not valid: {why}")))?;

        let mut tensors = reserve(n_tensors)?;
        let mut end = Some(0);
        for i in 0..n_tensors {
            let t = read_tensor(&mut cursor, i)?;
            check_offset(&t, end)?;
            end = next_offset(&t, alignment);
            tensors.push(t);
        }
        let data = match tensors.last() {
            Some(last) => data_start(cursor.position(), alignment, last, bytes.len())?,
            None => bytes.len(),
        };
        let tensors = Table::new(tensors).map_err(|name| invalid(format!("the tensor `{name}` occurs twice")))?;
        Ok(Self { bytes, version, alignment, data, metadata, tensors })
    }

    /// The version of the format (`gguf_get_version`).
    #[doc(alias = "gguf_get_version")]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the data of all tensors are aligned to, in bytes (`gguf_get_alignment`).
    #[doc(alias = "gguf_get_alignment")]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The value of a key (`gguf_find_key`).
    #[doc(alias = "gguf_find_key")]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key).map(|e| &e.value)
    }

    /// All keys and values, in the file's order.
    #[doc(alias = "gguf_get_n_kv")]
    #[doc(alias = "gguf_get_key")]
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|e| (&*e.key, &e.value))
    }

    /// All tensors, in the file's order.
    #[doc(alias = "gguf_get_n_tensors")]
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// What the file says about a tensor (`gguf_find_tensor`).
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the names there are.
    #[doc(alias = "gguf_find_tensor")]
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.tensors.get(name).ok_or_else(|| Error::NoSuch {
            what: "tensor",
            name: name.into(),
            available: self.tensors.names(),
        })
    }

    /// The data of a tensor, as they lie in the file.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`] lists the names there are.
    #[doc(alias = "gguf_get_data_offset")]
    pub fn data(&self, name: &str) -> Result<&[u8]> {
        self.data_of(self.tensor(name)?)
    }

    fn data_of(&self, t: &TensorInfo) -> Result<&[u8]> {
        // `from_bytes` has checked the last tensor, which ends behind all others.
        range(self.data, t)
            .and_then(|range| self.bytes.get(range))
            .ok_or_else(|| invalid(format!("the data of tensor `{}` lie outside the file", t.name)))
    }

    /// Copies all tensors into memory of the types that `place` names for them.
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place_with`], and where a device refuses the data.
    pub fn load(&self, place: impl FnMut(&str) -> BufferType) -> Result<Weights> {
        let mut builder = WeightsBuilder::new();
        for t in self.tensors() {
            builder.tensor(&t.name, t.dtype, t.shape)?;
        }
        let mut weights = builder.place_with(place)?;
        for t in self.tensors() {
            weights.set_bytes(&t.name, self.data_of(t)?)?;
        }
        Ok(weights)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("version", &self.version)
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Puts what was being read before the reason.
fn within(what: &dyn fmt::Display, e: Error) -> Error {
    match e {
        Error::Gguf { reason, log } => Error::Gguf { reason: format!("{what}: {reason}").into(), log },
        other => other,
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let fault = |e: &dyn fmt::Display| file::fault(path, e);
    // Before it is opened: pipes and devices may never end, and a pipe that nobody writes to keeps who opens it waiting.
    let meta = fs::metadata(path).map_err(|e| fault(&e))?;
    if !meta.is_file() {
        return Err(fault(&"this is no regular file"));
    }
    let file = File::open(path).map_err(|e| fault(&e))?;
    let mut bytes = reserve(usize::try_from(meta.len()).unwrap_or(usize::MAX))?;
    file.take(meta.len()).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
    Ok(bytes)
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let magic: [u8; MAGIC.len()] = cursor.array()?;
    if magic != MAGIC {
        return Err(invalid(format!("this is no GGUF file: it begins with {:?}", String::from_utf8_lossy(&magic))));
    }
    let version = u32::read(cursor)?;
    match version {
        2..=VERSION => Ok(version),
        _ if (2..=VERSION).contains(&version.swap_bytes()) => Err(invalid(
            "the file was written for machines of the other byte order; convert it with the tools it was made with",
        )),
        _ => Err(invalid(format!("the file is of version {version}; versions 2 to {VERSION} are supported"))),
    }
}

fn read_entry(cursor: &mut Cursor<'_>, i: usize) -> Result<Entry> {
    let key = cursor.text().map_err(|e| within(&format_args!("the key of metadata entry {i}"), e))?;
    if key.is_empty() {
        return Err(invalid(format!("the key of metadata entry {i} is empty")));
    }
    let value = Value::read(cursor).map_err(|e| within(&format_args!("the value of `{key}`"), e))?;
    Ok(Entry { key: key.into(), value })
}

fn read_tensor(cursor: &mut Cursor<'_>, i: usize) -> Result<TensorInfo> {
    let name = cursor.text().map_err(|e| within(&format_args!("the name of tensor {i}"), e))?;
    if let Some(why) = name_fault(name) {
        return Err(invalid(format!("the name of tensor {i}: {why}")));
    }
    describe(cursor, name).map_err(|e| within(&format_args!("tensor `{name}`"), e))
}

fn describe(cursor: &mut Cursor<'_>, name: &str) -> Result<TensorInfo> {
    let n_dims = u32::read(cursor)?;
    let mut ne = [1; sys::GGML_MAX_DIMS as usize];
    if n_dims > sys::GGML_MAX_DIMS {
        return Err(invalid(format!("it has {n_dims} dimensions; ggml has at most {}", sys::GGML_MAX_DIMS)));
    }
    for (_, d) in (0..n_dims).zip(&mut ne) {
        *d = i64::read(cursor)?;
    }
    let shape = Shape::from(ne);
    let raw = sys::ggml_type::from_ne_bytes(cursor.array()?);
    let dtype = DType::from_raw(raw)
        .ok_or_else(|| invalid(format!("ggml has no element type with the number {raw}, or has it no longer")))?;
    let size = shape.bytes(dtype).map_err(|why| invalid(format!("{dtype} {shape}: {why}")))?;
    let offset = u64::read(cursor)?;
    Ok(TensorInfo { name: name.into(), dtype, shape, offset, size })
}

/// Where the data of the tensor after `t` begin.
pub(super) fn next_offset(t: &TensorInfo, alignment: u32) -> Option<u64> {
    t.offset.checked_add(t.size as u64)?.checked_next_multiple_of(alignment.into())
}

fn check_offset(t: &TensorInfo, expected: Option<u64>) -> Result<()> {
    match expected {
        Some(expected) if t.offset == expected => Ok(()),
        Some(expected) => Err(invalid(format!(
            "the data of tensor `{}` begin at byte {} of the data section, but {expected} is expected",
            t.name, t.offset
        ))),
        None => Err(invalid(format!("the tensors before `{}` are too large for the format", t.name))),
    }
}

fn range(data: usize, t: &TensorInfo) -> Option<Range<usize>> {
    let start = data.checked_add(usize::try_from(t.offset).ok()?)?;
    Some(start..start.checked_add(t.size)?)
}

/// Where the data section begins when the descriptions end at `described`, in a file that holds it up to `last`.
fn data_start(described: usize, alignment: u32, last: &TensorInfo, len: usize) -> Result<usize> {
    let start = usize::try_from(alignment).ok().and_then(|n| described.checked_next_multiple_of(n));
    start.filter(|&start| range(start, last).is_some_and(|r| r.end <= len)).ok_or_else(|| {
        invalid(format!(
            "the file has {len} bytes, but the data of its last tensor `{}` would end later; it is incomplete",
            last.name
        ))
    })
}
