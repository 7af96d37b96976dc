//! What a session remembers of its sequences: keys and values, recurrent states, or both.

use std::ops::Range;

use crate::cache::KvCache;
use crate::error::{Error, Result};
use crate::recurrent::Recurrent;

/// The first bytes of a saved sequence.
const MAGIC: &[u8; 8] = b"ggmlseq1";

/// Keys and values, and recurrent states.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) kv: Option<KvCache>,
    pub(crate) recurrent: Option<Recurrent>,
    /// The position that the next token of each sequence gets.
    pub(crate) lengths: Vec<i32>,
}

impl Memory {
    /// The position that the next token of a sequence gets.
    pub(crate) fn length(&self, sequence: usize) -> Result<i32> {
        let n = self.lengths.len();
        let length = self.lengths.get(sequence).copied();
        length.ok_or_else(|| Error::sequence(sequence, format!("the session has {n} sequences, from 0 on")))
    }

    /// Removes tokens of a sequence. Its next token gets the position after the last one that remains.
    pub(crate) fn remove(&mut self, sequence: usize, positions: Range<i32>) -> Result<()> {
        let length = self.length(sequence)?;
        let positions = positions.start.max(0)..positions.end.min(length);
        if positions.is_empty() {
            return Ok(());
        }
        if let Some(recurrent) = &self.recurrent {
            if positions != (0..length) {
                return Err(Error::sequence(sequence, "a recurrent state can't forget some of its tokens; remove all"));
            }
            recurrent.clear(sequence)?;
        }
        if let Some(kv) = &mut self.kv {
            kv.cells.remove(sequence, positions.clone());
        }
        self.set_length(sequence, if positions.end == length { positions.start } else { length });
        Ok(())
    }

    pub(crate) fn set_length(&mut self, sequence: usize, length: i32) {
        if let Some(now) = self.lengths.get_mut(sequence) {
            *now = length;
        }
    }

    /// Makes the first `n` tokens of one sequence the beginning of another, empty one.
    pub(crate) fn copy(&mut self, from: usize, to: usize, n: i32) -> Result<()> {
        let length = self.length(from)?;
        if n < 0 || n > length {
            return Err(Error::sequence(from, format!("it has {length} tokens, not {n}")));
        }
        self.check_empty(to)?;
        if let Some(recurrent) = &self.recurrent {
            if n != length {
                return Err(Error::sequence(from, "a recurrent state can only be copied as a whole"));
            }
            recurrent.copy(from, to)?;
        }
        if let Some(kv) = &mut self.kv {
            kv.cells.share(from, to, n);
        }
        self.set_length(to, n);
        Ok(())
    }

    fn check_empty(&self, sequence: usize) -> Result<()> {
        match self.length(sequence)? {
            0 => Ok(()),
            n => Err(Error::sequence(sequence, format!("it has {n} tokens already; remove them first"))),
        }
    }

    /// The bytes of a sequence: the length, the positions, then keys and values, then states.
    pub(crate) fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        let length = self.length(sequence)?;
        let mut cells: Vec<_> = self.kv.iter().flat_map(|kv| kv.cells.of(sequence)).collect();
        cells.sort_unstable_by_key(|(_, cell)| cell.position);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(u32::try_from(cells.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(cells.iter().flat_map(|(_, cell)| cell.position.to_le_bytes()));
        if let Some(kv) = &self.kv {
            let rows: Vec<_> = cells.iter().map(|(i, _)| *i).collect();
            bytes.extend(kv.read(&rows)?);
        }
        if let Some(recurrent) = &self.recurrent {
            bytes.extend(recurrent.read(sequence)?.iter().flat_map(|x| x.to_le_bytes()));
        }
        Ok(bytes)
    }

    /// Makes an empty sequence what [`Memory::save`] returned.
    pub(crate) fn restore(&mut self, sequence: usize, bytes: &[u8]) -> Result<()> {
        self.check_empty(sequence)?;
        let wrong = |what: &str| Error::Saved(what.into());
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("these are not the bytes of a saved sequence"))?;
        let mut next = || {
            let (four, later) = rest.split_first_chunk::<4>()?;
            rest = later;
            Some(i32::from_le_bytes(*four))
        };
        let short = || wrong("the bytes end too early");
        let length = next().filter(|&n| n >= 0).ok_or_else(short)?;
        let n = next().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= bytes.len()).ok_or_else(short)?;
        let positions = (0..n).map(|_| next()).collect::<Option<Vec<_>>>().ok_or_else(short)?;
        if !positions.is_sorted_by(|a, b| a < b) || positions.iter().any(|p| !(0..length).contains(p)) {
            return Err(wrong("the positions are damaged"));
        }
        let kv_len = self.kv.as_ref().map_or(0, |kv| kv.token_len() * n);
        let (kv_bytes, state_bytes) = rest.split_at_checked(kv_len).ok_or_else(short)?;
        if let Some(recurrent) = &self.recurrent {
            let (floats, odd) = state_bytes.as_chunks::<4>();
            if !odd.is_empty() {
                return Err(wrong("it has another size than a sequence of this model"));
            }
            recurrent.write(sequence, &floats.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>())?;
        } else if !state_bytes.is_empty() {
            return Err(wrong("it has another size than a sequence of this model and cache"));
        }
        if let Some(kv) = &mut self.kv {
            let mut rows = Vec::new();
            kv.cells.take(positions.iter().map(|&p| (sequence, p)), &mut rows)?;
            if let Err(error) = kv.write(&rows, kv_bytes) {
                kv.cells.give_back(&rows);
                return Err(error);
            }
        }
        self.set_length(sequence, length);
        Ok(())
    }
}
