//! Errors of files as errors of this crate.

use ggml_gguf as gguf;

use crate::dtype::DType;
use crate::error::{Error, TensorInfo};
use crate::shape::Shape;

/// Converts an error of the crate `ggml-gguf` to the same error of this crate, with the same text.
impl From<gguf::Error> for Error {
    fn from(e: gguf::Error) -> Self {
        let log = Box::default();
        match e {
            gguf::Error::Gguf { reason } => Self::Gguf { reason, log },
            gguf::Error::File { path, source } => Self::File { path, source: source.into() },
            gguf::Error::OutOfMemory { bytes } => {
                Self::OutOfMemory { what: "the contents of a GGUF file".into(), bytes, log }
            }
            gguf::Error::NoSuch { what, name, available } => Self::NoSuch { what, name, available },
            gguf::Error::Duplicate { call, what, name } => Self::Duplicate { call, what, name },
            gguf::Error::Param { call, name, value, expected } => Self::Param { call, name, value, expected },
            gguf::Error::Shape { call, name, dtype, shape, reason } => {
                let operands = [info(name, dtype, shape)].into();
                Self::Shape { call, operands, expected: reason.reason().into() }
            }
            gguf::Error::Length { call, name, dtype, shape, expected, got } => {
                Self::Length { call, tensor: info(name, dtype, shape), expected, got, unit: "bytes" }
            }
            other => Self::Gguf { reason: other.to_string().into(), log },
        }
    }
}

fn info(name: Box<str>, dtype: DType, shape: Shape) -> TensorInfo {
    TensorInfo { name, dtype: dtype.name(), ne: shape.ne() }
}

#[cfg(test)]
mod tests {
    use std::io;

    use ggml_gguf::{Reader, ShapeError, Writer};

    use super::*;

    #[test]
    fn errors_of_files_keep_their_text() {
        let name = || Box::from("t\n");
        let (call, dtype, shape) = ("test", DType::Q4_0, Shape::from([31, 2]));
        let reason = ShapeError::Blocks;
        let errors = [
            gguf::Error::Gguf { reason: "why\u{1b}".into() },
            gguf::Error::File { path: name(), source: io::Error::other("two\nlines") },
            gguf::Error::OutOfMemory { bytes: None },
            gguf::Error::OutOfMemory { bytes: Some(7) },
            gguf::Error::OutOfMemory { bytes: Some(usize::MAX) },
            gguf::Error::NoSuch { what: "tensor", name: name(), available: [name()].into() },
            gguf::Error::Duplicate { call, what: "tensor", name: name() },
            gguf::Error::Param { call, name: "key", value: name(), expected: "another".into() },
            gguf::Error::Shape { call, name: name(), dtype, shape, reason },
            gguf::Error::Length { call, name: name(), dtype, shape, expected: 8, got: 7 },
            Reader::from_bytes(b"GGML").unwrap_err(),
            Writer::new().declare("t", dtype, shape).unwrap_err(),
        ];
        for e in errors {
            let text = e.to_string();
            let ours = Error::from(e);
            assert_eq!(ours.to_string(), text);
            assert!(!text.contains("GGUF: GGUF") && !text.contains(char::from(0x1b)), "{text}");
        }
    }
}
