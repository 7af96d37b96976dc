//! Metadata values: one of thirteen types, arrays included.

use std::io::{self, Read, Write};

use ggml_sys as sys;

use super::invalid;
use super::parse::{Cursor, MOST_TEXT};
use super::strings::Strings;
use crate::error::{Error, Result};
use crate::list;

/// What there is no memory for, in errors.
const TEXT: &str = "a text of a GGUF file";

/// The minimum size of a string in bytes: its length field.
const LEAST_TEXT: usize = size_of::<u64>();

/// The maximum length of an array, as in ggml.
const MOST_VALUES: u64 = 1 << 30;

/// The minimum growth, in values, of a list that is being read.
const ROOM: usize = 64;

/// Reads and writes one value.
pub(super) trait Stored: Sized {
    /// The minimum size of a value in bytes.
    const LEAST: usize;

    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self>;

    fn write(&self, out: &mut impl Write) -> io::Result<()>;

    /// `Clone::clone`, fallible.
    fn copied(&self) -> Result<Self>;
}

macro_rules! numbers {
    ($($t:ty),*) => {
        $(
            impl Stored for $t {
                const LEAST: usize = size_of::<$t>();

                fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
                    Ok(Self::from_ne_bytes(cursor.array()?))
                }

                fn write(&self, out: &mut impl Write) -> io::Result<()> {
                    out.write_all(&self.to_ne_bytes())
                }

                fn copied(&self) -> Result<Self> {
                    Ok(*self)
                }
            }
        )*
    };
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Stored for bool {
    const LEAST: usize = 1;

    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        match u8::read(cursor)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(invalid(format!("a boolean is {other}, but must be 0 or 1"))),
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        u8::from(*self).write(out)
    }

    fn copied(&self) -> Result<Self> {
        Ok(*self)
    }
}

impl Stored for String {
    const LEAST: usize = LEAST_TEXT;

    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        cursor.text()
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_text(self, out)
    }

    fn copied(&self) -> Result<Self> {
        list::text(self, TEXT).map(Self::from)
    }
}

/// Writes the length and the bytes of `text`.
pub(super) fn write_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    (text.len() as u64).write(out)?;
    out.write_all(text.as_bytes())
}

/// Reads and writes an array.
trait List: Sized {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self>;

    fn write(&self, out: &mut impl Write) -> io::Result<()>;

    /// `Clone::clone`, fallible.
    fn copied(&self) -> Result<Self>;
}

impl<T: Stored> List for Vec<T> {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        let n = cursor.count(T::LEAST, MOST_VALUES)?;
        let mut values = Self::new();
        for _ in 0..n {
            push(&mut values, n, T::read(cursor)?)?;
        }
        Ok(values)
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        (self.len() as u64).write(out)?;
        self.iter().try_for_each(|v| v.write(out))
    }

    fn copied(&self) -> Result<Self> {
        let mut values = reserve(self.len())?;
        self.iter().try_for_each(|v| push(&mut values, 1, v.copied()?))?;
        Ok(values)
    }
}

impl List for Strings {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        let n = cursor.count(LEAST_TEXT, MOST_VALUES)?;
        let (mut text, mut ends) = (String::new(), Vec::new());
        for _ in 0..n {
            cursor.append_text(&mut text)?;
            push(&mut ends, n, text.len())?;
        }
        Ok(Self::new(text, ends))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        (self.len() as u64).write(out)?;
        self.iter().try_for_each(|text| write_text(text, out))
    }

    fn copied(&self) -> Result<Self> {
        self.copied()
    }
}

/// Appends one of the `n` values that the file claims. The capacity grows with the values that were read, not with the
/// claimed count, and ends up exact.
pub(super) fn push<T>(values: &mut Vec<T>, n: usize, value: T) -> Result<()> {
    let len = values.len();
    if len == values.capacity() {
        more(values, n.saturating_sub(len).min(len.max(ROOM)).max(1))?;
    }
    values.push(value);
    Ok(())
}

/// An empty vector with room for `n` values; the caller has checked `n` against the length of the file.
pub(super) fn reserve<T>(n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    more(&mut values, n)?;
    Ok(values)
}

