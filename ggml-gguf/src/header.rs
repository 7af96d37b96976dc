//! The header of a file: everything before the tensor data.

use std::fmt;
use std::io::Read;
use std::ops::Range;

use crate::dtype::DType;
use crate::error::invalid;
use crate::error::{Error, Result};
use crate::format::{ALIGNMENT_KEY, MAGIC, MAX_KEY, MAX_NAME, VERSION, key_fault, name_fault};
use crate::parse::Cursor;
use crate::room::push_of;
use crate::shape::Shape;
use crate::shown::Shown;
use crate::stored::Stored;
use crate::table::{Named, Table};
use crate::value::Value;
use crate::value::alignment;

/// The minimum size of a metadata entry in bytes: key length, one byte of key, type, value.
const LEAST_ENTRY: usize = 8 + 1 + 4 + 1;

/// The minimum size of a tensor description in bytes: name length, number of dimensions, type, offset.
const LEAST_TENSOR: usize = 8 + 4 + 4 + 8;

/// The maximum number of dimensions.
const MAX_DIMS: u32 = 4;

/// A key and its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Box<str>,
    pub(crate) value: Value,
}

impl Named for Entry {
    fn name(&self) -> &str {
        &self.key
    }
}

/// The description of one tensor in a file.
///
/// ```
/// use ggml_gguf::{DType, Reader, Writer};
/// # let mut writer = Writer::new();
/// # writer.tensor("w", DType::F16, [2, 3], &[0; 12])?;
/// # let reader = Reader::from_bytes(writer.to_bytes()?)?;
/// for t in reader.tensors() {
///     println!("{}: {} {}, {} bytes", t.name(), t.dtype(), t.shape(), t.size());
/// }
/// assert_eq!(reader.tensor("w")?.size(), 12);
/// # Ok::<(), ggml_gguf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub(crate) name: Box<str>,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) offset: u64,
    pub(crate) size: usize,
}

impl TensorInfo {
    /// The name (`gguf_get_tensor_name`).
    #[doc(alias = "gguf_get_tensor_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type (`gguf_get_tensor_type`).
    #[doc(alias = "gguf_get_tensor_type")]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements per dimension, in ggml's `ne` order: innermost first (`gguf_get_tensor_ne`).
    #[doc(alias = "gguf_get_tensor_ne")]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The offset of the tensor's data in bytes, from the beginning of the data section (`gguf_get_tensor_offset`).
    #[doc(alias = "gguf_get_tensor_offset")]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The size of the tensor's data in bytes (`gguf_get_tensor_size`).
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

/// Metadata and tensor descriptions, checked against each other and against the length of the file.
#[derive(Clone)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) alignment: u32,
    /// The offset of the data section in the file.
    pub(crate) data: u64,
    pub(crate) metadata: Table<Entry>,
    pub(crate) tensors: Table<TensorInfo>,
}

impl Header {
    /// Reads the header of a file of `len` bytes.
    pub(crate) fn read(input: impl Read, len: u64) -> Result<Self> {
        let mut cursor = Cursor::new(input, len);
        let version = read_version(&mut cursor)?;
        let n_tensors = cursor.count(LEAST_TENSOR, u64::MAX).map_err(|e| within(&"tensors", e))?;
        let n_metadata = cursor.count(LEAST_ENTRY, u64::MAX).map_err(|e| within(&"metadata", e))?;

        let mut metadata = Vec::new();
        for i in 0..n_metadata {
            push_of(&mut metadata, n_metadata, read_entry(&mut cursor, i)?)?;
        }
        let metadata = Table::new(metadata, |key| invalid(format!("the key `{}` occurs twice", Shown::name(key))))?;
        let alignment = alignment(metadata.get(ALIGNMENT_KEY).map(|e| &e.value))
            .map_err(|why| invalid(format!("{ALIGNMENT_KEY} is not valid: {why}")))?;

        let mut tensors = Vec::new();
        let mut end = Some(0);
        for i in 0..n_tensors {
            let t = read_tensor(&mut cursor, i)?;
            check_offset(&t, end)?;
            end = next_offset(&t, t.offset, alignment);
            push_of(&mut tensors, n_tensors, t)?;
        }
        let data = match tensors.last() {
            Some(last) => data_start(cursor.position(), alignment, last, len)?,
            None => len,
        };
        let tensors = Table::new(tensors, |name| invalid(format!("the tensor `{}` occurs twice", Shown::name(name))))?;
        Ok(Self { version, alignment, data, metadata, tensors })
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.tensors.get(name).ok_or_else(|| self.tensors.no_such("tensor", name))
    }

