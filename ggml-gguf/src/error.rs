//! Why a file could not be read or written.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::str::FromStr;

use crate::dtype::DType;
use crate::shape::{Shape, ShapeError};
use crate::shown::{Available, Needs, Shown};

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// The message is complete: it contains the text of the [`source`](std::error::Error::source). `Debug` prints the message
/// too, so that `main` may return errors. Names and texts of files are printed without control characters, and cut.
///
/// ```
/// use ggml_gguf::{Error, Reader};
/// match Reader::open("/there/is/no.gguf") {
///     Err(Error::File { path, source }) => assert_eq!(source.kind(), std::io::ErrorKind::NotFound, "{path}"),
///     other => panic!("{other:?}"),
/// }
/// match Reader::from_bytes(b"GGML") {
///     Err(Error::Gguf { reason }) => assert!(reason.contains("this is not a GGUF file")),
///     other => panic!("{other:?}"),
/// }
/// ```
#[non_exhaustive]
pub enum Error {
    /// The data are not valid GGUF, or were changed while they were read.
    Gguf {
        /// What is wrong.
        reason: Cow<'static, str>,
    },
    /// A file could not be read or written.
    File {
        /// The path.
        path: Box<str>,
        /// The cause, mostly an error of the operating system.
        source: io::Error,
    },
    /// Memory allocation failed.
    OutOfMemory {
        /// The size of the request, if known.
        bytes: Option<usize>,
    },
    /// Nothing has the requested name.
    NoSuch {
        /// What was asked for, such as `tensor`.
        what: &'static str,
        /// The requested name.
        name: Box<str>,
        /// The existing names.
        available: Box<[Box<str>]>,
    },
    /// The name is already in use.
    Duplicate {
        /// The call.
        call: &'static str,
        /// What has the name, such as `tensor`.
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
    /// A parameter is out of range.
    Param {
        /// The call.
        call: &'static str,
        /// The parameter's name.
        name: &'static str,
        /// The value that was passed.
        value: Box<str>,
        /// What is expected.
        expected: Cow<'static, str>,
    },
    /// No tensor of the type can have the shape.
    Shape {
        /// The call.
        call: &'static str,
        /// The tensor's name.
        name: Box<str>,
        /// Its type.
        dtype: DType,
        /// Its shape.
        shape: Shape,
        /// What is wrong.
        reason: ShapeError,
    },
    /// The data have another length than the tensor.
    Length {
        /// The call.
        call: &'static str,
        /// The tensor's name.
        name: Box<str>,
        /// Its type.
        dtype: DType,
        /// Its shape.
        shape: Shape,
        /// The bytes of the tensor.
        expected: usize,
        /// The bytes of the data.
        got: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = |name, dtype, shape| format!("`{}` {dtype} {shape}", Shown::name(name));
        match self {
            Self::Gguf { reason } => write!(f, "GGUF: {}", Shown::text(reason)),
            Self::File { path, source } => {
                write!(f, "{}: {}", Shown::text(path), Shown::lines(&source.to_string()))
            }
            Self::OutOfMemory { bytes } => write!(f, "out of memory: {FILE}{}", Needs(*bytes)),
            Self::NoSuch { what, name, available } => {
                write!(f, "no {what} named `{}`; there {}", Shown::name(name), Available(available))
            }
            Self::Duplicate { call, what, name } => {
                write!(f, "{call}: a {what} named `{}` already exists", Shown::name(name))
            }
            Self::Param { call, name, value, expected } => {
                write!(f, "{call}: `{name}` is {}, but {}", Shown::text(value), Shown::text(expected))
            }
            Self::Shape { call, name, dtype, shape, reason } => {
                write!(f, "{call}({}): {reason}", tensor(name, dtype, shape))
            }
            Self::Length { call, name, dtype, shape, expected, got } => {
                write!(f, "{call}: {} takes {expected} bytes, got {got}", tensor(name, dtype, shape))
            }
        }
    }
}

/// What memory is for.
const FILE: &str = "the contents of a GGUF file";

/// The message: `fn main() -> ggml_gguf::Result<()>` prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error about a file's contents.
pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Error {
    Error::Gguf { reason: reason.into() }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses ggml's name of a type, ignoring case.
    fn from_str(s: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(s)).ok_or_else(|| Error::NoSuch {
            what: "element type",
            name: s.into(),
            available: Self::ALL.iter().map(|t| t.name().into()).collect(),
        })
    }
}
