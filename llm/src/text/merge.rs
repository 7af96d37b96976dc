//! Merging of neighbours, the best pair first: what BPE and SentencePiece have in common.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocabulary::NONE;

/// A part of a word: a token, or a character that is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// Where the part begins and ends in the word, in bytes.
    pub(super) start: u32,
    pub(super) end: u32,
    /// The token, or [`NONE`].
    pub(super) token: u32,
    /// The neighbours' indices, or [`NONE`].
    left: u32,
    right: u32,
}

/// What two neighbours become, if they can be merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merge {
    /// Pairs of a lower rank are merged first.
    pub(super) rank: u32,
    /// What the pair becomes.
    pub(super) token: u32,
}

/// A merge that waits. The fields are in the order of comparison: rank, then place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WaitingMerge {
    rank: u32,
    left: u32,
    right: u32,
    /// Where the pair ended when the candidate was found. If that changed, the candidate is outdated.
    end: u32,
    token: u32,
}

/// Memory for merging that all words share.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<WaitingMerge>>,
}

impl Merger {
    /// Forgets the last word.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a part of `bytes` bytes to the word.
    pub(super) fn push(&mut self, bytes: usize, token: u32) {
        let index = index(self.symbols.len());
        let start = self.symbols.last().map_or(0, |last| last.end);
        let left = index.checked_sub(1).unwrap_or(NONE);
        if let Some(last) = self.symbols.last_mut() {
            last.right = index;
        }
        self.symbols.push(Symbol { start, end: start.saturating_add(self::index(bytes)), token, left, right: NONE });
    }

    /// Merges neighbours until `merge` finds no pair that can be merged, and returns what is left in order.
    pub(super) fn merge(&mut self, merge: impl Fn(&Symbol, &Symbol) -> Option<Merge>) -> impl Iterator<Item = Symbol> {
        for right in 1..index(self.symbols.len()) {
            self.consider(right - 1, right, &merge);
        }
        while let Some(Reverse(best)) = self.queue.pop() {
            let (Some(&left), Some(&right)) = (self.get(best.left), self.get(best.right)) else { continue };
            // A symbol that was merged into its left neighbour is empty.
            if left.start == left.end || right.start == right.end || right.end != best.end || left.right != best.right {
                continue;
            }
            if let Some(left) = self.get_mut(best.left) {
                (left.end, left.token, left.right) = (right.end, best.token, right.right);
            }
            if let Some(right) = self.get_mut(best.right) {
                right.start = right.end;
            }
            if let Some(next) = self.get_mut(right.right) {
                next.left = best.left;
            }
            self.consider(left.left, best.left, &merge);
            self.consider(best.left, right.right, &merge);
        }
        self.symbols.iter().copied().filter(|symbol| symbol.start < symbol.end)
    }

    fn consider(&mut self, left: u32, right: u32, merge: impl Fn(&Symbol, &Symbol) -> Option<Merge>) {
        let (Some(a), Some(b)) = (self.get(left), self.get(right)) else { return };
        let (found, end) = (merge(a, b), b.end);
        if let Some(Merge { rank, token }) = found {
            self.queue.push(Reverse(WaitingMerge { rank, left, right, end, token }));
        }
    }

    fn get(&self, index: u32) -> Option<&Symbol> {
        self.symbols.get(index as usize)
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Symbol> {
        self.symbols.get_mut(index as usize)
    }
}

/// An index or a length; texts are shorter than 2^31 bytes.
fn index(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}
