//! Reading from bytes that may claim anything.

use super::invalid;
use super::value::Stored;
use crate::error::Result;

/// A place in the bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes from the beginning of the file.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest().first_chunk() {
            Some(&bytes) => {
                self.at += N;
                Ok(bytes)
            }
            None => Err(self.too_short(N as u64)),
        }
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let taken = usize::try_from(n).ok().and_then(|n| self.rest().get(..n));
        let taken = taken.ok_or_else(|| self.too_short(n))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// A number of things that follow and take at least `least` bytes each. It fits the rest of the file, so that memory
    /// may be reserved for it.
    pub(super) fn count(&mut self, least: usize) -> Result<usize> {
        let n = u64::read(self)?;
        let most = self.rest().len() / least.max(1);
        usize::try_from(n).ok().filter(|&n| n <= most).ok_or_else(|| {
            invalid(format!(
                "{n} entries of at least {least} bytes are announced before byte {}, where the file has {} more bytes",
                self.at,
                self.rest().len()
            ))
        })
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let n = u64::read(self)?;
        let at = self.at;
        let bytes = self.take(n)?;
        str::from_utf8(bytes)
            .map_err(|e| invalid(format!("the text at byte {at} is no UTF-8 from its byte {} on", e.valid_up_to())))
    }

    fn too_short(&self, n: u64) -> crate::error::Error {
        let left = self.rest().len();
        invalid(format!("{n} bytes are expected at byte {}, where the file has {left} more bytes", self.at))
    }
}
