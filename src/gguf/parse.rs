//! Reading from a file that may claim anything.

use std::io::{self, Read};

use super::value::{Stored, reserve};
use super::{file, invalid};
use crate::error::{Error, Result};

/// What a stream is called in messages, as long as nothing better is known.
pub(super) const STREAM: &str = "a stream";

/// A place in a file of known length.
pub(super) struct Cursor<R> {
    input: R,
    at: u64,
    left: u64,
}

impl<R: Read> Cursor<R> {
    /// The beginning of a file of `len` bytes.
    pub(super) fn new(input: R, len: u64) -> Self {
        Self { input, at: 0, left: len }
    }

    /// Bytes from the beginning of the file.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let n = bytes.len() as u64;
        let left = self.left.checked_sub(n).ok_or_else(|| self.too_short(n))?;
        self.input.read_exact(bytes).map_err(|e| unread(&e))?;
        (self.at, self.left) = (self.at + n, left);
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A number of things that follow and take at least `least` bytes each. It fits the rest of the file, so that memory
    /// may be reserved for it.
    pub(super) fn count(&mut self, least: usize) -> Result<usize> {
        let n = u64::read(self)?;
        let most = self.left / (least as u64).max(1);
        Some(n).filter(|&n| n <= most).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
            invalid(format!(
                "{n} entries of at least {least} bytes are announced before byte {}, where the file has {} more bytes",
                self.at, self.left
            ))
        })
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let n = u64::read(self)?;
        let at = self.at;
        let len = usize::try_from(n).ok().filter(|_| n <= self.left).ok_or_else(|| self.too_short(n))?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|e| {
            invalid(format!("the text at byte {at} is no UTF-8 from its byte {} on", e.utf8_error().valid_up_to()))
        })
    }

    fn too_short(&self, n: u64) -> Error {
        invalid(format!("{n} bytes are expected at byte {}, where the file has {} more bytes", self.at, self.left))
    }
}

/// An error of the system's while a stream is read.
pub(super) fn unread(e: &io::Error) -> Error {
    file::fault(STREAM.as_ref(), e)
}
