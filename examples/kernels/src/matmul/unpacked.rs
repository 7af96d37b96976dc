//! Matrices that are unpacked once.

use std::fmt::{self, Debug};
use std::marker::PhantomData;

use bytemuck::Zeroable;
use ggml::{DType, Quantize as _, Result};

use super::WIDTH;
use super::activations::{self, BLOCK, Block};
use super::blocks::Unpack;
use super::float_rows;
use super::floats;
use super::panel::{self, Panel};
use super::set::{Level, Plain, Set, with_set};
use super::types::{Q4_0, Q8_0, Type};
use crate::panels::Row;

/// A matrix that was unpacked before.
#[derive(Debug)]
pub(crate) struct UnpackedPanels(Box<dyn Unpacked>);

/// What gets a panel's index, the index of a row, and the products of the row with the panel's columns.
type Done<'a> = &'a mut dyn FnMut(usize, usize, &[f32; WIDTH]);

trait Unpacked: Debug + Send + Sync {
    /// Rows in blocks one after the other, for any panels that multiply blocks.
    fn quantise(&self, _rows: &[&[f32]]) -> Vec<Block> {
        Vec::new()
    }
    fn multiply(&self, rows: &[&[f32]], blocks: &[Block], done: Done<'_>);
}

impl UnpackedPanels {
    /// Unpacks a matrix in ggml's format. Types that [`Set`]s don't multiply as blocks become `f32`.
    ///
    /// # Errors
    ///
    /// Those of the conversion.
    pub(crate) fn new(level: Level, dtype: DType, bytes: &[u8], columns: usize) -> Result<Self> {
        let of_blocks = match dtype {
            DType::Q8_0 => with_set!(level, s => Self(Box::new(OfBlocks::<_, Q8_0>::new(s, bytes, columns)))),
            DType::Q4_0 => with_set!(level, s => Self(Box::new(OfBlocks::<_, Q4_0>::new(s, bytes, columns)))),
            _ => None,
        };
        if let Some(panels) = of_blocks {
            return Ok(panels);
        }
        let values = dtype.dequantize(bytes)?;
        let floats = with_set!(level, s => Self(Box::new(OfFloats::new(s, &values, columns))));
        Ok(floats.unwrap_or_else(|| Self(Box::new(OfFloats::new(Plain, &values, columns)))))
    }

    /// Multiplies rows by the matrix. What was quantised for one matrix of blocks serves the others of the same rows.
    pub(crate) fn multiply(
        &self,
        rows: &[&[f32]],
        blocks: &mut Option<Vec<Block>>,
        mut done: impl FnMut(usize, usize, &[f32; WIDTH]),
    ) {
        let blocks = match blocks {
            Some(blocks) if !blocks.is_empty() => blocks,
            other => other.insert(self.0.quantise(rows)),
        };
        self.0.multiply(rows, blocks, &mut done);
    }
}

/// A matrix of floats for a set.
struct OfFloats<S> {
    s: S,
    depth: usize,
    list: Vec<Row>,
}

impl<S> Debug for OfFloats<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfFloats").field("depth", &self.depth).field("rows", &self.list.len()).finish_non_exhaustive()
    }
}

impl<S: Set> OfFloats<S> {
    fn new(s: S, values: &[f32], columns: usize) -> Self {
        let depth = values.len() / columns;
        let deep = floats::DEEP.min(depth);
        let mut list = vec![Row::zeroed(); depth * columns.div_ceil(WIDTH)];
        for (i, column) in values.chunks_exact(depth).enumerate() {
            let panel = list[i / WIDTH * depth..][..depth].chunks_mut(deep);
            for (part, column) in panel.zip(column.chunks(deep)) {
                column.iter().enumerate().for_each(|(k, &x)| floats::set::<S>(part, k, i % WIDTH, x));
            }
        }
        Self { s, depth, list }
    }
}

impl<S: Set> Unpacked for OfFloats<S> {
    fn multiply(&self, rows: &[&[f32]], _: &[Block], done: Done<'_>) {
        let deep = floats::DEEP.min(self.depth);
        let (mut numbers, n) = (Vec::new(), rows.len());
        let parts = float_rows::in_parts(deep, n, |i| &rows[i][..self.depth], &mut numbers);
        let mut sums = vec![Row::zeroed(); n];
        for (i, panel) in self.list.chunks_exact(self.depth).enumerate() {
            sums.fill(Row::zeroed());
            for (part, rows) in panel.chunks(deep).zip(parts.chunks_exact(n)) {
                floats::tiles(self.s, rows, part, &mut sums);
            }
            sums.iter().enumerate().for_each(|(row, sums)| done(i, row, &sums.0));
        }
    }
}

/// A matrix of a type for a set.
struct OfBlocks<S, T> {
    s: S,
    /// Blocks of each column.
    depth: usize,
    list: Vec<Panel>,
    dtype: PhantomData<T>,
}

impl<S, T> Debug for OfBlocks<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfBlocks").field("depth", &self.depth).field("panels", &self.list.len()).finish_non_exhaustive()
    }
}

impl<S: Set, T: Type> OfBlocks<S, T> {
    fn new(s: S, bytes: &[u8], columns: usize) -> Self {
        let row = bytes.len() / columns;
        let depth = row / size_of::<T::Unit>() * T::BLOCKS;
        let mut list = vec![Panel::zeroed(); depth * columns.div_ceil(WIDTH)];
        for (i, panel) in list.chunks_exact_mut(depth).enumerate() {
            // The last columns are repeated where a panel has more.
            let columns: [&[T::Unit]; WIDTH] =
                std::array::from_fn(|j| bytemuck::cast_slice(&bytes[(i * WIDTH + j).min(columns - 1) * row..][..row]));
            s.run(Unpack::<S, T> { s, columns: &columns, first: 0, panel });
        }
        Self { s, depth, list, dtype: PhantomData }
    }
}

impl<S: Set, T: Type> Unpacked for OfBlocks<S, T> {
    fn quantise(&self, rows: &[&[f32]]) -> Vec<Block> {
        let mut blocks = vec![Block::zeroed(); rows.len() * self.depth];
        for (row, to) in rows.iter().zip(blocks.chunks_exact_mut(self.depth)) {
            activations::quantise(self.s, &row[..self.depth * BLOCK], T::HALVES, to);
        }
        blocks
    }

    fn multiply(&self, rows: &[&[f32]], blocks: &[Block], done: Done<'_>) {
        let deep = S::DEEP.min(self.depth);
        let mut sums = vec![Row::zeroed(); rows.len()];
        for (i, panels) in self.list.chunks_exact(self.depth).enumerate() {
            sums.fill(Row::zeroed());
            for (part, from) in panels.chunks(deep).zip((0..).step_by(deep)) {
                panel::multiply::<S, T>(self.s, (blocks, self.depth, from), part, &mut sums);
            }
            sums.iter().enumerate().for_each(|(row, sums)| done(i, row, &sums.0));
        }
    }
}
