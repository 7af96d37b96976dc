//! Which token is in which cell of the cache.

use std::ops::Range;

use half::f16;

use crate::error::{Error, Result};

/// The most sequences: a bit each.
pub(crate) const MAX_SEQUENCES: usize = 64;

/// A cell: the position of its token, and the sequences that the token belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) position: i32,
    sequences: u64,
}

impl Cell {
    pub(crate) fn is_free(self) -> bool {
        self.sequences == 0
    }

    pub(crate) fn has(self, sequence: usize) -> bool {
        self.sequences >> sequence & 1 == 1
    }
}

/// The cells of a cache.
#[derive(Debug)]
pub(crate) struct Cells {
    all: Vec<Cell>,
    free: usize,
    /// All cells from here on are free.
    end: usize,
    /// All cells before this are in use.
    start: usize,
}

impl Cells {
    pub(crate) fn new(size: usize) -> Self {
        Self { all: vec![Cell::default(); size], free: size, end: 0, start: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// The cells from the first to the last that these sequences have, a bit each.
    pub(crate) fn range(&self, sequences: u64) -> Range<usize> {
        let used = self.all.get(..self.end).unwrap_or_default();
        let has = |cell: &Cell| cell.sequences & sequences != 0;
        used.iter().position(has).unwrap_or(0)..used.iter().rposition(has).map_or(0, |last| last + 1)
    }

    /// Each cell of a sequence, with its index.
    pub(crate) fn of(&self, sequence: usize) -> impl Iterator<Item = (usize, Cell)> {
        self.all.iter().take(self.end).copied().enumerate().filter(move |(_, cell)| cell.has(sequence))
    }

    /// Checks that so many cells are free.
    pub(crate) fn check_free(&self, needed: usize) -> Result<()> {
        let (free, size) = (self.free, self.all.len());
        if needed <= free { Ok(()) } else { Err(Error::Full { free, size, needed }) }
    }

    /// Gives each token, of a sequence and at a position, the first free cell; `rows` receives their indices.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; nothing has changed then.
    pub(crate) fn take(
        &mut self,
        tokens: impl ExactSizeIterator<Item = (usize, i32)>,
        rows: &mut Vec<i32>,
    ) -> Result<()> {
        rows.clear();
        self.check_free(tokens.len())?;
        for (sequence, position) in tokens {
            let rest = self.all.get_mut(self.start..).unwrap_or_default();
            let Some((i, cell)) = rest.iter_mut().enumerate().find(|(_, cell)| cell.is_free()) else { break };
            *cell = Cell { position, sequences: 1 << sequence };
            self.start += i + 1;
            self.end = self.end.max(self.start);
            self.free -= 1;
            rows.push(i32::try_from(self.start - 1).unwrap_or(i32::MAX));
        }
        Ok(())
    }

    /// Frees cells: of those in `rows`, which were taken last, if their batch failed.
    pub(crate) fn give_back(&mut self, rows: &[i32]) {
        for &row in rows {
            if let Some(cell) = usize::try_from(row).ok().and_then(|i| self.all.get_mut(i)) {
                *cell = Cell::default();
            }
        }
        self.recount();
    }

    /// Removes a sequence's tokens at these positions.
    pub(crate) fn remove(&mut self, sequence: usize, positions: Range<i32>) {
        for cell in self.all.iter_mut().filter(|c| c.has(sequence) && positions.contains(&c.position)) {
            cell.sequences &= !(1 << sequence);
        }
        self.recount();
    }

    /// Makes the first `n` tokens of `from` tokens of `to`, too.
    pub(crate) fn share(&mut self, from: usize, to: usize, n: i32) {
        for cell in self.all.iter_mut().filter(|c| c.has(from) && c.position < n) {
            cell.sequences |= 1 << to;
        }
    }

    /// Checks that no other sequence has a sequence's tokens at these positions.
    pub(crate) fn check_unshared(&self, sequence: usize, positions: Range<i32>) -> Result<()> {
        let mut cells = self.of(sequence).filter(|(_, cell)| positions.contains(&cell.position));
        match cells.find(|(_, cell)| cell.sequences != 1 << sequence) {
            None => Ok(()),
            Some((_, cell)) => {
                let why =
                    format!("another sequence has its token at {}, too, which can't be moved then", cell.position);
                Err(Error::sequence(sequence, why))
            }
        }
    }

    /// Moves a sequence's tokens at these positions; `deltas` receives the distance of each cell.
    pub(crate) fn shift(&mut self, sequence: usize, positions: Range<i32>, by: i32, deltas: &mut Vec<i32>) {
        deltas.clear();
        deltas.extend(self.all.iter_mut().map(|cell| {
            if !cell.has(sequence) || !positions.contains(&cell.position) {
                return 0;
            }
            cell.position += by;
            by
        }));
    }

    fn recount(&mut self) {
        self.free = self.all.iter().filter(|c| c.is_free()).count();
        self.end = self.all.iter().rposition(|c| !c.is_free()).map_or(0, |i| i + 1);
        self.start = self.all.iter().position(|c| c.is_free()).unwrap_or(self.all.len());
    }

    /// Fills `mask` with a row for each token: 0 for the cells of `read` that it sees, negative infinity for others.
    /// It sees tokens of its sequence up to itself, at a distance below `window`.
    pub(crate) fn mask(
        &self,
        tokens: impl Iterator<Item = (usize, i32)>,
        read: Range<usize>,
        window: Option<usize>,
        mask: &mut Vec<f16>,
    ) {
        mask.clear();
        let window = window.and_then(|n| i32::try_from(n).ok()).unwrap_or(i32::MAX);
        for (sequence, position) in tokens {
            mask.extend(self.all.get(read.clone()).unwrap_or_default().iter().map(|cell| {
                let distance = position - cell.position;
                let seen = cell.has(sequence) && distance >= 0 && distance < window;
                if seen { f16::ZERO } else { f16::NEG_INFINITY }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(cells: &mut Cells, tokens: &[(usize, i32)]) -> Vec<i32> {
        let mut rows = Vec::new();
        cells.take(tokens.iter().copied(), &mut rows).unwrap();
        rows
    }

    #[test]
    fn tokens_take_the_first_free_cells() {
        let mut cells = Cells::new(6);
        assert_eq!(take(&mut cells, &[(0, 0), (0, 1), (1, 0), (0, 2)]), [0, 1, 2, 3]);
        cells.remove(0, 1..2);
        assert_eq!(take(&mut cells, &[(1, 1), (1, 2)]), [1, 4]);
        assert_eq!(cells.range(0b11), 0..5);
        let full = cells.take([(0, 3), (0, 4)].into_iter(), &mut Vec::new());
        assert!(matches!(full, Err(Error::Full { free: 1, size: 6, needed: 2 })), "{full:?}");
        assert_eq!(take(&mut cells, &[(0, 3)]), [5]);
        cells.give_back(&[5]);
        assert_eq!((cells.range(0b11).end, cells.of(0).count(), cells.of(1).count()), (5, 2, 3));
    }

    #[test]
    fn tokens_see_their_sequence_up_to_themselves_and_within_the_window() {
        let mut cells = Cells::new(4);
        take(&mut cells, &[(0, 0), (1, 0), (0, 1), (0, 2)]);
        let seen = |sequence, position, window| {
            let mut mask = Vec::new();
            cells.mask([(sequence, position)].into_iter(), 0..4, window, &mut mask);
            mask.iter().map(|x| *x == f16::ZERO).collect::<Vec<_>>()
        };
        assert_eq!(seen(0, 1, None), [true, false, true, false]);
        assert_eq!(seen(1, 5, None), [false, true, false, false]);
        assert_eq!(seen(0, 2, Some(2)), [false, false, true, true]);
        assert_eq!([cells.range(1), cells.range(2), cells.range(3), cells.range(4)], [0..4, 1..2, 0..4, 0..0]);
    }

    #[test]
    fn shared_tokens_are_kept_until_both_sequences_let_go_and_do_not_move() {
        let mut cells = Cells::new(4);
        take(&mut cells, &[(0, 0), (0, 1), (0, 2)]);
        cells.share(0, 1, 2);
        let moves = cells.check_unshared(0, 1..3);
        assert!(matches!(moves, Err(Error::Sequence { sequence: 0, .. })), "{moves:?}");
        cells.check_unshared(0, 2..3).unwrap();
        cells.remove(0, 0..i32::MAX);
        assert_eq!(cells.of(1).map(|(i, c)| (i, c.position)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
        let mut deltas = Vec::new();
        cells.shift(1, 1..2, 5, &mut deltas);
        assert_eq!(deltas, [0, 5, 0, 0]);
    }
}
