//! What a session remembers of its sequences: keys and values, recurrent states, or both.

mod saved;

use std::ops::Range;

use crate::cache::KvCache;
use crate::error::{Error, Result};
use crate::recurrent::Recurrent;

pub(crate) use saved::pack;

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

    /// The bytes of a sequence; `owner` says of which model and what kind of cache.
    pub(crate) fn save(&self, sequence: usize, owner: u64) -> Result<Vec<u8>> {
        let length = self.length(sequence)?;
        let mut bytes = Vec::new();
        if let Some(kv) = &self.kv {
            // A sequence has all positions up to its length.
            let mut cells: Vec<_> = kv.cells.of(sequence).map(|(i, cell)| (cell.position, i)).collect();
            cells.sort_unstable();
            bytes.extend(kv.read(&cells.into_iter().map(|(_, i)| i).collect::<Vec<_>>())?);
        }
        if let Some(recurrent) = &self.recurrent {
            bytes.extend(recurrent.read(sequence)?.iter().flat_map(|x| x.to_le_bytes()));
        }
        Ok(pack(owner, length, &bytes))
    }

    /// Makes an empty sequence what [`Memory::save`] returned.
    pub(crate) fn restore(&mut self, sequence: usize, owner: u64, bytes: &[u8]) -> Result<()> {
        self.check_empty(sequence)?;
        let (length, rest) = saved::unpack(owner, bytes)?;
        let n = usize::try_from(length).unwrap_or(usize::MAX);
        if let Some(kv) = &self.kv {
            kv.cells.check_free(n)?;
        }
        let kv_len = self.kv.as_ref().map_or(Some(0), |kv| kv.token_len().checked_mul(n));
        let state_len = self.recurrent.as_ref().map_or(0, Recurrent::saved_len) * size_of::<f32>();
        let parts = kv_len.and_then(|len| rest.split_at_checked(len)).filter(|(_, states)| states.len() == state_len);
        let Some((kv_bytes, state_bytes)) = parts else {
            let found = format!("{} bytes for {n} tokens, which is not the size that they have here", rest.len());
            return Err(Error::Saved(found.into()));
        };
        if let Some(kv) = &mut self.kv {
            let mut rows = Vec::new();
            kv.cells.take((0..length).map(|position| (sequence, position)), &mut rows)?;
            if let Err(error) = kv.write(&rows, kv_bytes) {
                kv.cells.give_back(&rows);
                return Err(error);
            }
        }
        if let Some(recurrent) = &self.recurrent {
            let (floats, _) = state_bytes.as_chunks::<4>();
            recurrent.write(sequence, &floats.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>())?;
        }
        self.set_length(sequence, length);
        Ok(())
    }
}
