//! Metadata of a file, and errors about them.

use ggml::gguf::{Reader, Value};

use crate::error::Error;

/// Metadata of a GGUF file, by key.
pub trait Metadata {
    /// The value of a key.
    fn get(&self, key: &str) -> Option<&Value>;

    /// All keys.
    fn keys(&self) -> Box<dyn Iterator<Item = &str> + '_>;
}

impl<S> Metadata for Reader<S> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.metadata(key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.key_values().map(|(key, _)| key))
    }
}

/// An error about a key by its whole name.
pub(crate) fn refused(key: &str, value: impl Into<Box<str>>, expected: impl Into<Box<str>>) -> Error {
    Error::Key { key: key.into(), value: value.into(), expected: expected.into() }
}

/// A value for messages; long ones are described.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        other => format!("{other:?}"),
    }
}
