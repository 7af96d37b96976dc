//! What can be wrong with a file, a batch or a saved state.

use std::path::PathBuf;

use ggml::Shape;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model can't be loaded, or a batch not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A metadata key that the architecture needs is missing.
    #[error("the file has no key `{key}`; expected {expected}")]
    MissingKey {
        /// The whole key.
        key: Box<str>,
        /// What its value should be.
        expected: Box<str>,
    },
    /// The value of a metadata key can't be used.
    #[error("`{key}` is {value}; expected {expected}")]
    Key {
        /// The whole key.
        key: Box<str>,
        /// Its value, shortened.
        value: Box<str>,
        /// What it should be.
        expected: Box<str>,
    },
    /// A tensor that the architecture needs is missing.
    #[error("the file has no tensor `{name}`; expected one of shape {expected}")]
    MissingTensor {
        /// Its name.
        name: Box<str>,
        /// The shape that follows from the metadata.
        expected: Shape,
    },
    /// A tensor has another shape than the metadata say.
    #[error("tensor `{name}` has the shape {found}; by the metadata it should be {expected}")]
    TensorShape {
        /// Its name.
        name: Box<str>,
        /// Its shape in the file.
        found: Shape,
        /// The shape that follows from the metadata.
        expected: Shape,
    },
    /// The file has tensors that a model of its architecture doesn't use: results would be wrong without them.
    #[error("a model of architecture `{architecture}` has no use for {names}; the file is of an unknown variant")]
    UnknownTensors {
        /// The architecture.
        architecture: &'static str,
        /// Their names, shortened.
        names: Box<str>,
    },
    /// The file has a key that says something of the model which its architecture doesn't know: results would be wrong without it.
    #[error(
        "a model of architecture `{architecture}` has no use for `{key}`, which is {value}; the file is of an unknown variant"
    )]
    UnknownKey {
        /// The architecture.
        architecture: &'static str,
        /// The whole key.
        key: Box<str>,
        /// Its value, shortened.
        value: Box<str>,
    },
    /// A batch can't be computed.
    #[error("batch: {0}")]
    Batch(Box<str>),
    /// No cells of the cache are free.
    #[error(
        "the cache has {free} of {size} cells free, but the batch needs {needed}; remove tokens or shift the context"
    )]
    Full {
        /// Free cells.
        free: usize,
        /// All cells.
        size: usize,
        /// Cells that the batch needs.
        needed: usize,
    },
    /// [`Session::decode_while`](crate::Session::decode_while) was told to stop.
    #[error("stopped after {computed} of {total} tokens")]
    Stopped {
        /// The tokens that were computed.
        computed: usize,
        /// The tokens of the batch.
        total: usize,
    },
    /// A sequence can't be changed in this way.
    #[error("sequence {sequence}: {reason}")]
    Sequence {
        /// The sequence.
        sequence: usize,
        /// Why not.
        reason: Box<str>,
    },
    /// A saved state doesn't belong to this session, or is damaged.
    #[error("saved state: {0}")]
    Saved(Box<str>),
    /// An option has no sensible value.
    #[error("option `{name}` is {value}; expected {expected}")]
    Options {
        /// The option.
        name: &'static str,
        /// Its value.
        value: Box<str>,
        /// What it should be.
        expected: &'static str,
    },
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// `ggml` failed.
    #[error(transparent)]
    Ggml(#[from] ggml::Error),
}

impl Error {
    /// A batch that can't be computed.
    pub(crate) fn batch(reason: impl Into<Box<str>>) -> Self {
        Self::Batch(reason.into())
    }

    /// A sequence that can't be changed.
    pub(crate) fn sequence(sequence: usize, reason: impl Into<Box<str>>) -> Self {
        Self::Sequence { sequence, reason: reason.into() }
    }
}

impl From<ggml::gguf::Error> for Error {
    fn from(e: ggml::gguf::Error) -> Self {
        Self::Ggml(e.into())
    }
}
