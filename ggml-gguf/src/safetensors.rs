//! Files of the format safetensors, as readers and from writers of this crate.

use std::io::{self, Write};
use std::path::Path;

use ::safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value as Json, json};

use crate::dtype::DType;
use crate::error::{Result, invalid};
use crate::file;
use crate::format::name_fault;
use crate::header::{Entry, Header, TensorInfo, within};
use crate::reader::Reader;
use crate::room::push;
use crate::shape::Shape;
use crate::shown::Shown;
use crate::table::Table;
use crate::value::Value;
use crate::writer::{Content, Counted, Fill, Writer, no_data, unwritten};

/// The types that both formats have.
const TYPES: &[(Dtype, DType)] = &[
    (Dtype::F64, DType::F64),
    (Dtype::F32, DType::F32),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::F8_E4M3, DType::F8_E4M3),
    (Dtype::I64, DType::I64),
    (Dtype::I32, DType::I32),
    (Dtype::I16, DType::I16),
    (Dtype::I8, DType::I8),
];

/// The bytes before the JSON header: its length. The data begin at a multiple of it.
const LEN: usize = size_of::<u64>();

impl<B: AsRef<[u8]>> Reader<B> {
    /// Reads a safetensors file from memory, or from a memory mapping. What takes a reader of a GGUF file takes this one.
    ///
    /// `name` gets the name of each tensor, and returns the name that the tensor gets here; tensors for which it returns
    /// `None` are left out. Shapes are reversed, as ggml's begin with the innermost dimension. Texts of the file's
    /// `__metadata__` are metadata. The [`version`](Reader::version) is 0, and the [`alignment`](Reader::alignment) 1, as
    /// the format has neither.
    ///
    /// ```
    /// use ggml_gguf::{DType, Reader, Writer};
    /// # let header = br#"{"model.up.weight":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]}} "#;
    /// # let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 12]].concat();
    /// let reader = Reader::from_safetensors(file, |name| Some(name.replace("model.", "")))?;
    /// let up = reader.tensor("up.weight")?;
    /// assert_eq!((up.dtype(), up.shape().ne()), (DType::F16, [2, 3, 1, 1])); // three rows of two
    ///
    /// let mut writer = Writer::new();
    /// writer.tensor(up.name(), up.dtype(), up.shape(), reader.data("up.weight")?)?;
    /// let gguf = writer.to_bytes()?;
    /// # assert_eq!(Reader::from_bytes(gguf)?.data("up.weight")?, [0; 12]);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`](crate::Error::Gguf) if it is no safetensors file, or is damaged; if ggml has no such type, or no tensors of such a shape;
    /// if a name has more than 63 bytes, or two tensors get one name; on machines that store the most significant byte
    /// first.
    pub fn from_safetensors(bytes: B, mut name: impl FnMut(&str) -> Option<String>) -> Result<Self> {
        let (n, file) = SafeTensors::read_metadata(bytes.as_ref()).map_err(|e| invalid(format!("safetensors: {e}")))?;
        byte_order().map_err(invalid)?;
        let mut tensors = Vec::new();
        for stored in file.offset_keys() {
            let (Some(info), Some(name)) = (file.info(&stored), name(&stored)) else { continue };
            let of = |e| within(&format_args!("tensor `{}`", Shown::name(&stored)), e);
            if let Some(why) = name_fault(&name) {
                return Err(of(invalid(format!("its name can't be `{}`: {why}", Shown::name(&name)))));
            }
            push(&mut tensors, describe(name, info).map_err(|why| of(invalid(why)))?)?;
        }
        let twice = |name: &str| invalid(format!("two tensors get the name `{}`", Shown::name(name)));
        let tensors = Table::new(tensors, twice)?;
        let mut metadata = Table::default();
        let mut texts: Vec<_> = file.metadata().iter().flatten().collect();
        texts.sort_unstable();
        for (key, text) in texts {
            metadata.put(Entry { key: key.as_str().into(), value: Value::from(text.as_str()) })?;
        }
        let header = Header { version: 0, alignment: 1, data: (LEN + n) as u64, metadata, tensors };
        Ok(Self { header, source: bytes, name: "bytes".into() })
    }
}

