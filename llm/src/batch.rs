//! Tokens to compute.

/// A token of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: i32,
    pub(crate) sequence: usize,
    /// The logits after this token are wanted.
    pub(crate) output: bool,
}

/// Tokens to compute, of one sequence or several. Each token continues its sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub(crate) entries: Vec<Entry>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all tokens, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds a token. With `output`, its logits are computed: those of the token that follows it.
    pub fn push(&mut self, sequence: usize, token: i32, output: bool) {
        self.entries.push(Entry { token, sequence, output });
    }

    /// Adds tokens; the logits of the last are computed.
    pub fn prompt(&mut self, sequence: usize, tokens: &[i32]) {
        for (i, &token) in tokens.iter().enumerate() {
            self.push(sequence, token, i + 1 == tokens.len());
        }
    }

    /// Whether no sequence has two tokens, as in a step.
    pub(crate) fn has_each_sequence_once(&self) -> bool {
        let bits = self.entries.iter().fold(0_u64, |bits, e| bits | 1 << e.sequence);
        usize::try_from(bits.count_ones()).is_ok_and(|n| n == self.entries.len())
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
