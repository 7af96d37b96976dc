//! `Serialize` and `Deserialize` for what is not derived: types by name, shapes and strings as lists.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::dtype::DType;
use crate::shape::Shape;
use crate::strings::Strings;

/// ggml's name of the type.
impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// All four dimensions, innermost first.
impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::ne(*self).serialize(serializer)
    }
}

/// One to four dimensions, innermost first.
impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ne = Vec::<i64>::deserialize(deserializer)?;
        match ne.len() {
            1..=4 => Ok(Self::from(&ne[..])),
            n => Err(D::Error::invalid_length(n, &"one to four dimensions")),
        }
    }
}

impl Serialize for Strings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.into())
    }
}
