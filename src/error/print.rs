//! Formatting the parts of an error message.

use std::fmt;

use ggml_sys as sys;

use super::{Error, Shown, TensorInfo};
use crate::ffi;

/// How many existing names are printed at most.
const AVAILABLE: usize = 50;

/// The message: `fn main() -> ggml::Result<()>` prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints operands as `a, b`, or `no tensors`.
pub(super) struct List<'a>(pub(super) &'a [TensorInfo]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no tensors");
        }
        for (i, t) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            t.fmt(f)?;
        }
        Ok(())
    }
}

/// Prints each logged line on its own line; prints nothing if the log is empty.
pub(super) struct Log<'a>(pub(super) &'a str);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  ggml: {}", Shown::text(line)))
    }
}

/// Prints the requested size, for [`Error::OutOfMemory`](super::Error::OutOfMemory).
pub(super) struct Needs(pub(super) Option<usize>);

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |bytes| write!(f, " needs {bytes} bytes"))
    }
}

/// Prints a status and ggml's name for it, for [`Error::Status`](super::Error::Status).
pub(super) struct Named(pub(super) i32);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: accepts any status: C compares the value with those it knows and returns a string literal.
        let text = unsafe { sys::ggml_status_to_string(self.0) };
        // SAFETY: `ggml_status_to_string` returns a NUL-terminated string literal, which is never freed.
        write!(f, "status {}, {}", self.0, unsafe { ffi::string(text) })
    }
}

/// Prints the existing names, for [`Error::NoSuch`](super::Error::NoSuch).
pub(super) struct Available<'a>(pub(super) &'a [Box<str>]);

impl fmt::Display for Available<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("are none");
        }
        f.write_str("are: ")?;
        for (i, name) in self.0.iter().take(AVAILABLE).enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, Shown::name(name))?;
        }
        match self.0.len().saturating_sub(AVAILABLE) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::Error;
    use super::*;

    #[test]
    fn error_texts_escape_control_characters() {
        let text = "a\u{1b}]0;b\u{7}c\u{9b}31m\r\n\u{202e}d \u{e9}\u{4e16}\u{1f600} 'e\"\\";
        let shown = r#"a\u{1b}]0;b\u{7}c\u{9b}31m\r\n\u{202e}d é世😀 'e"\"#;
        assert_eq!(Shown::name(text).to_string(), shown);
        assert_eq!(Shown::text(text).to_string(), shown);
    }

    #[test]
    fn error_texts_truncate_long_names() {
        let cut = |text: &str| Shown::name(text).to_string();
        assert_eq!(cut(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(cut(&"x".repeat(81)), format!("{}…", "x".repeat(79)));
        // An escape sequence is never split.
        assert_eq!(cut(&"\u{1b}".repeat(5 << 20)), format!("{}…", r"\u{1b}".repeat(13)));
        assert_eq!(Shown::text(&"y".repeat(5 << 20)).to_string().chars().count(), 4096);
    }

    /// Covers every variant that carries text from outside.
    #[test]
    fn errors_are_never_raw_or_long() {
        let evil = "\u{1b}[2J".repeat(1 << 14);
        let text = || -> Box<str> { evil.as_str().into() };
        let tensor = || TensorInfo { name: text(), dtype: "f32", ne: [1; 4] };
        let operands = || -> Box<[TensorInfo]> { [tensor(), tensor()].into() };
        let (call, what) = ("test", "tensor");
        let errors = [
            Error::Shape { call, operands: operands(), expected: evil.clone().into() },
            Error::DType { call, operands: operands(), expected: evil.clone().into() },
            Error::Param { call, name: "n", value: text(), expected: evil.clone().into() },
            Error::Frozen { call, tensor: tensor() },
            Error::Length { call, tensor: tensor(), expected: 1, got: 2, unit: "bytes" },
            Error::Unsupported { call: text(), operands: operands(), device: text(), reason: evil.clone().into() },
            Error::NoSuch { what, name: text(), available: vec![text(); 1000].into() },
            Error::Duplicate { call, what, name: text() },
            Error::Backends { reason: "test", backends: text() },
            Error::OutOfMemory { what: evil.clone().into(), bytes: None, log: text() },
            Error::Null { call, log: text() },
            Error::Status { call, status: 1, log: text() },
            Error::Ggml { call, message: text(), log: text() },
            Error::Exception { call, message: text(), log: text() },
            Error::Rpc { endpoint: text(), reason: evil.clone().into(), source: None },
            Error::RpcLost { endpoint: text(), reason: evil.clone().into(), source: None },
            Error::DeviceFailed { call, device: text(), reason: text() },
            Error::DeviceLost { device: text(), reason: text() },
            Error::File { path: text(), source: io::Error::other(evil.as_str()).into() },
            Error::Gguf { reason: evil.clone().into(), log: text() },
        ];
        for error in errors {
            let printed = error.to_string();
            assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{}", Shown::text(&printed));
            assert!(printed.len() < 20_000, "{} bytes: {}", printed.len(), Shown::name(&printed));
        }
    }
}