/// Reserves room for `n` more values.
fn more<T>(values: &mut Vec<T>, n: usize) -> Result<()> {
    values.try_reserve_exact(n).map_err(|_| out_of_memory(n.saturating_mul(size_of::<T>())))
}

pub(super) fn out_of_memory(bytes: usize) -> Error {
    Error::OutOfMemory { what: "the contents of a GGUF file".into(), bytes: Some(bytes), log: Box::default() }
}

macro_rules! kinds {
    ($($variant:ident($t:ty, $many:ty) = $raw:ident, $name:literal, $get:literal, $set:literal;)*) => {
        /// A metadata value (`gguf_type`).
        ///
        /// ```
        /// # use ggml::prelude::*;
        /// use ggml::gguf::Value;
        /// let layers = Value::from(32_u32);
        /// assert_eq!((layers.as_u64(), layers.type_name()), (Some(32), "u32"));
        /// assert_eq!(layers.as_str(), None);
        /// # Ok::<(), ggml::Error>(())
        /// ```
        #[doc(alias = "gguf_type")]
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Value {
            $(
                #[doc = concat!("`", $name, "`")]
                #[doc(alias = $get)]
                #[doc(alias = $set)]
                $variant($t),
            )*
            /// An array of values of one type.
            Array(Array),
        }

        /// A metadata array.
        ///
        /// ```
        /// # use ggml::prelude::*;
        /// use ggml::gguf::{Array, Value};
        /// let value = Value::from(vec![1_u32, 2, 3]);
        /// match value.as_array() {
        ///     Some(Array::U32(numbers)) => assert_eq!(numbers.iter().sum::<u32>(), 6),
        ///     other => panic!("{other:?}"),
        /// }
        /// # Ok::<(), ggml::Error>(())
        /// ```
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Array {
            $(
                #[doc = concat!("An array of `", $name, "`")]
                $variant($many),
            )*
        }

        impl Value {
            /// Reads a type and a value of that type.
            pub(super) fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
                match sys::gguf_type::from_ne_bytes(cursor.array()?) {
                    $(sys::$raw => <$t>::read(cursor).map(Self::$variant),)*
                    sys::GGUF_TYPE_ARRAY => Array::read(cursor).map(Self::Array),
                    other => Err(invalid(format!("there is no type of values with the number {other}"))),
                }
            }

            pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
                match self {
                    $(
                        Self::$variant(value) => {
                            sys::$raw.write(out)?;
                            value.write(out)
                        }
                    )*
                    Self::Array(array) => {
                        sys::GGUF_TYPE_ARRAY.write(out)?;
                        array.write(out)
                    }
                }
            }

            /// `Clone::clone`, fallible.
            pub(super) fn copied(&self) -> Result<Self> {
                Ok(match self {
                    $(Self::$variant(value) => Self::$variant(value.copied()?),)*
                    $(Self::Array(Array::$variant(values)) => Self::Array(Array::$variant(List::copied(values)?)),)*
                })
            }

            /// ggml's name of the type, such as `u32` or `str` (`gguf_type_name`).
            #[doc(alias = "gguf_type_name")]
            #[doc(alias = "gguf_get_kv_type")]
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Array(_) => "arr",
                }
            }
        }

        impl Array {
            fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
                match sys::gguf_type::from_ne_bytes(cursor.array()?) {
                    $(sys::$raw => List::read(cursor).map(Self::$variant),)*
                    sys::GGUF_TYPE_ARRAY => Err(invalid("an array holds arrays, which ggml does not support")),
                    other => Err(invalid(format!("there is no type of values with the number {other}"))),
                }
            }

            fn write(&self, out: &mut impl Write) -> io::Result<()> {
                match self {
                    $(
                        Self::$variant(values) => {
                            sys::$raw.write(out)?;
                            List::write(values, out)
                        }
                    )*
                }
            }

            /// The number of values (`gguf_get_arr_n`).
            #[doc(alias = "gguf_get_arr_n")]
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$variant(values) => values.len(),)*
                }
            }

            /// Whether the array is empty.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// ggml's name of the element type (`gguf_get_arr_type`).
            #[doc(alias = "gguf_get_arr_type")]
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }
        }

        $(
            impl From<$t> for Value {
                fn from(value: $t) -> Self {
                    Self::$variant(value)
                }
            }

            impl From<Vec<$t>> for Value {
                fn from(values: Vec<$t>) -> Self {
                    Self::Array(Array::$variant(values.into()))
                }
            }

            impl From<&[$t]> for Value {
                fn from(values: &[$t]) -> Self {
                    values.to_vec().into()
                }
            }
        )*
    };
}