    /// The byte range of a tensor's data in the file.
    pub(crate) fn range(&self, t: &TensorInfo) -> Range<u64> {
        // `read` has checked the last tensor, and all others end before it.
        let start = self.data + t.offset;
        start..start + t.size as u64
    }

    /// The error that the data of a tensor are no longer there. The header was compared with the file's length.
    #[cold]
    pub(crate) fn cut(&self, file: &str, t: &TensorInfo) -> Error {
        let Range { start, end } = self.range(t);
        let name = Shown::name(&t.name);
        let reason = format!(
            "the data of tensor `{name}`, bytes {start} to {end}, are gone: the file was cut after it was opened"
        );
        within(&file, invalid(reason))
    }
}

/// Prefixes the reason with what was being read.
pub(crate) fn within(what: &dyn fmt::Display, e: Error) -> Error {
    match e {
        Error::Gguf { reason } => invalid(format!("{what}: {reason}")),
        other => other,
    }
}

fn read_version<R: Read>(cursor: &mut Cursor<R>) -> Result<u32> {
    let magic: [u8; MAGIC.len()] = cursor.array()?;
    if magic != MAGIC {
        return Err(invalid(format!("this is not a GGUF file: it begins with {:?}", String::from_utf8_lossy(&magic))));
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

fn read_entry<R: Read>(cursor: &mut Cursor<R>, i: usize) -> Result<Entry> {
    let of = |e| within(&format_args!("the key of metadata entry {i}"), e);
    let key = cursor.text(MAX_KEY).map_err(of)?;
    if let Some(why) = key_fault(&key) {
        return Err(of(invalid(why)));
    }
    let value = Value::read(cursor).map_err(|e| within(&format_args!("the value of `{}`", Shown::name(&key)), e))?;
    Ok(Entry { key: key.into(), value })
}

fn read_tensor<R: Read>(cursor: &mut Cursor<R>, i: usize) -> Result<TensorInfo> {
    let of = |e| within(&format_args!("the name of tensor {i}"), e);
    let name = cursor.text(MAX_NAME).map_err(of)?;
    if let Some(why) = name_fault(&name) {
        return Err(of(invalid(why)));
    }
    let info = describe(cursor).map_err(|e| within(&format_args!("tensor `{}`", Shown::name(&name)), e))?;
    Ok(TensorInfo { name: name.into(), ..info })
}

/// Reads all but the name.
fn describe<R: Read>(cursor: &mut Cursor<R>) -> Result<TensorInfo> {
    let n_dims = u32::read(cursor)?;
    let mut ne = [1; MAX_DIMS as usize];
    if n_dims > MAX_DIMS {
        return Err(invalid(format!("it has {n_dims} dimensions; ggml has at most {MAX_DIMS}")));
    }
    for (_, d) in (0..n_dims).zip(&mut ne) {
        *d = i64::read(cursor)?;
    }
    let shape = Shape::from(ne);
    let id = u32::read(cursor)?;
    let dtype = DType::from_id(id)
        .ok_or_else(|| invalid(format!("ggml has no element type with the number {id}, or has it no longer")))?;
    let size = shape.nbytes(dtype).map_err(|why| invalid(format!("{dtype} {shape}: {why}")))?;
    let offset = u64::read(cursor)?;
    Ok(TensorInfo { name: Box::default(), dtype, shape, offset, size })
}

/// The offset of the tensor that follows `t`, which lies at `offset`.
pub(crate) fn next_offset(t: &TensorInfo, offset: u64, alignment: u32) -> Option<u64> {
    offset.checked_add(t.size as u64)?.checked_next_multiple_of(alignment.into())
}

fn check_offset(t: &TensorInfo, expected: Option<u64>) -> Result<()> {
    match expected {
        Some(expected) if t.offset == expected => Ok(()),
        Some(expected) => Err(invalid(format!(
            "the data of tensor `{}` begin at byte {} of the data section, but {expected} is expected",
            Shown::name(&t.name),
            t.offset
        ))),
        None => Err(invalid(format!("the tensors before `{}` are too large for the format", Shown::name(&t.name)))),
    }
}

/// The offset of the data section if the descriptions end at `described`; checks that the file contains `last`'s data.
fn data_start(described: u64, alignment: u32, last: &TensorInfo, len: u64) -> Result<u64> {
    let start = described.checked_next_multiple_of(alignment.into());
    let end = |start: u64| start.checked_add(last.offset)?.checked_add(last.size as u64);
    start.filter(|&start| end(start).is_some_and(|end| end <= len)).ok_or_else(|| {
        invalid(format!(
            "the file has {len} bytes, but the data of its last tensor `{}` would end later; it is incomplete",
            Shown::name(&last.name)
        ))
    })
}
