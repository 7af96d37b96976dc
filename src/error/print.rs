//! Formatting the parts of an error message.

use std::fmt;

use ggml_sys as sys;

use super::{Error, Shown, TensorInfo};
use crate::ffi;

/// Prints the message, because `fn main() -> ggml::Result<()>` prints an error by `Debug`.
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

/// Prints ` on a, b`; nothing where there are no operands.
pub(super) struct On<'a>(pub(super) &'a [TensorInfo]);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " on {}", List(self.0)) }
    }
}

/// Prints what to do where there is no device because no backend was loaded yet (feature `dynamic-backends`).
pub(super) struct Unloaded<'a>(pub(super) &'a str, pub(super) &'a [Box<str>]);

impl fmt::Display for Unloaded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = self.1.is_empty() && matches!(self.0, "device" | "device type" | "registry");
        if missing && sys::BACKEND_DIR.is_some() { f.write_str(" before `Registry::load_all`") } else { Ok(()) }
    }
}

/// Prints each logged line on its own line; prints nothing if the log is empty.
pub(super) struct Log<'a>(pub(super) &'a str);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| write!(f, "\n  ggml: {}", Shown::text(line)))
    }
}

/// Prints why ggml aborted. A failed connection of its RPC client is no defect, and gets a text of its own.
pub(super) struct Aborted<'a>(pub(super) &'a str);

impl fmt::Display for Aborted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once("Failed to connect to ") {
            Some((_, address)) => write!(
                f,
                "could not connect to {}, an RPC server or the relay to one in this process; if the process has no file handles \
                 left, close some or raise the limit",
                Shown::text(address.trim_end())
            ),
            None => write!(f, "ggml aborted: {}", Shown::text(self.0)),
        }
    }
}

/// Prints a status and ggml's name for it, for [`Error::Status`](super::Error::Status).
pub(super) struct CodeName(pub(super) i32);

impl fmt::Display for CodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: C accepts any status: it compares the value with those it knows, and returns a string literal.
        write!(f, "status {}, {}", self.0, unsafe { ffi::text_of(sys::ggml_status_to_string, self.0) })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::Error;
    use super::*;

    #[test]
    fn errors_without_operands_name_none() {
        let of = |operands: &[TensorInfo]| Error::unsupported("graph", operands.to_vec(), "X", "why").to_string();
        assert_eq!(of(&[]), "graph: why (device X)");
        let tensor = TensorInfo { name: "t".into(), dtype: "f32", ne: [1; 4] };
        assert_eq!(of(&[tensor]), "graph on `t` f32 [1, 1, 1, 1]: why (device X)");
    }

    #[test]
    fn aborted_connections_say_what_to_do() {
        let of = |message: &str| Error::Ggml { call: "c", message: message.into(), log: Box::default() }.to_string();
        let text = of("ggml-rpc.cpp:653: Failed to connect to 127.0.0.1:1\n");
        assert!(text.starts_with("c: could not connect to 127.0.0.1:1, an RPC server"), "{text}");
        assert!(text.contains("no file handles left") && !text.contains("aborted"), "{text}");
        assert_eq!(of("ggml.c:1: GGML_ASSERT(x) failed"), "c: ggml aborted: ggml.c:1: GGML_ASSERT(x) failed");
    }

    /// This test covers every variant that carries text from outside.
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