kinds! {
    U8(u8, Vec<u8>) = GGUF_TYPE_UINT8, "u8", "gguf_get_val_u8", "gguf_set_val_u8";
    I8(i8, Vec<i8>) = GGUF_TYPE_INT8, "i8", "gguf_get_val_i8", "gguf_set_val_i8";
    U16(u16, Vec<u16>) = GGUF_TYPE_UINT16, "u16", "gguf_get_val_u16", "gguf_set_val_u16";
    I16(i16, Vec<i16>) = GGUF_TYPE_INT16, "i16", "gguf_get_val_i16", "gguf_set_val_i16";
    U32(u32, Vec<u32>) = GGUF_TYPE_UINT32, "u32", "gguf_get_val_u32", "gguf_set_val_u32";
    I32(i32, Vec<i32>) = GGUF_TYPE_INT32, "i32", "gguf_get_val_i32", "gguf_set_val_i32";
    F32(f32, Vec<f32>) = GGUF_TYPE_FLOAT32, "f32", "gguf_get_val_f32", "gguf_set_val_f32";
    Bool(bool, Vec<bool>) = GGUF_TYPE_BOOL, "bool", "gguf_get_val_bool", "gguf_set_val_bool";
    String(String, Strings) = GGUF_TYPE_STRING, "str", "gguf_get_val_str", "gguf_set_val_str";
    U64(u64, Vec<u64>) = GGUF_TYPE_UINT64, "u64", "gguf_get_val_u64", "gguf_set_val_u64";
    I64(i64, Vec<i64>) = GGUF_TYPE_INT64, "i64", "gguf_get_val_i64", "gguf_set_val_i64";
    F64(f64, Vec<f64>) = GGUF_TYPE_FLOAT64, "f64", "gguf_get_val_f64", "gguf_set_val_f64";
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<Vec<&str>> for Value {
    fn from(texts: Vec<&str>) -> Self {
        texts.into_iter().collect::<Strings>().into()
    }
}

impl From<Strings> for Value {
    fn from(texts: Strings) -> Self {
        Self::Array(Array::String(texts))
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}

impl Value {
    /// Describes the value if it exceeds ggml's limits.
    pub(super) fn too_large(&self) -> Option<String> {
        let long = |text: &str| (text.len() as u64 > MOST_TEXT).then(|| format!("a text of {} bytes", text.len()));
        match self {
            Self::String(text) => long(text),
            Self::Array(array) if array.len() as u64 > MOST_VALUES => {
                Some(format!("an array of {} values", array.len()))
            }
            Self::Array(Array::String(texts)) => texts.iter().find_map(long),
            _ => None,
        }
    }

    /// The string, if this is one.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::Value;
    /// assert_eq!(Value::from("llama").as_str(), Some("llama"));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, of any integer type, if it is not negative.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::Value;
    /// assert_eq!(Value::from(7_i8).as_u64(), Some(7));
    /// assert_eq!(Value::from(-7_i8).as_u64(), None);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U64(n) => Some(n),
            _ => self.as_i64()?.try_into().ok(),
        }
    }

    /// The integer, of any integer type, if it fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::U8(n) => Some(n.into()),
            Self::I8(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::U64(n) => n.try_into().ok(),
            Self::I64(n) => Some(n),
            _ => None,
        }
    }

    /// The float, if this is an `f32`.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(x) => Some(x),
            _ => None,
        }
    }

    /// The float, if this is an `f32` or `f64`.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(x) => Some(x.into()),
            Self::F64(x) => Some(x),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The array, if this is one.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::Value;
    /// let tokens = Value::from(vec!["a".to_string(), "b".to_string()]);
    /// assert_eq!(tokens.as_array().map(|array| (array.len(), array.type_name())), Some((2, "str")));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "gguf_get_arr_data")]
    #[doc(alias = "gguf_get_arr_str")]
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }
}
