//! Values as the bytes of a file: numbers, booleans, strings, and arrays of one of them.

use std::io::{self, Read, Write};

use crate::error::Result;
use crate::error::invalid;
use crate::format::{MAX_TEXT, MAX_VALUES};
use crate::parse::Cursor;
use crate::room::{self, push_of, reserve};
use crate::strings::Strings;

/// The minimum size of a string in bytes: its length field.
const LEAST_TEXT: usize = size_of::<u64>();

/// Reads and writes one value.
pub(crate) trait Stored: Sized {
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
        cursor.text(MAX_TEXT)
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_text(self, out)
    }

    fn copied(&self) -> Result<Self> {
        room::text(self)
    }
}

/// Writes the length and the bytes of `text`.
pub(crate) fn write_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    (text.len() as u64).write(out)?;
    out.write_all(text.as_bytes())
}

/// Reads and writes an array.
pub(crate) trait List: Sized {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self>;

    fn write(&self, out: &mut impl Write) -> io::Result<()>;

    /// `Clone::clone`, fallible.
    fn copied(&self) -> Result<Self>;
}

impl<T: Stored> List for Vec<T> {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        let n = cursor.count(T::LEAST, MAX_VALUES)?;
        let mut values = Self::new();
        for _ in 0..n {
            push_of(&mut values, n, T::read(cursor)?)?;
        }
        Ok(values)
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        (self.len() as u64).write(out)?;
        self.iter().try_for_each(|v| v.write(out))
    }

    fn copied(&self) -> Result<Self> {
        let mut values = reserve(self.len())?;
        self.iter().try_for_each(|v| push_of(&mut values, 1, v.copied()?))?;
        Ok(values)
    }
}

impl List for Strings {
    fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        let n = cursor.count(LEAST_TEXT, MAX_VALUES)?;
        let (mut text, mut ends) = (String::new(), Vec::new());
        for _ in 0..n {
            cursor.append_text(&mut text)?;
            push_of(&mut ends, n, text.len())?;
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
