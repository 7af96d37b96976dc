//! Typed metadata, with errors that name the key.

use ggml::gguf::{Array, Reader, Strings, Value};

use super::error::{TextError, TextResult};

/// Finds a value by its key.
type Find<'r> = dyn Fn(&str) -> Option<&'r Value> + 'r;

/// The metadata of a file.
pub(super) struct TokenizerMetadata<'r>(Box<Find<'r>>);

impl<'r> TokenizerMetadata<'r> {
    pub(super) fn new<S>(reader: &'r Reader<S>) -> Self {
        Self(Box::new(|key| reader.metadata(key)))
    }

    /// The value, if there is one, as `get` reads it; `expected` describes what `get` accepts.
    fn read<T>(
        &self,
        key: &'static str,
        expected: &str,
        get: impl FnOnce(&'r Value) -> Option<T>,
    ) -> TextResult<Option<T>> {
        let Some(value) = (self.0)(key) else { return Ok(None) };
        let wrong = || {
            let found = match value {
                Value::Array(array) => format!("an array of {} `{}`", array.len(), array.type_name()),
                other => format!("a `{}`", other.type_name()),
            };
            TextError::metadata(key, format!("is {found}, but must be {expected}"))
        };
        get(value).map(Some).ok_or_else(wrong)
    }

    pub(super) fn text(&self, key: &'static str) -> TextResult<Option<&'r str>> {
        self.read(key, "a string", Value::as_str)
    }

    pub(super) fn flag(&self, key: &'static str) -> TextResult<Option<bool>> {
        self.read(key, "a boolean", Value::as_bool)
    }

    pub(super) fn array(&self, key: &'static str) -> TextResult<Option<&'r Array>> {
        self.read(key, "an array", Value::as_array)
    }

    pub(super) fn texts(&self, key: &'static str) -> TextResult<Option<&'r Strings>> {
        self.read(key, "an array of strings", |value| match value.as_array() {
            Some(Array::String(texts)) => Some(texts),
            _ => None,
        })
    }

    /// An array with a number for each of `n` tokens; more are ignored.
    pub(super) fn numbers(&self, key: &'static str, n: usize) -> TextResult<Option<&'r [i32]>> {
        let found = self.read(key, "an array of `i32`", |value| match value.as_array() {
            Some(Array::I32(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })?;
        enough(key, n, found)
    }

    /// The same for floats.
    pub(super) fn floats(&self, key: &'static str, n: usize) -> TextResult<Option<&'r [f32]>> {
        let found = self.read(key, "an array of `f32`", |value| match value.as_array() {
            Some(Array::F32(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })?;
        enough(key, n, found)
    }

    /// The id of one of `n` tokens; the default, if it is one of them, without the key. -1 means that there is none, in
    /// any integer type.
    pub(super) fn id(&self, key: &'static str, n: usize, default: Option<u32>) -> TextResult<Option<u32>> {
        let none =
            |value: &Value| value.as_i64() == Some(-1) || matches!(value, Value::U32(u32::MAX) | Value::U64(u64::MAX));
        let get = |value: &Value| if none(value) { Some(u64::MAX) } else { value.as_u64() };
        let Some(id) = self.read(key, "the number of a token", get)? else {
            return Ok(default.filter(|&id| (id as usize) < n));
        };
        match u32::try_from(id) {
            Ok(small) if id < n as u64 => Ok(Some(small)),
            _ if id == u64::MAX => Ok(None),
            _ => Err(TextError::metadata(key, format!("is {id}, but the file has {n} tokens, numbered from 0"))),
        }
    }
}

fn enough<'r, T>(key: &'static str, n: usize, found: Option<&'r [T]>) -> TextResult<Option<&'r [T]>> {
    let Some(values) = found else { return Ok(None) };
    let short = || TextError::metadata(key, format!("has {} values, but the file has {n} tokens", values.len()));
    values.get(..n).map(Some).ok_or_else(short)
}
