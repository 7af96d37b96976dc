//! Reading from an untrusted file.

use std::io::{self, Read};

use crate::error::invalid;
use crate::error::{Error, Result};
use crate::file;
use crate::format::MAX_TEXT;
use crate::room::{no_memory, reserve};

/// The name of a stream in messages, unless its path is known.
pub(crate) const STREAM: &str = "a stream";

/// The minimum growth, in bytes, of the buffer that consecutive strings are read into.
const ROOM: usize = 4096;

/// A position in a file of known length.
pub(crate) struct Cursor<R> {
    input: R,
    at: u64,
    left: u64,
}

impl<R: Read> Cursor<R> {
    /// Starts at the beginning of a file of `len` bytes.
    pub(crate) fn new(input: R, len: u64) -> Self {
        Self { input, at: 0, left: len }
    }

    /// The offset from the beginning of the file, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let n = bytes.len() as u64;
        let left = self.left.checked_sub(n).ok_or_else(|| self.too_short(n))?;
        self.input.read_exact(bytes).map_err(unread)?;
        (self.at, self.left) = (self.at + n, left);
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a count of items that take at least `least` bytes each. Fails if it exceeds `most` or what the rest of the
    /// file can contain.
    pub(crate) fn count(&mut self, least: usize, most: u64) -> Result<usize> {
        let n = u64::from_ne_bytes(self.array()?);
        let room = self.left / (least as u64).max(1);
        if n > room {
            let (at, left) = (self.at, self.left);
            return Err(invalid(format!(
                "too many are announced before byte {at}: the file has {left} more bytes, room for {room} entries of at least {least} bytes"
            )));
        }
        usize::try_from(n)
            .ok()
            .filter(|_| n <= most)
            .ok_or_else(|| invalid(format!("{n} entries are announced before byte {}; {most} are the most", self.at)))
    }

    /// Reads a string of at most `most` bytes.
    pub(crate) fn text(&mut self, most: u64) -> Result<String> {
        let len = self.text_len(most)?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        let at = self.at;
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|e| no_text(at, e.utf8_error().valid_up_to()))
    }

    /// Reads a string and appends it to `to`.
    pub(crate) fn append_text(&mut self, to: &mut String) -> Result<()> {
        let len = self.text_len(MAX_TEXT)?;
        if len == 0 {
            return Ok(());
        }
        if to.capacity() - to.len() < len {
            // Never more than the rest of the file can contain.
            let rest = usize::try_from(self.left).unwrap_or(usize::MAX);
            let room = len.max(to.len().max(ROOM).min(rest));
            to.try_reserve_exact(room).map_err(|_| no_memory(to.len().saturating_add(room)))?;
        }
        let (at, start, mut left) = (self.at, to.len(), len);
        // A character may span two pieces: its first bytes move to the front of the next piece.
        let (mut piece, mut begun) = ([0; 256], 0);
        while left > 0 {
            let end = piece.len().min(begun + left);
            self.fill(piece.get_mut(begun..end).unwrap_or_default())?;
            left -= end - begun;
            let bytes = piece.get(..end).unwrap_or_default();
            let valid = match str::from_utf8(bytes) {
                Ok(_) => end,
                Err(e) if e.error_len().is_none() && left > 0 => e.valid_up_to(),
                Err(e) => return Err(no_text(at, to.len() - start + e.valid_up_to())),
            };
            to.push_str(str::from_utf8(bytes.get(..valid).unwrap_or_default()).unwrap_or_default());
            piece.copy_within(valid..end, 0);
            begun = end - valid;
        }
        Ok(())
    }

    /// Reads a string's length and checks it against the rest of the file.
    fn text_len(&mut self, most: u64) -> Result<usize> {
        let n = u64::from_ne_bytes(self.array()?);
        let (at, left) = (self.at, self.left);
        if n > left {
            return Err(invalid(format!("the text at byte {at} is longer than the rest of the file, {left} bytes")));
        }
        let fits = usize::try_from(n).ok().filter(|_| n <= most);
        fits.ok_or_else(|| invalid(format!("the text at byte {at} has {n} bytes; {most} are the most")))
    }

    fn too_short(&self, n: u64) -> Error {
        invalid(format!("{n} bytes are expected at byte {}, where the file has {} more bytes", self.at, self.left))
    }
}

fn no_text(at: u64, valid: usize) -> Error {
    invalid(format!("the text at byte {at} is not UTF-8 from its byte {valid} on"))
}

/// An I/O error while reading or writing a stream.
pub(crate) fn unread(e: io::Error) -> Error {
    file::fault(STREAM.as_ref(), e)
}
