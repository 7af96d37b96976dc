//! Metadata values: one of thirteen types, arrays included. A type is a line of `kinds!`, and is read and written by `Stored`
//! (`stored.rs`).

use std::fmt;
use std::io::{self, Read, Write};

use crate::error::Result;
use crate::error::invalid;
use crate::format::{MAX_TEXT, MAX_VALUES};
use crate::parse::Cursor;
use crate::shown::Cut;
use crate::stored::{List, Stored};
use crate::strings::Strings;

/// The number of the type of arrays.
const ARRAY: u32 = 9;

macro_rules! kinds {
    ($($variant:ident($t:ty, $many:ty) = $id:literal, $name:literal, $get:literal, $set:literal;)*) => {
        /// A metadata value (`gguf_type`).
        ///
        /// ```
        /// use ggml_gguf::Value;
        /// let layers = Value::from(32_u32);
        /// assert_eq!((layers.as_u64(), layers.type_name()), (Some(32), "u32"));
        /// assert_eq!(layers.as_str(), None);
        /// ```
        #[doc(alias = "gguf_type")]
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum Value {
            $(
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                #[doc = concat!("`", $name, "`")]
                #[doc(alias = $get)]
                #[doc(alias = $set)]
                $variant($t),
            )*
            /// An array of values of one type.
            #[cfg_attr(feature = "serde", serde(rename = "arr"))]
            Array(Array),
        }

        /// A metadata array.
        ///
        /// ```
        /// use ggml_gguf::{Array, Value};
        /// let value = Value::from(vec![1_u32, 2, 3]);
        /// match value.as_array() {
        ///     Some(Array::U32(numbers)) => assert_eq!(numbers.iter().sum::<u32>(), 6),
        ///     other => panic!("{other:?}"),
        /// }
        /// ```
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum Array {
            $(
                #[cfg_attr(feature = "serde", serde(rename = $name))]
                #[doc = concat!("An array of `", $name, "`")]
                $variant($many),
            )*
        }

        impl Value {
            /// Reads a type and a value of that type.
            pub(crate) fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
                match u32::read(cursor)? {
                    $($id => <$t>::read(cursor).map(Self::$variant),)*
                    ARRAY => Array::read(cursor).map(Self::Array),
                    other => Err(invalid(format!("there is no type of values with the number {other}"))),
                }
            }

            pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
                match self {
                    $(
                        Self::$variant(value) => {
                            u32::write(&$id, out)?;
                            value.write(out)
                        }
                    )*
                    Self::Array(array) => {
                        ARRAY.write(out)?;
                        array.write(out)
                    }
                }
            }

            /// `Clone::clone`, fallible.
            pub(crate) fn copied(&self) -> Result<Self> {
                Ok(match self {
                    $(Self::$variant(value) => Self::$variant(value.copied()?),)*
                    $(Self::Array(Array::$variant(values)) => Self::Array(Array::$variant(List::copied(values)?)),)*
                })
            }

            fn print(&self, out: &mut impl fmt::Write) -> fmt::Result {
                match self {
                    $(Self::$variant(value) => write!(out, "{value:?}"),)*
                    $(Self::Array(Array::$variant(values)) => write!(out, "{values:?}"),)*
                }
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
                match u32::read(cursor)? {
                    $($id => List::read(cursor).map(Self::$variant),)*
                    ARRAY => Err(invalid("an array holds arrays, which ggml does not support")),
                    other => Err(invalid(format!("there is no type of values with the number {other}"))),
                }
            }

            fn write(&self, out: &mut impl Write) -> io::Result<()> {
                match self {
                    $(
                        Self::$variant(values) => {
                            u32::write(&$id, out)?;
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
    U8(u8, Vec<u8>) = 0, "u8", "gguf_get_val_u8", "gguf_set_val_u8";
    I8(i8, Vec<i8>) = 1, "i8", "gguf_get_val_i8", "gguf_set_val_i8";
    U16(u16, Vec<u16>) = 2, "u16", "gguf_get_val_u16", "gguf_set_val_u16";
    I16(i16, Vec<i16>) = 3, "i16", "gguf_get_val_i16", "gguf_set_val_i16";
    U32(u32, Vec<u32>) = 4, "u32", "gguf_get_val_u32", "gguf_set_val_u32";
    I32(i32, Vec<i32>) = 5, "i32", "gguf_get_val_i32", "gguf_set_val_i32";
    F32(f32, Vec<f32>) = 6, "f32", "gguf_get_val_f32", "gguf_set_val_f32";
    Bool(bool, Vec<bool>) = 7, "bool", "gguf_get_val_bool", "gguf_set_val_bool";
    String(String, Strings) = 8, "str", "gguf_get_val_str", "gguf_set_val_str";
    U64(u64, Vec<u64>) = 10, "u64", "gguf_get_val_u64", "gguf_set_val_u64";
    I64(i64, Vec<i64>) = 11, "i64", "gguf_get_val_i64", "gguf_set_val_i64";
    F64(f64, Vec<f64>) = 12, "f64", "gguf_get_val_f64", "gguf_set_val_f64";
}

/// The value as in Rust: strings in quotes, with control characters escaped, and arrays in brackets. A precision limits
/// the characters that are printed. A width is the least that are.
///
/// ```
/// use ggml_gguf::Value;
/// assert_eq!(Value::from("a\n").to_string(), r#""a\n""#);
/// assert_eq!(Value::from(vec![1_u8, 2]).to_string(), "[1, 2]");
/// assert_eq!(format!("{:4}|", Value::from(7_u8)), "7   |");
/// assert_eq!(format!("{:.9}", Value::from(vec![0.5_f32; 1000])), "[0.5, 0.…");
/// ```
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = f.precision().unwrap_or(usize::MAX);
        let Some(width) = f.width() else { return Cut::print(f, most, |out| self.print(out)) };
        let mut text = String::new();
        Cut::print(&mut text, most, |out| self.print(out))?;
        write!(f, "{text:width$}")
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl<T, const N: usize> From<[T; N]> for Value
where
    Self: From<Vec<T>>,
{
    fn from(values: [T; N]) -> Self {
        Vec::from(values).into()
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
    pub(crate) fn too_large(&self) -> Option<String> {
        let long = |text: &str| (text.len() as u64 > MAX_TEXT).then(|| format!("a text of {} bytes", text.len()));
        match self {
            Self::String(text) => long(text),
            Self::Array(array) if array.len() as u64 > MAX_VALUES => {
                Some(format!("an array of {} values", array.len()))
            }
            Self::Array(Array::String(texts)) => texts.iter().find_map(long),
            _ => None,
        }
    }

    /// The string, if this is one.
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from("llama").as_str(), Some("llama"));
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
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from(7_i8).as_u64(), Some(7));
    /// assert_eq!(Value::from(-7_i8).as_u64(), None);
    /// ```
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U64(n) => Some(n),
            _ => self.as_i64()?.try_into().ok(),
        }
    }

    /// The integer, of any integer type, if it fits.
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from(-7_i8).as_i64(), Some(-7));
    /// assert_eq!(Value::from(u64::MAX).as_i64(), None);
    /// ```
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
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from(0.5_f32).as_f32(), Some(0.5));
    /// assert_eq!(Value::from(0.5_f64).as_f32(), None);
    /// ```
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(x) => Some(x),
            _ => None,
        }
    }

    /// The float, if this is an `f32` or `f64`.
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from(0.5_f32).as_f64(), Some(0.5));
    /// ```
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(x) => Some(x.into()),
            Self::F64(x) => Some(x),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// assert_eq!(Value::from(true).as_bool(), Some(true));
    /// assert_eq!(Value::from(1_u8).as_bool(), None);
    /// ```
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The array, if this is one.
    ///
    /// ```
    /// use ggml_gguf::Value;
    /// let tokens = Value::from(vec!["a".to_string(), "b".to_string()]);
    /// assert_eq!(tokens.as_array().map(|array| (array.len(), array.type_name())), Some((2, "str")));
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

/// The alignment of a file without that key.
const DEFAULT_ALIGNMENT: u32 = 32;

/// The alignment from the metadata, or the default.
///
/// # Errors
///
/// Says what is wrong with the value.
pub(crate) fn alignment(value: Option<&Value>) -> Result<u32, &'static str> {
    match value {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(n)) if n.is_power_of_two() => Ok(n),
        Some(_) => Err("it must be a u32 that is a power of two"),
    }
}
