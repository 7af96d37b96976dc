//! Values as text.

use std::iter;

use anyhow::{Context as _, Result, bail, ensure};
use ggml::gguf::{Array, Value};

macro_rules! kinds {
    ($($name:literal $variant:ident $t:ty;)*) => {
        /// Parses a value of the command line.
        ///
        /// # Errors
        /// The type doesn't exist, or a text is not a value of it.
        pub(crate) fn parse(kind: &str, texts: &[String]) -> Result<Value> {
            fn all<T>(kind: &str, texts: &[String]) -> Result<Vec<T>>
            where
                T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
            {
                texts.iter().map(|t| t.parse().with_context(|| format!("`{t}` is no {kind}"))).collect()
            }
            if let Some(kind) = kind.strip_suffix("[]") {
                return Ok(match kind {
                    $($name => all::<$t>(kind, texts)?.into(),)*
                    _ => bail!("there is no type `{kind}`; there are {}", NAMES.join(", ")),
                });
            }
            ensure!(texts.len() == 1, "one value is needed, not {}; the type of an array is `{kind}[]`", texts.len());
            Ok(match kind {
                $($name => all::<$t>(kind, texts)?.remove(0).into(),)*
                _ => bail!("there is no type `{kind}`; there are {}, and arrays such as u32[]", NAMES.join(", ")),
            })
        }

        const NAMES: &[&str] = &[$($name),*];

        /// The value, or the elements of an array.
        pub(crate) fn texts(value: &Value) -> Box<dyn Iterator<Item = String> + '_> {
            match value {
                $(
                    Value::$variant(value) => Box::new(iter::once_with(|| value.to_string())),
                    Value::Array(Array::$variant(values)) => Box::new(values.iter().map(|value| value.to_string())),
                )*
                other => Box::new(iter::once_with(move || format!("{other:?}"))),
            }
        }
    };
}

kinds! {
    "u8" U8 u8;
    "i8" I8 i8;
    "u16" U16 u16;
    "i16" I16 i16;
    "u32" U32 u32;
    "i32" I32 i32;
    "u64" U64 u64;
    "i64" I64 i64;
    "f32" F32 f32;
    "f64" F64 f64;
    "bool" Bool bool;
    "str" String String;
}

/// The type as on the command line.
pub(crate) fn kind(value: &Value) -> String {
    value.as_array().map_or(value.type_name().to_owned(), |array| format!("{}[{}]", array.type_name(), array.len()))
}

/// The value on one line of at most `width` characters.
pub(crate) fn line(value: &Value, width: usize) -> String {
    let quoted = |text: String| match value {
        // Formats no more elements than are shown.
        Value::String(_) | Value::Array(Array::String(_)) => {
            let end = text.char_indices().nth(width).map_or(text.len(), |(end, _)| end);
            format!("{:?}", text.get(..end).unwrap_or_default())
        }
        _ => text,
    };
    let whole = match value {
        // Each element takes at least a character and a separator.
        Value::Array(_) => format!("[{}]", texts(value).take(width).map(quoted).collect::<Vec<_>>().join(", ")),
        _ => texts(value).map(quoted).collect(),
    };
    if whole.chars().count() <= width {
        return whole;
    }
    whole.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: &str, texts: &[&str]) -> Result<Value> {
        parse(kind, &texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_are_parsed_by_type() {
        assert_eq!(parsed("u8", &["255"]).unwrap(), 255_u8.into());
        assert_eq!(parsed("i64", &["-7"]).unwrap(), (-7_i64).into());
        assert_eq!(parsed("f32", &["1e-3"]).unwrap(), 1e-3_f32.into());
        assert_eq!(parsed("bool", &["true"]).unwrap(), true.into());
        assert_eq!(parsed("str", &["a b"]).unwrap(), "a b".into());
        assert_eq!(parsed("u32[]", &["1", "2"]).unwrap(), vec![1_u32, 2].into());
        assert_eq!(parsed("str[]", &[]).unwrap(), Vec::<String>::new().into());
        for name in NAMES {
            assert_eq!(parsed(&format!("{name}[]"), &[]).unwrap().as_array().unwrap().type_name(), *name);
        }
    }

    #[test]
    fn parse_errors_name_value_and_type() {
        let text = |kind, texts: &[&str]| format!("{:#}", parsed(kind, texts).unwrap_err());
        assert!(text("u8", &["256"]).starts_with("`256` is no u8: "));
        assert!(text("u32", &["1", "2"]).contains("`u32[]`"));
        assert!(text("u33", &["1"]).contains("u32, i32"));
        assert!(text("u32[][]", &["1"]).contains("no type `u32[]`"));
    }

    #[test]
    fn values_are_printed_on_short_lines() {
        assert_eq!(line(&"a\n".into(), 10), "\"a\\n\"");
        assert_eq!(line(&vec![1_u8, 2].into(), 10), "[1, 2]");
        assert_eq!(line(&vec![1_u8; 1000].into(), 10), "[1, 1, 1,…");
        assert_eq!(kind(&vec![1_u8; 3].into()), "u8[3]");
    }
}