fn describe(name: String, info: &::safetensors::tensor::TensorInfo) -> Result<TensorInfo, String> {
    let dtype = TYPES.iter().find(|(theirs, _)| *theirs == info.dtype).map(|(_, ours)| *ours);
    let dtype = dtype.ok_or_else(|| {
        let known: Vec<_> = TYPES.iter().map(|(theirs, _)| theirs.to_string()).collect();
        format!("ggml has no type {}, but {}; leave the tensor out, or convert it", info.dtype, known.join(", "))
    })?;
    let ne: Vec<_> = info.shape.iter().rev().copied().collect();
    let shape = Shape::from(&ne[..]);
    let size = shape.nbytes(dtype).map_err(|why| format!("{dtype}, in safetensors {:?}: {why}", info.shape))?;
    Ok(TensorInfo { name: name.into(), dtype, shape, offset: info.data_offsets.0 as u64, size })
}

/// The format stores numbers with the least significant byte first. Data are not converted.
fn byte_order() -> Result<(), &'static str> {
    if cfg!(target_endian = "little") {
        Ok(())
    } else {
        Err("safetensors files are of another byte order than this machine")
    }
}

impl Writer {
    /// Returns the contents as a safetensors file. Shapes are reversed, without the dimensions of 1 that ggml adds at the
    /// end. Metadata become texts, strings as they are and other values as they are printed. Tensors come in the order of
    /// their alignment, as the format recommends.
    ///
    /// ```
    /// use ggml_gguf::{DType, Reader, Writer};
    /// let mut writer = Writer::new();
    /// writer.set("format", "pt")?.tensor("w", DType::F32, [2], &[0; 8])?;
    /// let file = writer.to_safetensors()?;
    /// let reader = Reader::from_safetensors(file, |name| Some(name.to_owned()))?;
    /// assert_eq!(reader.data("w")?, [0; 8]);
    /// # Ok::<(), ggml_gguf::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`](crate::Error::Gguf) for a type that the format doesn't have, such as a quantised one, if a tensor was declared without
    /// data, and on machines that store the most significant byte first; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let mut out = Counted { out: Vec::new(), bytes: 0 };
        self.emit_safetensors(&mut out, &mut no_data).map_err(|e| unwritten(&e))?;
        Ok(out.out)
    }

    /// Writes a safetensors file as [`Writer::to_safetensors`] makes it, to a file as [`Writer::write_with`] does: `data`
    /// provides the data of declared tensors.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) for what is an error of either.
    pub fn write_safetensors_with(
        &self,
        path: impl AsRef<Path>,
        mut data: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        file::replace(path.as_ref(), |out| self.emit_safetensors(&mut Counted { out, bytes: 0 }, &mut data))
    }

    fn emit_safetensors<W: Write>(&self, out: &mut Counted<W>, fill: &mut Fill<'_>) -> io::Result<()> {
        byte_order().map_err(io::Error::other)?;
        let mut header = Map::new();
        if self.metadata.len() > 0 {
            let texts = self.metadata.iter().map(|Entry { key, value }| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (String::from(&**key), Json::from(text))
            });
            header.insert("__metadata__".to_owned(), Json::Object(texts.collect()));
        }
        let mut tensors: Vec<(u64, &Content)> = self.tensors.iter().map(|content| (0, content)).collect();
        tensors.sort_by_key(|(_, content)| std::cmp::Reverse(content.info.dtype.type_size()));
        let mut end = 0;
        for (offset, Content { info, .. }) in &mut tensors {
            let dtype = TYPES.iter().find(|(_, ours)| *ours == info.dtype).ok_or_else(|| {
                let name = Shown::name(&info.name);
                io::Error::other(format!("safetensors have no type {}, which tensor `{name}` has", info.dtype))
            })?;
            let ne = info.shape.ne();
            let dims = ne.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1);
            let shape: Vec<_> = ne.iter().take(dims).rev().collect();
            *offset = end;
            end += info.size as u64;
            let described = json!({ "dtype": dtype.0, "shape": shape, "data_offsets": [*offset, end] });
            if header.insert(String::from(&*info.name), described).is_some() {
                return Err(io::Error::other("`__metadata__` is no name of a tensor in safetensors"));
            }
        }
        let mut header = serde_json::to_vec(&header)?;
        header.resize(header.len().next_multiple_of(LEN), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        tensors.into_iter().try_for_each(|(offset, content)| content.emit(offset, out, fill))
    }
}
